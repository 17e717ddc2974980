"""Runs damo's own code for the tests of import and export.

`with_damo.py version` prints the version of damo.
`with_damo.py read FILE` prints as JSON what damo reads in FILE.
`with_damo.py write TRACE FORMAT FILE` makes damo write FILE in FORMAT from TRACE, the text of a kernel trace.
`with_damo.py COMMAND ARGUMENT...` runs another command of damo, such as `report` and `validate`.

The recordings in `files` were made by this script with the versions of damo in their names:
`PYTHONPATH=DIRECTORY-OF-DAMO python3 with_damo.py write files/trace.txt json files/VERSION.json`.

It neither needs DAMON in the kernel nor changes its settings. It exits with 77 if damo or the program `file`, which
damo uses, is missing.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

# This directory has no damo.
sys.path.pop(0)
found = importlib.util.find_spec("damo")
if found is None or shutil.which("file") is None:
    sys.exit(77)
package = os.path.dirname(found.origin)
sys.path.insert(0, package)

import _damon

try:
    import _damo_records as records_module
except ImportError:
    # Before 2.1.
    import _damon_result as records_module


def version():
    import damo_version

    print(damo_version.__version__)


def read(path):
    with open(path, "rb") as f:
        plain = f.read(1) == b"["
    if plain:
        # damo asks `file` for the format, and knows the answer of some versions of `file` only.
        records, error = records_module.parse_json_file(path), None
    else:
        records, error = records_module.parse_records_file(path)
    if error:
        sys.exit(f"damo: {error}")

    def region(r):
        return [r.start, r.end, r.nr_accesses.samples, r.age.aggr_intervals]

    def snapshot(s):
        return {"start": s.start_time, "end": s.end_time, "regions": [region(r) for r in s.regions]}

    def record(r):
        intervals = r.intervals and [r.intervals.sample, r.intervals.aggr, r.intervals.ops_update]
        return {"target": r.target_id, "intervals": intervals, "snapshots": [snapshot(s) for s in r.snapshots]}

    print(json.dumps([record(r) for r in records]))


def write(trace, file_format, path):
    intervals = _damon.DamonIntervals("5ms", "100ms", "1s")
    with open(trace) as f:
        text = f.read()
    if hasattr(records_module, "parse_damon_trace"):
        records, error = records_module.parse_damon_trace(text, "perf-script", intervals)
    else:
        records, error = records_module.parse_perf_script(text, intervals)
    error = error or records_module.write_damon_records(records, path, file_format)
    if error:
        sys.exit(f"damo: {error}")


def run(*arguments):
    command = [sys.executable, os.path.join(package, "damo.py"), *arguments]
    sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60).returncode)


if __name__ == "__main__":
    ours = {"version": version, "read": read, "write": write}
    if sys.argv[1] in ours:
        ours[sys.argv[1]](*sys.argv[2:])
    else:
        run(*sys.argv[1:])
