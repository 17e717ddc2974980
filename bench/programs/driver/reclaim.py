"""What each way to take memory from services saves, and what it costs them (bench/reclaim). `inside` runs in the
laboratory."""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from . import cgroups, install, truth
from .processes import Failed, cpu_seconds
from .recorder import nearest_rank
from .services import DISK, SERVICES
from .steering import AGE, CONFIGURATIONS, steered
from .table import MIB, number, table

SWAP = 2 << 30
ZRAM = Path("/sys/block/zram0")
# The last part of a run, in which what is saved counts.
LATE = 0.25
# Requests are made for longer than they are measured, so that there are some at its end.
BEYOND = 3


def inside():
    """Runs in the laboratory. The argument is JSON: see bench/reclaim. Prints a line of JSON for each run."""
    if not install.LABORATORY:
        raise Failed("this changes the machine's swap and cgroups: it runs in the laboratory only")
    options = json.loads(sys.argv[1])
    cgroups.require()
    (ZRAM / "disksize").write_text(str(SWAP), encoding="ascii")
    for words in (["mkswap", "/dev/zram0"], ["swapon", "/dev/zram0"], ["mkdir", DISK],
                  ["mount", "-t", "ext4", "/dev/vda", DISK]):  # fmt: skip
        install.run(words)
    # The least that any process may hold back from the kernel's huge pages: none are made here.
    Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text("never", encoding="ascii")
    working_sets, failed = {}, 0
    for nth in range(1, options["runs"] + 1):
        for name in options["programs"]:
            if name not in working_sets:
                # It is the first run, too, in which an emulator translates the code.
                working_sets[name] = tried(name, "the working set", lambda: working_set(name, options))  # noqa: B023
            for configuration in options["configurations"]:
                run = tried(name, configuration, lambda: measured(name, configuration, options))  # noqa: B023
                if run is None:
                    failed += 1
                    continue
                run |= {"program": name, "configuration": configuration, "nth": nth, "seconds": options["seconds"],
                        "haste": options["haste"], "working_set": working_sets[name]}  # fmt: skip
                print(json.dumps(run), flush=True)
                print(f"{time.monotonic():6.0f} s  {said(run)}", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


def tried(name, what, function):
    """The result of a function, or `None` if it fails, which is told."""
    try:
        return function()
    except (Failed, OSError) as failure:
        print(f"{name}, {what}: {failure}", file=sys.stderr, flush=True)
        return None


def ready():
    """Empties swap and the caches, so that all runs start alike."""
    install.run(["swapoff", "/dev/zram0"])
    install.run(["swapon", "/dev/zram0"])
    for name, text in (("drop_caches", "3"), ("compact_memory", "1")):
        Path("/proc/sys/vm", name).write_text(text, encoding="ascii")


class Running:
    """A service with its clients, in its cgroups, as long as this is entered."""

    def __init__(self, name, seconds):
        ready()
        self.directory = tempfile.TemporaryDirectory(prefix="bench-")
        os.chmod(self.directory.name, 0o755)
        self.service = SERVICES[name](Path(self.directory.name))
        self.seconds = seconds
        self.cgroups = {}

    def __enter__(self):
        try:
            for name in self.service.cgroups:
                self.cgroups[name] = cgroups.Cgroup(name)
            self.service.serve_in(self.cgroups)
            self.service.load(self.seconds)
        except Failed as failure:
            errors = self.service.place / "errors"
            said = errors.read_text(errors="replace").strip() if errors.exists() else ""
            self.__exit__()
            raise Failed(f"{failure}: {said[-1000:]}") from failure
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.service.finish()
        for cgroup in self.cgroups.values():
            cgroup.remove()
        self.directory.cleanup()


def working_set(name, options):
    """The bytes that a program accesses within the time for which memory has to be idle, by its accessed bits."""
    window = AGE / options["haste"]
    with Running(name, options["settle"] + window + BEYOND) as running:
        time.sleep(options["settle"])
        found = truth.measure(running.service.root, window)
        return found.once_at_least + running.service.hot_files


def measured(name, configuration, options):
    """The figures of a run."""
    seconds, settle = options["seconds"], options["settle"]
    with Running(name, settle + seconds + BEYOND) as running:
        time.sleep(settle)
        of = list(running.cgroups.values())
        limits = [cgroup.read("memory.high") for cgroup in of]
        samples = [sample(of)]
        began, before, since = time.monotonic(), counted(of), time.time()
        with steered(configuration, of, options["haste"], options, running.service.place) as steering:
            cpu = steering.cpu()
            while (now := time.monotonic()) - began < seconds:
                time.sleep(min(1.0, began + seconds - now))
                steering.check()
                samples.append(sample(of))
            cpu = steering.cpu() - cpu
            wall, after, until = time.monotonic() - began, counted(of), time.time()
        left = sum(cgroup.read("memory.high") != limit for cgroup, limit in zip(of, limits))
        # What a batch job has done is known at its end.
        jobs = running.service.jobs(since, until)
        latencies = sorted(running.service.latencies(since, until))
    if not latencies:
        raise Failed("no request was answered")
    late = samples[-max(1, int(len(samples) * LATE)):]
    mean = lambda key, of: statistics.mean(one[key] for one in of)  # noqa: E731
    share = lambda key: (after[key] - before[key]) / 1e6 / wall  # noqa: E731
    return {
        "memory": {key: {"before": samples[0][key], "mean": mean(key, samples), "late": mean(key, late)}
                   for key in samples[0]},
        "p50": nearest_rank(latencies), "p99": nearest_rank(latencies, 0.99), "longest": latencies[-1],
        "mean": statistics.mean(latencies), "rate": len(latencies) / wall, "unit": running.service.unit,
        "jobs": len(jobs), "job": statistics.mean(jobs) / 1e6 if jobs else None,
        "some": share("some"), "full": share("full"), "cpu": cpu / wall, "program_cpu": after["cpu"] - before["cpu"],
        "refaulted": after["refaulted"] - before["refaulted"], "minutes": wall / 60,
        "oom_kills": after["oom_kill"] - before["oom_kill"], "limits_left": left, "said": steering.said[-4000:],
    }  # fmt: skip


def sample(of):
    """What the memory is now, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        machine = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
    return {
        "current": sum(cgroup.current for cgroup in of),
        "rss": sum(resident(pid) for cgroup in of for pid in cgroup.pids),
        "available": machine["MemAvailable"],
        "zram": int((ZRAM / "mm_stat").read_text(encoding="ascii").split()[2]),
        "swap": machine["SwapTotal"] - machine["SwapFree"],
    }


def resident(pid):
    """The resident bytes of a process. None of one that has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def counted(of):
    """What is counted in cgroups, all together."""
    stalls = [cgroup.stalled() for cgroup in of]
    return {
        "some": sum(some for some, _ in stalls),
        "full": sum(full for _, full in stalls),
        "refaulted": sum(cgroup.refaulted() for cgroup in of),
        "oom_kill": sum(cgroup.table("memory.events")["oom_kill"] for cgroup in of),
        "cpu": cpu_seconds([pid for cgroup in of for pid in cgroup.pids]),
    }


def said(run):
    """A run in one line."""
    memory = run["memory"]
    return (
        f"{run['program']}, {run['configuration']}: {memory['current']['late'] / MIB:.1f} MiB of "
        f"{memory['current']['before'] / MIB:.1f}, zram {memory['zram']['late'] / MIB:.1f}, p99 {run['p99']:.0f} us, "
        f"some {100 * run['some']:.3f} %, refaulted {run['refaulted'] / MIB:.2f} MiB"
    )


def against(runs):
    """Adds to each run what it is beside the run with nothing in the same turn. Runs without one are left out."""
    nothing = {(run["program"], run["nth"]): run for run in runs if run["configuration"] == "nothing"}
    found = []
    for run in runs:
        base = nothing.get((run["program"], run["nth"]))
        if base is None:
            continue
        late = lambda of, key: of["memory"][key]["late"]  # noqa: E731
        less = lambda key: late(base, key) - late(run, key)  # noqa: E731, B023
        whole = late(base, "current")
        found.append(run | {
            "saved": less("current"),
            "saved_net": less("current") + less("zram"),
            "saved_share": less("current") / whole,
            "saved_net_share": (less("current") + less("zram")) / whole,
            "saved_rss_share": less("rss") / late(base, "rss"),
            "saved_available": -less("available"),
            "slower": run["mean"] / base["mean"] - 1,
            "slower_p50": run["p50"] / base["p50"] - 1,
            "slower_p99": run["p99"] / base["p99"] - 1,
            "fewer": 1 - run["rate"] / base["rate"],
            "jobs_longer": run["job"] / base["job"] - 1 if run["job"] and base["job"] else None,
            "returns": run["refaulted"] / run["working_set"] / run["minutes"] if run["working_set"] else None,
        })  # fmt: skip
    return found


# The figures of the first table and of the second one: the title, the key, the factor and the digits.
MEMORY = [
    ("memory, MiB", lambda run: run["memory"]["current"]["late"], 1 / MIB, 1),
    ("less, %", "saved_share", 100, 1),
    ("net of zram, MiB", "saved_net", 1 / MIB, 1),
    ("net, %", "saved_net_share", 100, 1),
    ("RSS less, %", "saved_rss_share", 100, 1),
    ("MemAvailable, MiB", "saved_available", 1 / MIB, 1),
    ("returns, %/min", "returns", 100, 2),
]
COST = [
    ("some, %", "some", 100, 3),
    ("full, %", "full", 100, 3),
    ("p50, ms", "p50", 1e-3, 3),
    ("change, %", "slower_p50", 100, 1),
    ("p99, ms", "p99", 1e-3, 2),
    ("change, %", "slower_p99", 100, 1),
    ("a second", "rate", 1, 1),
    ("fewer, %", "fewer", 100, 1),
    ("jobs longer, %", "jobs_longer", 100, 1),
    ("its CPU, %", "cpu", 100, 2),
]


def show(runs):
    """The tables: medians, and the range of what has more than one run."""
    lines = {}
    for run in against(runs):
        lines.setdefault((run["program"], run["configuration"]), []).append(run)
    order = list(SERVICES), list(CONFIGURATIONS)
    keys = sorted(lines, key=lambda key: tuple(of.index(name) for of, name in zip(order, key)))
    text = []
    for figures, more in ((MEMORY, ["OOM kills", "limits left"]), (COST, [])):
        rows = []
        for key in keys:
            of = lines[key]
            row = [*key, len(of), *(cell(of, *figure[1:]) for figure in figures)]
            rows.append(row + [sum(run[name] for run in of) for name in (["oom_kills", "limits_left"] if more else [])])
        text.append(table(["program", "configuration", "runs", *(figure[0] for figure in figures), *more], rows))
    return "\n\n".join([*text, *beside(lines)])


def cell(runs, key, factor, digits):
    """The median of a figure, and its range if there are several runs."""
    read = key if callable(key) else lambda run: run[key]
    values = [read(run) * factor for run in runs if read(run) is not None]
    if not values:
        return "-"
    middle = number(statistics.median(values), digits)
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def beside(lines):
    """What isotherm saves beside each senpai, in words."""
    found = []
    for (program, configuration), runs in lines.items():
        if not configuration.startswith("senpai") or (program, "isotherm") not in lines:
            continue
        net = lambda of: statistics.median(run["saved_net"] for run in of)  # noqa: E731
        ours, theirs = net(lines[program, "isotherm"]), net(runs)
        ratio = f"{ours / theirs:.2f} times as much" if theirs > 0 else "and that is more than nothing"
        found.append(f"{program}: isotherm saves {ours / MIB:.1f} MiB net, {configuration} {theirs / MIB:.1f}: {ratio}")
    return found
