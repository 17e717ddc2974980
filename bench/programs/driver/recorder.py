"""isotherm's command line: recording a program, and reading the reports."""

import json
import resource
import subprocess
import time
from dataclasses import dataclass, field

from .processes import Failed, start


@dataclass
class Found:
    """What isotherm found. Bytes, and shares in per cent."""

    # Median of the snapshots: summed over the processes, and with each page counted once if the report has that.
    touched: int
    once: int | None
    # The bounds of this figure at the end of the recording. They are equal where it is exact.
    bounds: tuple | None
    # The seconds from the start of the recording to the first figure that is not marked as warm-up.
    first: float | None
    unobservable: int
    # All bytes that a process has in memory, as `VmRSS` counts them: also those that are mapped again or freed lazily.
    rows: int
    # CPU time in per cent of one CPU: of the monitor's thread as isotherm reports it, and of the whole process.
    monitor_cpu: float | None
    process_cpu: float
    # CPU time of isotherm over each 10 s, in per cent of one CPU: `mean`, `p99` and `max`. `None` if it ran for less.
    cpu_10s: dict | None
    # Bytes of a minute of recording.
    recorded: float
    notes: list = field(default_factory=list)


def spawn(isotherm, root, output, seconds, options=()):
    """Starts `isotherm record` on a process and its descendants."""
    output.unlink(missing_ok=True)
    words = [isotherm, "record", "--quiet", "--duration", f"{seconds}s", "--pid", root, "--children", "-o", output]
    return start([*words, *options], stderr=subprocess.PIPE, text=True)


def record(isotherm, root, output, seconds, options=()):
    """Records, and returns the CPU seconds and the wall seconds that it took."""
    began = time.monotonic()
    return wait(spawn(isotherm, root, output, seconds, options), seconds, began)


def wait(process, seconds, began):
    """Waits for the end of a recording that has `began`. Returns the CPU seconds and the wall seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        _, said = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise Failed(f"isotherm record did not end within {seconds + 60} s") from error
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    if process.returncode != 0:
        raise Failed(f"isotherm record: status {process.returncode}: {said.strip()}")
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime), wall


def report(isotherm, kind, recording, options=()):
    """A report as JSON, or `None` if isotherm refuses the options."""
    words = [str(isotherm), "report", kind, str(recording), "--format", "json", *options]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode == 2 and options:
        return None
    if ran.returncode != 0:
        raise Failed(f"isotherm report {kind}: {ran.stderr.strip()}")
    return json.loads(ran.stdout)


def read(isotherm, recording, window, cpu, wall):
    """What isotherm found, from the reports of a recording."""
    notes = []
    wss = report(isotherm, "wss", recording, ["--window", window])
    if wss is None:
        notes.append("no --window")
        wss = report(isotherm, "wss", recording)
    at = {}
    # The first surveys know of less time than the window.
    warm_up = {entry["time_ns"] for entry in wss.get("total_over_time", ()) if entry.get("warm_up")}
    all_warm_up = len(warm_up) == len(wss.get("total_over_time", ()))
    if all_warm_up:
        warm_up = set()
    for entry in wss["over_time"]:
        if entry["time_ns"] in warm_up:
            continue
        at[entry["time_ns"]] = at.get(entry["time_ns"], 0) + (entry["bytes"] or 0)
    once = bounds = first = None
    settled = [entry for entry in wss.get("total_over_time", ()) if entry["time_ns"] not in warm_up]
    if settled:
        once = nearest_rank(entry["bytes"] or 0 for entry in settled)
    if settled and not all_warm_up:
        last = settled[-1]
        bounds = (last.get("low_bytes") or last["bytes"], last.get("high_bytes") or last["bytes"])
        first = settled[0]["time_ns"] / 1e9
    overhead = report(isotherm, "overhead", recording)
    total = report(isotherm, "summary", recording)["total"]
    unobservable = total.get("unobservable_bytes") or 0
    kinds = total.get("kinds") or {}
    rows = sum(total.get(key) or 0 for key in ("resident_bytes", "mapped_again_bytes"))
    rows += kinds.get("lazily_freed_bytes") or 0
    minutes = overhead["wall_ns"] / 60e9
    size = recording.stat().st_size / minutes if minutes else 0
    return Found(
        nearest_rank(at.values()), once, bounds, first, unobservable, rows, overhead.get("cpu_percent"),
        100 * cpu / wall, overhead.get("cpu_percent_10s"), size, notes,
    )  # fmt: skip


def nearest_rank(values, share=0.5):
    """A percentile as isotherm defines it: the smallest value that is not exceeded by that share of the values."""
    values = sorted(values)
    if not values:
        raise Failed("the recording has no snapshots")
    return values[max(0, -int(-len(values) * share // 1) - 1)]
