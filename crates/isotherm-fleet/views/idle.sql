-- Idle memory by service: what is present, idle for ten minutes, and not known, as byte-minutes and as means.
-- Memory that was watched for less than ten minutes, or cannot be observed, is not known.
SELECT
  service,
  hosts,
  minutes,
  present_sum AS present_byte_minutes,
  idle_sum AS idle_byte_minutes,
  unknown_sum AS unknown_byte_minutes,
  CAST(FLOOR(CAST(present_sum AS DOUBLE) / minutes) AS BIGINT) AS mean_present_bytes,
  CAST(FLOOR(CAST(idle_sum AS DOUBLE) / minutes) AS BIGINT) AS mean_idle_bytes
FROM (
  SELECT
    service,
    COUNT(DISTINCT host) AS hosts,
    COUNT(DISTINCT minute) AS minutes,
    CAST(SUM(present_bytes) AS BIGINT) AS present_sum,
    CAST(SUM(CASE WHEN within_600s_bytes IS NULL THEN 0
      ELSE present_bytes - unobservable_bytes - within_600s_bytes END) AS BIGINT) AS idle_sum,
    CAST(SUM(CASE WHEN within_600s_bytes IS NULL THEN present_bytes ELSE unobservable_bytes END) AS BIGINT)
      AS unknown_sum
  FROM fleet
  WHERE kind IN ('memory', 'shared')
  GROUP BY service
) AS by_service
ORDER BY idle_byte_minutes DESC, service
