-- What has grown since last week: the mean memory of each service in the newest seven days, and in those before.
-- A service that was not there in one of the two weeks has no difference.
SELECT
  service,
  NULLIF(n_before, 0) AS minutes_before,
  NULLIF(n_now, 0) AS minutes_now,
  CASE WHEN n_before > 0 THEN mean_before END AS mean_before_bytes,
  CASE WHEN n_now > 0 THEN mean_now END AS mean_now_bytes,
  CASE WHEN n_before > 0 AND n_now > 0 THEN mean_now - mean_before END AS grown_bytes
FROM (
  SELECT
    service,
    n_before,
    n_now,
    CAST(FLOOR(CAST(sum_before AS DOUBLE) / GREATEST(n_before, 1)) AS BIGINT) AS mean_before,
    CAST(FLOOR(CAST(sum_now AS DOUBLE) / GREATEST(n_now, 1)) AS BIGINT) AS mean_now
  FROM (
    SELECT
      service,
      COUNT(DISTINCT CASE WHEN minute <= newest - 604800 THEN minute END) AS n_before,
      COUNT(DISTINCT CASE WHEN minute > newest - 604800 THEN minute END) AS n_now,
      CAST(SUM(CASE WHEN minute <= newest - 604800 THEN present_bytes ELSE 0 END) AS BIGINT) AS sum_before,
      CAST(SUM(CASE WHEN minute > newest - 604800 THEN present_bytes ELSE 0 END) AS BIGINT) AS sum_now
    FROM (SELECT MAX(minute) AS newest FROM fleet) AS last_minute
    CROSS JOIN fleet
    WHERE kind IN ('memory', 'shared') AND minute > newest - 1209600
    GROUP BY service
  ) AS by_service
) AS with_means
ORDER BY COALESCE(grown_bytes, -9223372036854775807) DESC, service
