-- What has grown since last week: the mean memory of each service in the newest seven days, and in those before.
-- A service that was not there in one of the two weeks has no difference.
SELECT
  service,
  minutes_before,
  minutes_now,
  CAST(FLOOR(CAST(sum_before AS DOUBLE) / minutes_before) AS BIGINT) AS mean_before_bytes,
  CAST(FLOOR(CAST(sum_now AS DOUBLE) / minutes_now) AS BIGINT) AS mean_now_bytes,
  CAST(FLOOR(CAST(sum_now AS DOUBLE) / minutes_now) AS BIGINT)
    - CAST(FLOOR(CAST(sum_before AS DOUBLE) / minutes_before) AS BIGINT) AS grown_bytes
FROM (
  SELECT
    service,
    NULLIF(COUNT(DISTINCT CASE WHEN minute <= newest - 604800 THEN minute END), 0) AS minutes_before,
    NULLIF(COUNT(DISTINCT CASE WHEN minute > newest - 604800 THEN minute END), 0) AS minutes_now,
    CAST(SUM(CASE WHEN minute <= newest - 604800 THEN present_bytes ELSE 0 END) AS BIGINT) AS sum_before,
    CAST(SUM(CASE WHEN minute > newest - 604800 THEN present_bytes ELSE 0 END) AS BIGINT) AS sum_now
  FROM fleet
  CROSS JOIN (SELECT MAX(minute) AS newest FROM fleet) AS last_minute
  WHERE kind IN ('memory', 'shared') AND minute > newest - 1209600
  GROUP BY service
) AS by_service
ORDER BY COALESCE(grown_bytes, -9223372036854775807) DESC, service
