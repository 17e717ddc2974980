"""The working set that isotherm finds, compared with the truth."""

import statistics
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

from . import recorder, truth
from .processes import Failed, cpu_seconds, family
from .table import mib, number, table

HEADER = [
    "program", "RSS", "rows", "found", "truth before", "after", "ratio", "worst", "unobs. %", "CPU %",
    "10 s p99", "10 s most", "process %", "first, s", "held", "notes",
]  # fmt: skip


class Keeping(threading.Thread):
    """Calls `Target.during` until it is left."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target, self.over = target, threading.Event()

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        while not self.over.wait(0.1):
            self.target.during()


# How many windows in a row have to agree within which share, and how many there may be.
STEADY, STEADY_WITHIN, MOST_WINDOWS = 4, 0.02, 16

# The rows of a report add up to the resident memory within this share.
ROWS_WITHIN = 0.01


def steady(root, window):
    """Measures until several windows in a row agree. Returns the median of these, or of the last ones, and notes."""
    measured = []
    for _ in range(MOST_WINDOWS):
        measured.append(truth.measure(root, window))
        if len(measured) >= STEADY and agree(measured[-STEADY:], STEADY_WITHIN):
            return middle(measured[-STEADY:]), []
    return middle(measured[-STEADY:]), ["not steady"]


def middle(measured):
    """The median of some windows: now and then, a process such as a checkpointer touches much in one of them."""
    return sorted(measured, key=lambda each: each.touched)[(len(measured) - 1) // 2]


def agree(truths, share):
    """Whether truths differ by no more than this share, or 64 KiB."""
    touched = [each.touched for each in truths]
    return max(touched) <= (1 + share) * min(touched) + 65536


def ratio(found, low, high):
    """What was found as a share of the truth, which lies between two bounds: 1 between them."""
    if not high:
        return None
    return found / low if found < low else found / high if found > high else 1.0


def holds(bounds, truth):
    """Whether the bounds that isotherm gives have a part in common with those of the truth, to within 1 %."""
    return bounds[0] <= 1.01 * truth[1] and bounds[1] >= 0.99 * truth[0]


def one_run(name, options, number_of_run):
    """Starts the program, measures, records, measures again. Or records from its start, and measures afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"isotherm-{name}-", ignore_cleanup_errors=True) as place:
        target = options.targets[name](Path(place))
        recording = options.directory / f"{name}-{number_of_run}.rec"
        how = (recording, options.seconds, options.record_options)
        spawned = []
        if options.from_start:
            spawn = lambda pid: (recorder.spawn(options.isotherm, pid, *how), time.monotonic())  # noqa: E731
            target.at_start = lambda pid: spawned.append(spawn(pid))
        try:
            target.begin()
            with Keeping(target):
                measures_before = options.truth == "both" and not options.from_start
                before, notes = steady(target.root, options.window) if measures_before else (None, [])
                load_cpu = cpu_seconds(family(target.root))
                if spawned:
                    process, began = spawned[0]
                    notes.append(f"load ready after {time.monotonic() - began:.1f} s")
                    cpu, wall = recorder.wait(process, options.seconds, began)
                else:
                    cpu, wall = recorder.record(options.isotherm, target.root, *how)
                load_cpu = cpu_seconds(family(target.root)) - load_cpu
                windows = [truth.measure(target.root, options.window) for _ in range(3)]
                after = middle(windows)
            found = recorder.read(options.isotherm, recording, f"{options.window:g}s", cpu, wall)
        finally:
            target.finish()
    measured = [each for each in (before, after) if each]
    once = [
        min(each.once_at_least - each.doubtful for each in [*measured, *windows]),
        max(each.once_at_most for each in [*measured, *windows]),
    ]
    low = statistics.mean(each.touched - each.doubtful for each in measured)
    high = statistics.mean(each.touched for each in measured)
    if before and not agree([before, after], 0.05):
        notes.append("truth moved")
    if low < 0.98 * high:
        notes.append(f"truth at least {mib(low)}, marked shared pages apart")
    rows_ratio = found.rows / after.resident
    if abs(rows_ratio - 1) > ROWS_WITHIN:
        notes.append(f"rows add up to {mib(found.rows)}, resident are {mib(after.resident)}")
    if load_cpu < 0.001 * wall and name != "idle":
        notes.append("load did nothing")
    if found.once is not None:
        bounds = (
            min(each.once_at_least - each.doubtful for each in measured), max(each.once_at_most for each in measured)
        )
        if not 0.95 * bounds[0] <= found.once <= 1.05 * bounds[1]:
            notes.append(f"each page once {mib(found.once)}, not {mib(bounds[0])} to {mib(bounds[1])}")
    return {
        "found": asdict(found),
        "before": asdict(before) if before else None,
        "after": asdict(after),
        "once": once,
        "held": holds(found.bounds, once) if found.bounds else None,
        "ratio": ratio(found.touched, low, high),
        "rows_ratio": rows_ratio,
        "unobservable_percent": 100 * found.unobservable / after.resident,
        "load_cpu_percent": 100 * load_cpu / wall,
        "notes": notes + found.notes,
    }


def median(runs, key):
    """The median of a figure of the runs, or `None`."""
    values = [value for value in map(key, runs) if value is not None]
    return statistics.median(values) if values else None


def most(runs, key):
    """The largest of a figure of the runs, or `None`."""
    return max((value for value in map(key, runs) if value is not None), default=None)


def row(name, runs):
    """A line of the table: medians, and the ratio that is farthest from 1."""
    ratios = [run["ratio"] for run in runs if run["ratio"] is not None]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1), default=None)
    notes = list(dict.fromkeys(note for run in runs for note in run["notes"]))
    return [
        name,
        mib(median(runs, lambda run: run["after"]["resident"])),
        number(median(runs, lambda run: run["rows_ratio"]), 3),
        mib(median(runs, lambda run: run["found"]["touched"])),
        mib(median(runs, lambda run: run["before"] and run["before"]["touched"])),
        mib(median(runs, lambda run: run["after"]["touched"])),
        number(median(runs, lambda run: run["ratio"])),
        number(worst),
        number(median(runs, lambda run: run["unobservable_percent"]), 1),
        number(median(runs, lambda run: run["found"]["monitor_cpu"])),
        number(median(runs, lambda run: (run["found"]["cpu_10s"] or {}).get("p99"))),
        number(most(runs, lambda run: (run["found"]["cpu_10s"] or {}).get("max"))),
        number(median(runs, lambda run: run["found"]["process_cpu"])),
        number(median(runs, lambda run: run["found"]["first"]), 1),
        f"{sum(run['held'] is True for run in runs)} of {len(runs)}",
        "; ".join(notes),
    ]


def measure(options):
    """Measures the programs of `options.only`, prints a line for each as it ends, and then the table."""
    results = {}
    for name in options.only:
        for number_of_run in range(options.runs):
            print(f"bench/programs: {name}, run {number_of_run + 1} of {options.runs}", flush=True)
            try:
                results.setdefault(name, {"runs": []})["runs"].append(one_run(name, options, number_of_run))
            except Failed as failure:
                results[name]["failed"] = str(failure)
                print(f"bench/programs: {name}: {failure}", flush=True)
                break
            print("  " + "  ".join(row(name, results[name]["runs"][-1:])), flush=True)
    return results


def show(results):
    """The table. Sizes in MiB."""
    rows = [row(name, result["runs"]) for name, result in results.items() if result["runs"]]
    text = table(HEADER, rows) if rows else ""
    for name, result in results.items():
        if "failed" in result:
            text += f"\n{name} failed: {result['failed']}"
    return text
