-- What schemes freed and moved, and what came back, by service. Of what was freed, the watched part says how much.
-- Minutes of which that is not known are counted apart.
SELECT
  service,
  freed_sum AS freed_bytes,
  watched_sum AS watched_bytes,
  returned_sum AS returned_bytes,
  ROUND(100e0 * returned_sum / NULLIF(watched_sum, 0), 1) AS returned_percent,
  moved_sum AS moved_bytes,
  unknown_minutes
FROM (
  SELECT
    service,
    CAST(SUM(freed_bytes) AS BIGINT) AS freed_sum,
    CAST(SUM(watched_bytes) AS BIGINT) AS watched_sum,
    CAST(SUM(returned_bytes) AS BIGINT) AS returned_sum,
    CAST(SUM(moved_bytes) AS BIGINT) AS moved_sum,
    CAST(SUM(CASE WHEN freed_bytes IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS unknown_minutes
  FROM fleet
  WHERE kind = 'group'
  GROUP BY service
) AS by_service
ORDER BY COALESCE(freed_bytes, -1) DESC, service
