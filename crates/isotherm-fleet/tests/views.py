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


ask = {"duckdb": with_duckdb}[engine]()
answers = {}
for path in views:
    with open(path) as file:
        answers[os.path.splitext(os.path.basename(path))[0]] = ask(file.read())
print(json.dumps(answers))
