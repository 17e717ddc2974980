"""What schemes/prcl.yaml does to programs: bytes it claims to have freed, bytes that were freed, major faults.

This needs swap, so it runs in the laboratory (lab/README.md); `inside` is what runs there.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import install, laboratory, recorder, truth
from .catalogue import TARGETS
from .processes import Failed, cpu_seconds, family, major_faults
from .table import mib, number, table

PROGRAMS = ("redis", "jvm", "node")
# An emulated processor is ten times slower and more.
INTERVALS = ("--sample", "25ms", "--aggr", "500ms", "--cpu-budget", "10%")


def measure(options):
    """Boots the laboratory, and measures those of `options.only` there."""
    if not options.only:
        return {}
    results = install.CACHE / "lab"
    shutil.rmtree(results, ignore_errors=True)
    files = [f"{options.isotherm}:/bin/isotherm", f"{laboratory.ROOT / 'schemes/prcl.yaml'}:/root/prcl.yaml"]
    files += laboratory.needed(options.only)
    arguments = [",".join(options.only), options.scheme_seconds, options.scheme_probe]
    machine = ["--memory", "5G", "--results", results]
    status = laboratory.boot(machine, files, "schemes.inside", arguments, options.lab_timeout)
    output = results / "schemes.json"
    if not output.exists():
        return {name: {"failed": f"lab/boot: status {status}"} for name in options.only}
    return json.loads(output.read_text(encoding="utf-8"))


def inside():
    """Runs in the laboratory: arguments are the programs, the seconds that the scheme acts on each, and the probe."""
    if not install.LABORATORY:
        raise Failed("this changes the machine's swap: it runs in the laboratory only")
    names, seconds, probe = sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3]
    Path("/sys/block/zram0/disksize").write_text("3G", encoding="ascii")
    for program in ("mkswap", "swapon"):
        install.run([program, "/dev/zram0"])
    results = {}
    for name in names:
        print(f"bench/programs: {name} in the laboratory", flush=True)
        try:
            results[name] = act_on(name, seconds, probe)
        except Failed as failure:
            results[name] = {"failed": str(failure)}
        print(f"  {results[name]}", flush=True)
        Path("/results/schemes.json").write_text(json.dumps(results), encoding="utf-8")


def act_on(name, seconds, probe):
    """Starts a program, and lets the scheme act on it, with this probe."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        target = TARGETS[name](Path(place))
        try:
            target.begin()
            working_set = truth.measure(target.root, 5).touched
            recording = Path(place) / "prcl.rec"
            words = ["isotherm", "run", "--quiet", "--pid", target.root, "--children", "--duration", f"{seconds}s"]
            words += ["--schemes", "/root/prcl.yaml", "--record", recording, "--probe", probe, *INTERVALS]
            before, began, faults, work = state(target.root), time.monotonic(), *busy(target.root)
            install.run(words)
            after, wall = state(target.root), time.monotonic() - began
            faults, work = (now - then for now, then in zip(busy(target.root), (faults, work)))
            [scheme] = recorder.report("isotherm", "schemes", recording)["schemes"]
        finally:
            target.finish()
    swapped_out = 4096 * (after["pswpout"] - before["pswpout"])
    return {
        "working_set": working_set,
        "resident_before": before["resident"],
        "resident_after": after["resident"],
        # Newer reports tell what was advised from what was freed.
        "claimed": scheme.get("freed_bytes", scheme["applied_bytes"]),
        # Of files no more is known than how much less of them is resident.
        "freed": swapped_out + max(0, before["files"] - after["files"]),
        "swapped_in": 4096 * (after["pswpin"] - before["pswpin"]),
        "major_faults": faults,
        "load_cpu_percent": 100 * work / wall,
    }


def busy(root):
    """Major faults and CPU seconds of a program so far."""
    return major_faults(family(root)), cpu_seconds(family(root))


def state(root):
    """Pages swapped out and in by the machine, which does nothing else, and what is resident of the program."""
    with open("/proc/vmstat", encoding="ascii") as file:
        numbers = {name: int(value) for name, value in map(str.split, file)}
    found = {name: numbers[name] for name in ("pswpin", "pswpout")}
    found["resident"] = truth.resident(root)
    found["files"] = 0
    for pid in family(root):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        found["files"] += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssFile"))
    return found


def show(results):
    """The table. Sizes in MiB."""
    header = ["program", "working set", "RSS before", "after", "claimed", "freed", "claimed / freed", "swapped in",
              "major faults"]  # fmt: skip
    rows = [
        [name, *(mib(result[key]) for key in ("working_set", "resident_before", "resident_after", "claimed", "freed")),
         number(result["claimed"] / result["freed"] if result["freed"] else None), mib(result["swapped_in"]),
         result["major_faults"]]
        for name, result in results.items() if "failed" not in result
    ]  # fmt: skip
    text = table(header, rows) if rows else ""
    for name, result in results.items():
        if "failed" in result:
            text += f"\n{name} failed: {result['failed']}"
    return text

