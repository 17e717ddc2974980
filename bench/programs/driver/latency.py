"""What recording costs the program that is recorded: latency or run time, with and without it in turn."""

import math
import random
import signal
import statistics
import subprocess
import tempfile
from pathlib import Path

from . import install, recorder
from .processes import Failed, cpu_seconds, family, start, wait_for
from .servers import HOT, KEYS, Postgres, Redis
from .table import number, table


# An interval of fewer pairs than this says nothing.
LEAST_PAIRS = 5


class Recording:
    """`isotherm record` on a process, as long as this is entered."""

    def __init__(self, options, root):
        self.options, self.root, self.process = options, root, None

    def __enter__(self):
        output = self.options.directory / "latency.rec"
        output.unlink(missing_ok=True)
        self.process = recorder.spawn(self.options.isotherm, self.root, output, 3600, self.options.record_options)
        begun = lambda: output.exists() and output.stat().st_size > 0  # noqa: E731
        wait_for("isotherm record", begun, seconds=30, process=self.process)

    def __exit__(self, kind, *_):
        early = self.process.poll() is not None
        if not early:
            self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        if early and kind is None:
            raise Failed(f"isotherm record ended early: {said.strip()}")


class Nothing:
    """No recording."""

    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def redis(options, pairs):
    """latency of redis: GETs of 40,000 of 300,000 keys, one request in flight, in microseconds"""

    def client(target):
        words = [install.compiled("redis_client.c"), target.socket, KEYS, HOT, 0, options.seconds]
        return dict(zip(("requests", "mean", "p50", "p99", "p99.9"), map(float, install.run(words).split()[-5:])))

    served(Redis, client, options, pairs)


def postgres(options, pairs):
    """latency of PostgreSQL: pgbench -S, scale 10, 3 clients, in microseconds"""

    def client(target):
        logs = target.place / "log"
        logs.mkdir(mode=0o777, exist_ok=True)
        logs.chmod(0o777)
        words = [target.program("pgbench"), *target.client, "-S", "-n", "-c", 3, "-j", 1, "-T", options.seconds]
        install.run([*words, "-l", f"--log-prefix={logs}/log"], user=target.user, cwd=target.place)
        taken = []
        for log in logs.iterdir():
            with open(log, encoding="ascii") as lines:
                taken += [int(line.split()[2]) for line in lines]
            log.unlink()
        at = lambda share: float(recorder.nearest_rank(taken, share))  # noqa: E731
        return {
            "requests": float(len(taken)), "mean": statistics.mean(taken),
            "p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999),
        }  # fmt: skip

    served(Postgres, client, options, pairs)


def served(kind, client, options, pairs):
    """Measures a server's latency with and without recording in turn, each `options.seconds` long.

    Adds the CPU time that the server takes for a request, in microseconds: unlike the time that the client waits, it
    does not contain waits for a processor.
    """
    with tempfile.TemporaryDirectory(prefix="isotherm-latency-", ignore_cleanup_errors=True) as place:
        target = kind(Path(place))
        try:
            target.serve()
            client(target)  # Until it is warm.

            def measured(recorded):
                with Recording(options, target.root) if recorded else Nothing():
                    before = cpu_seconds(family(target.root))
                    figures = client(target)
                    taken = cpu_seconds(family(target.root)) - before
                return {**figures, "CPU": 1e6 * taken / figures["requests"]}

            in_turn(measured, options, pairs)
        finally:
            target.finish()


def in_turn(measured, options, pairs):
    """Measures with and without recording in turn: `options.runs` pairs, or more until they tell 1 % apart."""
    for number_of_pair in range(max(options.runs, options.most_runs)):
        if number_of_pair >= options.runs and is_told(pairs):
            break
        pair = {}
        for recorded in (False, True) if number_of_pair % 2 == 0 else (True, False):
            pair["with" if recorded else "without"] = measured(recorded)
        pairs.append(pair)
        print("  " + said(pair), flush=True)


