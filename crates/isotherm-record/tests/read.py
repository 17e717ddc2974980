"""Reads a recording as it is with a library of others: `read.py pyarrow|polars|duckdb|parquet PATH`.

Prints one JSON object with sums over all that it read. Exits with 77 when the library is missing.
"""

import json
import sys

library, path = sys.argv[1:]
try:
    import pyarrow as pa

    if library in ("polars", "duckdb"):
        __import__(library)
except ImportError:
    sys.exit(77)


def pyarrow(path):
    reader = pa.ipc.open_stream(pa.OSFile(path))
    batches, torn = [], False
    try:
        for batch in reader:
            batch.validate(full=True)
            batches.append(batch)
    except (pa.ArrowInvalid, OSError):
        torn = True
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {
        "format": reader.schema.metadata[b"isotherm.format"].decode(),
        "probe": json.loads(reader.schema.metadata[b"isotherm.header"])["probe"],
        "torn": torn,
        "rows": len(rows),
        "regions": sum(len(row["regions"] or []) for row in rows),
        "accesses": sum(region["nr_accesses"] for row in rows for region in row["regions"] or []),
        "mappings": sum(len(row["mappings"] or []) for row in rows),
        "commands": sum(row["target"] is not None for row in rows),
        "cpu_ns": sum(row["cost"]["cpu_ns"] for row in rows if row["cost"]),
        "times": [row["time_ns"] for row in rows],
        "activities": sum(row.get("activity") is not None for row in rows),
        "applied_bytes": sum(
            scheme["total"]["applied_bytes"]
            for row in rows
            if row.get("activity")
            for scheme in row["activity"]["schemes"]
        ),
        "schema": [f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in reader.schema],
    }


def polars(path):
    import polars as pl

    table = pl.read_ipc_stream(path)
    applied = 0
    if "activity" in table.columns:
        scheme = pl.col("activity").struct.field("schemes").list.explode().struct.field
        applied = table.select(scheme("total").struct.field("applied_bytes").sum()).item()
    region = pl.col("regions").list.explode().struct.field
    return {
        "rows": table.height,
        "regions": table["regions"].list.len().sum(),
        "accesses": table.select(region("nr_accesses").sum()).item(),
        "mappings": table["mappings"].list.len().sum(),
        "commands": table["target"].is_not_null().sum(),
        "cpu_ns": table.select(pl.col("cost").struct.field("cpu_ns").sum()).item(),
        "applied_bytes": applied,
    }


def duckdb(path):
    import duckdb

    recording = pa.ipc.open_stream(pa.OSFile(path))
    applied = "0"
    if "activity" in recording.schema.names:
        applied = "sum(list_sum(list_transform(activity.schemes, lambda s: s.total.applied_bytes)))"
    row = duckdb.sql(
        f"""
        SELECT count(*), sum(len(regions)), sum(list_sum(list_transform(regions, lambda r: r.nr_accesses))),
               sum(len(mappings)), count(target), sum(cost.cpu_ns), {applied}
        FROM recording
        """
    ).fetchall()[0]
    names = ("rows", "regions", "accesses", "mappings", "commands", "cpu_ns", "applied_bytes")
    return dict(zip(names, map(int, row)))


def parquet(path):
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return {
        "format": table.schema.metadata[b"isotherm.format"].decode(),
        "probe": json.loads(table.schema.metadata[b"isotherm.header"])["probe"],
        "compression": pq.ParquetFile(path).metadata.row_group(0).column(0).compression,
        "rows": table.num_rows,
        "accesses": sum(table["nr_accesses"].to_pylist()),
        "first": table.slice(0, 1).to_pylist()[0],
        "schema": [f"{f.name}: {f.type}" for f in table.schema],
    }


json.dump({f.__name__: f for f in (pyarrow, polars, duckdb, parquet)}[library](path), sys.stdout)
