"""Measures isotherm on a program with much real memory, of which a share is accessed every 20 ms."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20


def arguments():
    parser = argparse.ArgumentParser(prog="bench/large --real", description=__doc__)
    add = parser.add_argument
    add("--real", action="store_true", help=argparse.SUPPRESS)
    add("--mib", type=lambda text: [int(size) for size in text.split(",")], default=[64, 1024, 2560, 5120, 8192],
        metavar="MIB", help="sizes of memory in MiB (default 64,1024,2560,5120,8192)")
    add("--share", type=float, default=0.1, help="the share that is accessed (default 0.1)")
    add("--seconds", type=int, default=30, help="length of a recording (default 30)")
    add("--how", choices=["both", "attach", "start"], default="both",
        help="attach to a program that runs, record it from its start, or both (default)")
    add("--isotherm", type=Path, default=HERE / "../../target/release/isotherm", metavar="PATH")
    add("--record-options", type=str.split, default=[], metavar="OPTIONS", help="more options of isotherm record")
    return parser.parse_args()


def lines(place, word):
    """The lines of the program's output that begin with a word, as numbers."""
    text = (place / "output").read_text(encoding="utf-8").split("\n")
    return [[float(number) for number in line.split()[1:]] for line in text[:-1] if line.startswith(word + " ")]


def usage(pid):
    """The CPU time that a process has taken, in seconds, and its resident memory in bytes."""
    ticks = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        ticks += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return ticks / 1e9, int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


def report(isotherm, kind, recording, *options):
    words = [isotherm, "report", kind, recording, "--format", "json", *options]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def measure(options, program, size, how, place):
    """One recording: the line of the table."""
    recording, output = place / "large.rec", open(place / "output", "w", encoding="utf-8")
    words = [str(options.isotherm), "record", "-q", "--duration", f"{options.seconds}s", "-o", str(recording)]
    words += options.record_options
    touch, target = [program, str(size), str(options.share)], None
    if how == "attach":
        target = subprocess.Popen(touch, stdout=output)
        while len(lines(place, "turn")) < 4:
            time.sleep(0.2)
        words += ["--pid", str(target.pid)]
    before = [turn[1] for turn in lines(place, "turn")]
    began, spent, most = time.monotonic(), [], 0
    isotherm = subprocess.Popen(words if target else [*words, "--", *touch], stdout=output, stderr=subprocess.PIPE)
    while isotherm.poll() is None:
        try:
            cpu, resident = usage(isotherm.pid)
        except (OSError, IndexError):
            break
        spent, most = [*spent, (time.monotonic() - began, cpu)], max(most, resident)
        time.sleep(0.05)
    said = isotherm.communicate()[1].decode()
    if target:
        target.kill()
        target.wait()
    if isotherm.returncode:
        sys.exit(f"bench/large: isotherm record: {said}")
    # Times of the recording count from its first survey on, shortly after isotherm has started.
    wss = report(options.isotherm, "wss", recording, "--window", "1s")
    figures = [each for each in wss["total_over_time"] if not each["warm_up"]]
    end = began + spent[-1][0]
    start = end - options.seconds
    filled = max(0.0, lines(place, "filled")[0][0] - start)
    truth = options.share * size * MIB
    # A second has to pass until the last second is one without filling.
    steady = [each for each in figures if each["time_ns"] / 1e9 >= (filled + 1 if filled else 0)]
    off = [each for each in steady if abs(each["bytes"] / truth - 1) > 0.1]
    right = [each for each in steady if not off or each["time_ns"] > off[-1]["time_ns"]]
    # The program itself and its libraries have up to 512 KiB in use.
    held = [each for each in steady
            if (each["low_bytes"] or each["bytes"]) <= 1.01 * truth + MIB // 2
            and (each["high_bytes"] or each["bytes"]) >= 0.99 * truth]  # fmt: skip
    exact = [each for each in figures if each["low_bytes"] is None]
    cpu_at = lambda second: max((cpu for at, cpu in spent if at <= second), default=0)  # noqa: E731
    lead = spent[-1][0] - options.seconds
    later = (cpu_at(1e9) - cpu_at(3 + lead)) / max(0.1, options.seconds - 3)
    clears = sum(each["cost"]["clears"] for each in snapshots(options.isotherm, recording, place))
    during = [turn[1] for turn in lines(place, "turn") if turn[0] > start + 3]
    lost = (statistics.median(during) - statistics.median(before)) / 0.02 if before and during else None
    number = lambda value, digits=1: "-" if value is None else f"{value:.{digits}f}"  # noqa: E731
    seconds = lambda found: number(found[0]["time_ns"] / 1e9 - filled if found else None, 2)  # noqa: E731
    error = statistics.median(each["bytes"] / truth - 1 for each in right) if right else None
    return [
        f"{size}", how, number(filled), seconds(right), number(exact[0]["time_ns"] / 1e9 if exact else None),
        number(100 * error if error is not None else None), f"{len(held)} of {len(steady)}",
        number(1e3 * (cpu_at(3 + lead) - cpu_at(lead)), 0), number(100 * later, 2), f"{clears}",
        number(100 * lost if lost is not None else None, 2), f"{most / MIB:.0f}", f"{100 * most / MIB / size:.2f}",
    ]  # fmt: skip


def snapshots(isotherm, recording, place):
    """The snapshots of a recording."""
    made = place / "large.json"
    subprocess.run([isotherm, "convert", "-q", recording, made], check=True)
    found = json.loads(made.read_text(encoding="utf-8"))["snapshots"]
    made.unlink()
    return found


HEADER = [
    "MiB", "how", "filled, s", "±10 %, s", "exact, s", "error %", "held", "first 3 s, ms", "CPU %", "clears", "lost %",
    "isotherm, MiB", "% of target",
]  # fmt: skip


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    print("| " + " | ".join(HEADER) + " |\n|" + "--:|" * len(HEADER), flush=True)
    with tempfile.TemporaryDirectory(prefix="isotherm-large-") as place:
        program = f"{place}/touch"
        subprocess.run(["cc", "-O2", "-o", program, HERE / "large_touch.c"], check=True)
        for size in options.mib:
            for how in ["attach", "start"] if options.how == "both" else [options.how]:
                print("| " + " | ".join(measure(options, program, size, how, Path(place))) + " |", flush=True)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("bench/large: without root, isotherm can only use the probe refs", file=sys.stderr)
    main()
