-- Hosts that could be packed closer: the memory of each, less the most that was accessed within half an hour there.
-- Only watched memory counts. What was watched for less than half an hour, or cannot be observed, counts as accessed.
SELECT
  host,
  name AS host_name,
  memory AS memory_bytes,
  least_available AS least_available_bytes,
  peak_present AS peak_present_bytes,
  peak_used AS peak_used_bytes,
  memory - peak_used AS spare_bytes
FROM (
  SELECT
    host,
    MAX(minute_name) AS name,
    MAX(minute_memory) AS memory,
    MIN(minute_available) AS least_available,
    MAX(minute_present) AS peak_present,
    MAX(minute_used) AS peak_used
  FROM (
    SELECT
      host,
      minute,
      MAX(host_name) AS minute_name,
      MAX(host_memory_bytes) AS minute_memory,
      MIN(host_available_bytes) AS minute_available,
      CAST(SUM(present_bytes) AS BIGINT) AS minute_present,
      CAST(SUM(CASE WHEN within_1800s_bytes IS NULL THEN present_bytes
        ELSE within_1800s_bytes + unobservable_bytes END) AS BIGINT) AS minute_used
    FROM fleet
    WHERE kind IN ('memory', 'shared', 'host')
    GROUP BY host, minute
  ) AS by_minute
  GROUP BY host
) AS by_host
ORDER BY spare_bytes DESC, host
