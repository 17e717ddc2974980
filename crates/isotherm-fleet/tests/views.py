"""Answers views by an engine: views.py ENGINE DATASET VIEW.sql... Prints {"view": [{"column": value}]}."""

import json
import os
import sys

engine, dataset, *views = sys.argv[1:]


def with_duckdb():
    import duckdb

    connection = duckdb.connect()
    connection.execute(
        f"CREATE VIEW fleet AS SELECT * FROM read_parquet('{dataset}/*/*/*.parquet', hive_partitioning = true)"
    )

    def answer(sql):
        found = connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row)) for row in found.fetchall()]

    return answer


def with_spark():
    from pyspark.sql import SparkSession

    # Several workers, each a process of its own.
    session = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
    session.read.parquet(dataset).createOrReplaceTempView("fleet")
    return lambda sql: [row.asDict() for row in session.sql(sql).collect()]


def with_clickhouse():
    import chdb

    def answer(sql):
        table = (
            "(SELECT *, extract(_path, 'host=([0-9a-f]*)') AS host, extract(_path, 'date=([0-9-]*)') AS date "
            f"FROM file('{dataset}/*/*/*.parquet', Parquet)) AS fleet"
        )
        text = str(chdb.query(sql.replace("FROM fleet\n", f"FROM {table}\n").replace("FROM fleet)", f"FROM {table})"),
                              "JSONEachRow"))
        return [json.loads(line) for line in text.splitlines()]

    return answer


ask = {"duckdb": with_duckdb, "spark": with_spark, "clickhouse": with_clickhouse}[engine]()
answers = {}
for path in views:
    with open(path) as file:
        answers[os.path.splitext(os.path.basename(path))[0]] = ask(file.read())
print(json.dumps(answers))
