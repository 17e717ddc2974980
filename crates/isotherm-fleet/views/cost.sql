-- What isotherm costs on each host: CPU time, its share of one CPU, and what it read, cleared and held.
-- A minute of a group of which the CPU time is not known is counted apart.
SELECT
  host,
  name AS host_name,
  minutes,
  cpu_sum AS cpu_ns,
  ROUND(100e0 * cpu_sum / (6e10 * minutes), 3) AS percent_of_a_cpu,
  reads_sum AS page_reads,
  clears_sum AS page_clears,
  holds_sum AS held_ns,
  unknown_minutes
FROM (
  SELECT
    host,
    MAX(host_name) AS name,
    COUNT(DISTINCT minute) AS minutes,
    CAST(SUM(cpu_ns) AS BIGINT) AS cpu_sum,
    CAST(SUM(reads) AS BIGINT) AS reads_sum,
    CAST(SUM(clears) AS BIGINT) AS clears_sum,
    CAST(SUM(holds_ns) AS BIGINT) AS holds_sum,
    CAST(SUM(CASE WHEN cpu_ns IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS unknown_minutes
  FROM fleet
  WHERE kind = 'group'
  GROUP BY host
) AS by_host
ORDER BY COALESCE(cpu_sum, -1) DESC, host
