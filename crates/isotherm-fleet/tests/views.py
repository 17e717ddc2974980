"""Answers views by an engine: views.py ENGINE DATASET VIEW.sql... Prints {"view": [{"column": value}]}.

ENGINE is chdb, datafusion-python, duckdb or spark. docs/fleet.md has the same lines for users.
"""

import json
import os
import sys


def with_duckdb(dataset):
    import duckdb

    connection = duckdb.connect()
    connection.execute(
        f"CREATE VIEW fleet AS SELECT * FROM read_parquet('{dataset}/*/*/*.parquet', "
        "hive_partitioning = true, hive_types_autocast = false)"
    )

    def answer(sql):
        found = connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row)) for row in found.fetchall()]

    return answer


def with_chdb(dataset):
    from chdb import session

    clickhouse = session.Session()
    # Columns of the path; what is unknown is null, as in the other engines.
    clickhouse.query("SET use_hive_partitioning = 1, cast_keep_nullable = 1")
    # Groups that take more than 1 GiB go to a disk.
    clickhouse.query("SET max_bytes_before_external_group_by = 1073741824")
    # A host of digits only would be taken for a number.
    clickhouse.query(
        "CREATE VIEW fleet AS SELECT * REPLACE (extract(_path, 'host=([^/]+)') AS host) "
        f"FROM file('{dataset}/*/*/*.parquet', Parquet)"
    )

    def answer(sql):
        found = clickhouse.query(sql + " SETTINGS output_format_json_quote_64bit_integers = 0", "JSON")
        found = json.loads(found.bytes())
        # ClickHouse writes 25.0 as 25.
        floats = [column["name"] for column in found["meta"] if "Float" in column["type"]]
        for row in found["data"]:
            row.update({name: float(row[name]) for name in floats if row[name] is not None})
        return found["data"]

    return answer


def with_spark(dataset):
    import pyspark
    from pyspark.sql import SparkSession

    # The package has a whole Spark, and workers look for one.
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    # Two workers, which are processes of their own, with a core and 1 GiB each.
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    builder = SparkSession.builder.master(os.environ.get("ISOTHERM_SPARK", "local-cluster[2,1,1024]"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.read.parquet(dataset).createOrReplaceTempView("fleet")
    return lambda sql: [row.asDict() for row in spark.sql(sql).collect()]


def with_datafusion(dataset):
    """The engine that isotherm embeds, by its Python package and with the same settings, for bench/fleet."""
    from datafusion import SessionConfig, SessionContext

    config = SessionConfig().set("datafusion.execution.parquet.metadata_size_hint", "32768")
    context = SessionContext(config)
    context.sql(f"CREATE EXTERNAL TABLE files STORED AS PARQUET PARTITIONED BY (date, host) LOCATION '{dataset}/'")
    context.sql("CREATE VIEW fleet AS SELECT * EXCLUDE (host), CAST(host AS VARCHAR) AS host FROM files")
    return lambda sql: [row for batch in context.sql(sql).collect() for row in batch.to_pylist()]


ENGINES = {"chdb": with_chdb, "datafusion-python": with_datafusion, "duckdb": with_duckdb, "spark": with_spark}

if __name__ == "__main__":
    engine, dataset, *views = sys.argv[1:]
    ask = ENGINES[engine](os.path.abspath(dataset))
    answers = {}
    for path in views:
        with open(path) as file:
            answers[os.path.splitext(os.path.basename(path))[0]] = ask(file.read())
    print(json.dumps(answers))