def fft(options, pairs):
    """run time and CPU time in user mode of a program that streams through 3 GiB, in seconds"""
    program = [str(install.compiled("fft.c")), "3072", "2"]
    recording = options.directory / "fft.rec"
    prefix = [options.isotherm, "record", "--quiet", "-o", recording, *options.record_options, "--"]

    def measured(recorded):
        recording.unlink(missing_ok=True)
        process = start([*prefix, *program] if recorded else program, stdout=subprocess.PIPE, text=True)
        output, _ = process.communicate(timeout=600)
        if process.returncode != 0:
            raise Failed(f"fft: status {process.returncode}")
        return dict(zip(("seconds", "user"), map(float, output.split()[:2])))

    in_turn(measured, options, pairs)


MEASURES = {"redis": redis, "postgres": postgres, "fft": fft}


def said(pair):
    """A pair in one line."""
    words = [f"{name} {value:.5g} -> {pair['with'][name]:.5g}" for name, value in pair["without"].items()]
    return ", ".join(words)


def measure(options):
    """Measures those of `options.only`."""
    results = {}
    for name in options.only:
        print(f"bench/programs: latency of {name}", flush=True)
        results[name] = {"pairs": []}
        try:
            MEASURES[name](options, results[name]["pairs"])
        except Failed as failure:
            results[name]["failed"] = str(failure)
            print(f"bench/programs: {name}: {failure}", flush=True)
    return results


def changes(pairs, figure):
    """The change of a figure with recording, as the logarithm of the ratio, in each pair."""
    return [math.log(pair["with"][figure] / pair["without"][figure]) for pair in pairs]


def interval(logs):
    """The 95 % confidence interval of the mean change in per cent, by resampling of the pairs."""
    if len(logs) < LEAST_PAIRS:
        return None
    generator = random.Random(1)
    means = sorted(statistics.mean(generator.choices(logs, k=len(logs))) for _ in range(4000))
    return per_cent(means[100]), per_cent(means[3899])


def per_cent(log):
    """A change in per cent, of the logarithm of the ratio."""
    return 100 * math.expm1(log)


def pairs_needed(logs):
    """How many pairs tell 1 % apart with 95 % confidence, by the deviation of these."""
    return math.ceil((1.96 * statistics.stdev(logs) / math.log(1.01)) ** 2)


def speed(pairs):
    """The name of the figure that is the speed of the program: the first."""
    return next(iter(pairs[0]["without"]))


def is_told(pairs):
    """Whether the pairs tell 1 % of the speed apart."""
    if len(pairs) < LEAST_PAIRS:
        return False
    logs = changes(pairs, speed(pairs))
    return pairs_needed(logs) <= len(pairs)


def show(results):
    """The table: medians of the pairs, and the change from without to with recording."""
    rows, notes = [], []
    for name, result in results.items():
        pairs = result["pairs"]
        for figure in pairs[0]["without"] if pairs else ():
            logs = changes(pairs, figure)
            middle = lambda kind: statistics.median(pair[kind][figure] for pair in pairs)  # noqa: E731, B023
            within = interval(logs)
            rows.append([
                f"{name}, {figure}", number(middle("without"), 1), number(middle("with"), 1), len(pairs),
                f"{per_cent(statistics.mean(logs)):+.1f}",
                f"{within[0]:+.1f} to {within[1]:+.1f}" if within else "-",
                pairs_needed(logs) if within else "-",
            ])  # fmt: skip
        if pairs and not is_told(pairs):
            notes.append(f"{name}: {len(pairs)} pairs do not tell 1 % of {speed(pairs)} apart")
        if "failed" in result:
            notes.append(f"{name} failed: {result['failed']}")
    header = ["figure", "without", "with", "pairs", "change %", "95 % interval", "pairs for 1 %"]
    return "\n".join([table(header, rows) if rows else "", *notes])
