-- The fast memory that each service needs for 90, 99 and 99.9 % of its accesses: at most, as means over the time.
-- Memory is taken by classes of frequency, the hottest first, so that the figures are the ends of classes.
SELECT
  service,
  minutes,
  a7 AS accesses,
  CAST(FLOOR(CAST(CASE WHEN a1 >= 0.9e0 * a7 THEN b1 WHEN a2 >= 0.9e0 * a7 THEN b2 WHEN a3 >= 0.9e0 * a7 THEN b3
    WHEN a4 >= 0.9e0 * a7 THEN b4 WHEN a5 >= 0.9e0 * a7 THEN b5 WHEN a6 >= 0.9e0 * a7 THEN b6 ELSE b7 END
    AS DOUBLE) / minutes) AS BIGINT) AS bytes_for_90,
  CAST(FLOOR(CAST(CASE WHEN a1 >= 0.99e0 * a7 THEN b1 WHEN a2 >= 0.99e0 * a7 THEN b2 WHEN a3 >= 0.99e0 * a7 THEN b3
    WHEN a4 >= 0.99e0 * a7 THEN b4 WHEN a5 >= 0.99e0 * a7 THEN b5 WHEN a6 >= 0.99e0 * a7 THEN b6 ELSE b7 END
    AS DOUBLE) / minutes) AS BIGINT) AS bytes_for_99,
  CAST(FLOOR(CAST(CASE WHEN a1 >= 0.999e0 * a7 THEN b1 WHEN a2 >= 0.999e0 * a7 THEN b2
    WHEN a3 >= 0.999e0 * a7 THEN b3 WHEN a4 >= 0.999e0 * a7 THEN b4 WHEN a5 >= 0.999e0 * a7 THEN b5
    WHEN a6 >= 0.999e0 * a7 THEN b6 ELSE b7 END AS DOUBLE) / minutes) AS BIGINT) AS bytes_for_99_9,
  CAST(FLOOR(CAST(b7 AS DOUBLE) / minutes) AS BIGINT) AS known_bytes,
  CAST(FLOOR(CAST(unknown_sum AS DOUBLE) / minutes) AS BIGINT) AS unknown_bytes
FROM (
  SELECT
    service,
    COUNT(DISTINCT minute) AS minutes,
    CAST(SUM(hz_unknown_bytes) AS BIGINT) AS unknown_sum,
    CAST(SUM(hz_1000_bytes) AS BIGINT) AS b1,
    CAST(SUM(hz_1000_bytes + hz_100_bytes) AS BIGINT) AS b2,
    CAST(SUM(hz_1000_bytes + hz_100_bytes + hz_10_bytes) AS BIGINT) AS b3,
    CAST(SUM(hz_1000_bytes + hz_100_bytes + hz_10_bytes + hz_1_bytes) AS BIGINT) AS b4,
    CAST(SUM(hz_1000_bytes + hz_100_bytes + hz_10_bytes + hz_1_bytes + hz_01_bytes) AS BIGINT) AS b5,
    CAST(SUM(hz_1000_bytes + hz_100_bytes + hz_10_bytes + hz_1_bytes + hz_01_bytes + hz_001_bytes) AS BIGINT) AS b6,
    CAST(SUM(hz_1000_bytes + hz_100_bytes + hz_10_bytes + hz_1_bytes + hz_01_bytes + hz_001_bytes + hz_0_bytes)
      AS BIGINT) AS b7,
    CAST(SUM(hz_1000_accesses) AS BIGINT) AS a1,
    CAST(SUM(hz_1000_accesses + hz_100_accesses) AS BIGINT) AS a2,
    CAST(SUM(hz_1000_accesses + hz_100_accesses + hz_10_accesses) AS BIGINT) AS a3,
    CAST(SUM(hz_1000_accesses + hz_100_accesses + hz_10_accesses + hz_1_accesses) AS BIGINT) AS a4,
    CAST(SUM(hz_1000_accesses + hz_100_accesses + hz_10_accesses + hz_1_accesses + hz_01_accesses) AS BIGINT) AS a5,
    CAST(SUM(hz_1000_accesses + hz_100_accesses + hz_10_accesses + hz_1_accesses + hz_01_accesses
      + hz_001_accesses) AS BIGINT) AS a6,
    CAST(SUM(hz_1000_accesses + hz_100_accesses + hz_10_accesses + hz_1_accesses + hz_01_accesses
      + hz_001_accesses + hz_0_accesses) AS BIGINT) AS a7
  FROM fleet
  WHERE kind = 'memory' AND hz_unknown_bytes IS NOT NULL
  GROUP BY service
) AS by_service
ORDER BY bytes_for_99 DESC, service
