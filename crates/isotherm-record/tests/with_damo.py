"""damo's own code, for the tests of moving to and from it.

`with_damo.py read FILE` prints what damo's reader finds in FILE, as JSON.
`with_damo.py write SCRIPT FORMAT FILE` lets damo make FILE, in its format FORMAT, of the text of a trace, SCRIPT.
`with_damo.py report REPORT... FILE` prints what damo reports.
`with_damo.py fixtures DIRECTORY` makes the files that are kept beside the tests, with the damo that is there.

Nothing here needs a kernel with DAMON, or looks at one. Exits with 77 where damo is missing.
"""

import importlib.util
import json
import os
import subprocess
import sys

# Not what lies beside this file.
sys.path.pop(0)
found = importlib.util.find_spec("damo")
if found is None:
    sys.exit(77)
package = os.path.dirname(found.origin)
sys.path.insert(0, package)


def read(path):
    import _damo_records

    records, error = _damo_records.get_records(record_file=path)
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


def write(script, file_format, path):
    import _damo_records
    import _damon

    intervals = _damon.DamonIntervals("5ms", "100ms", "1s")
    with open(script) as f:
        records, error = _damo_records.parse_damon_trace(f.read(), "perf-script", intervals)
    error = error or _damo_records.write_damon_records(records, path, file_format)
    if error:
        sys.exit(f"damo: {error}")


def report(*arguments):
    command = [sys.executable, os.path.join(package, "damo.py"), "report", *arguments]
    sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL).returncode)


if __name__ == "__main__":
    {"read": read, "write": write, "report": report}[sys.argv[1]](*sys.argv[2:])
