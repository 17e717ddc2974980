-- What the limit of each service could be on each host: the most that was accessed within half an hour, and a tenth.
-- Memory that was watched for less than half an hour, or cannot be observed, counts as accessed.
SELECT
  service,
  host,
  host_name,
  peak_present AS peak_present_bytes,
  peak_used AS peak_used_bytes,
  peak_present - peak_used AS unused_bytes,
  CAST(FLOOR(CAST(peak_used AS DOUBLE) * 1.1e0) AS BIGINT) AS could_be_bytes,
  limit_now AS limit_bytes
FROM (
  SELECT
    service,
    host,
    MAX(minute_present) AS peak_present,
    MAX(minute_used) AS peak_used,
    MIN(minute_limit) AS limit_now
  FROM (
    SELECT
      service,
      host,
      minute,
      CAST(SUM(present_bytes) AS BIGINT) AS minute_present,
      CAST(SUM(CASE WHEN within_1800s_bytes IS NULL THEN present_bytes
        ELSE within_1800s_bytes + unobservable_bytes END) AS BIGINT) AS minute_used,
      MIN(limit_bytes) AS minute_limit
    FROM fleet
    WHERE kind IN ('memory', 'shared', 'group')
    GROUP BY service, host, minute
  ) AS by_minute
  GROUP BY service, host
) AS by_host
LEFT JOIN (SELECT host AS named_host, MAX(host_name) AS host_name FROM fleet WHERE kind = 'group' GROUP BY host) AS names
  ON named_host = host
WHERE peak_present IS NOT NULL
ORDER BY unused_bytes DESC, service, host
