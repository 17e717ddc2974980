"""What may take memory from cgroups while programs run: isotherm, senpai, DAMON_RECLAIM, a limit, or nothing.

Each is made with the cgroups, `haste` and the options, and runs from `begin` to `end`. All times that it goes by are
divided by `haste`, so that a short measurement shows what a longer one would.
"""

import contextlib
import re
import signal
import sys
from pathlib import Path

from . import senpai
from .processes import Failed, cpu_seconds, end, start

# For how long memory has to be idle before isotherm (schemes/reclaim.yaml) and DAMON_RECLAIM (its default) take it.
AGE = 120.0
# An emulated processor is ten times slower and more: all bounds of isotherm's cost are ten times their defaults.
EMULATED = ("--cpu-budget", "10%", "--target-budget", "5%", "--shared-hold", "100ms", "--probe", "bpf")


class Nothing:
    """nothing is done: what the others are compared with"""

    def __init__(self, cgroups, haste, options):
        self.cgroups, self.haste, self.options = cgroups, haste, options
        self.processes = []
        self.said = ""

    def begin(self, place):
        """Starts to steer."""

    def cpu(self):
        """The CPU time so far, in seconds."""
        return cpu_seconds([process.pid for process in self.processes])

    def check(self):
        """Fails if it has ended."""
        for process in self.processes:
            if process.poll() is not None:
                raise Failed(f"{type(self).__name__} ended with status {process.returncode}: {self.words()}")

    def end(self):
        """Ends. What it has said is in `said`."""
        for process in self.processes:
            end(process, signal.SIGINT, patience=60)
        self.said = self.words()

    def words(self):
        """What it has said so far."""
        return ""


class Saying(Nothing):
    """Processes that say something."""

    def run(self, place, commands):
        self.output = place / "steering"
        with open(self.output, "ab") as file:
            self.processes = [start(words, stdout=file, stderr=file) for words in commands]

    def words(self):
        return self.output.read_text(encoding="utf-8", errors="replace")


class Isotherm(Saying):
    """isotherm run with schemes/reclaim.yaml"""

    def begin(self, place):
        scheme = Path(self.options["scheme"])
        if self.haste != 1:
            text, count = re.subn(r"\bmin: 2m\b", f"min: {AGE / self.haste:g}s", scheme.read_text(encoding="utf-8"))
            if count != 1:
                raise Failed(f"{scheme}: the age is not 2m")
            scheme = place / "scheme.yaml"
            scheme.write_text(text, encoding="utf-8")
        words = [self.options["isotherm"], "run", "--schemes", scheme, *EMULATED, *self.options["more"]]
        for cgroup in self.cgroups:
            words += ["--cgroup", cgroup.path]
        self.run(place, [words])


class Senpai(Saying):
    """a senpai of our own, after the paper: 1 % each 6 s by memory.reclaim, unless some tasks wait for 0.1 % of it"""

    def begin(self, place):
        period = senpai.PERIOD / self.haste
        self.run(place, [[sys.executable, senpai.__file__, period, *(cgroup.path for cgroup in self.cgroups)]])


class SenpaiAsPublished(Saying):
    """the senpai.py that was published, with its defaults but for the least size: 1 % each 6 s by memory.high"""

    def begin(self, place):
        # It looks once a second. Its pressure is that within an interval: 10 ms in 6 s.
        interval = max(1, round(6 / self.haste))
        words = ["--min-size", 1 << 20, "--interval", interval, "--pressure", round(10_000 * interval / 6)]
        self.run(place, [[sys.executable, self.options["senpai"], cgroup.place, *words] for cgroup in self.cgroups])


class DamonReclaim(Nothing):
    """the kernel's DAMON_RECLAIM, with its defaults but for the watermarks: it is always awake"""

    parameters = Path("/sys/module/damon_reclaim/parameters")

    def begin(self, place):
        if not self.parameters.is_dir():
            raise Failed(f"{self.parameters} is missing: this kernel has no DAMON_RECLAIM")
        self.write("min_age", round(AGE / self.haste * 1e6))
        for mark, value in (("high", 1000), ("mid", 1000), ("low", 0)):
            self.write(f"wmarks_{mark}", value)
        self.write("enabled", "Y")

    def write(self, name, value):
        """Sets a parameter."""
        (self.parameters / name).write_text(str(value), encoding="ascii")

    def read(self, name):
        """A parameter."""
        return (self.parameters / name).read_text(encoding="ascii").strip()

    def cpu(self):
        kdamond = int(self.read("kdamond_pid"))
        return cpu_seconds([kdamond]) if kdamond > 0 else 0.0

    def words(self):
        names = sorted(file.name for file in self.parameters.iterdir())
        return "".join(f"{name}: {self.read(name)}\n" for name in names)

    def end(self):
        self.said = self.words()
        self.write("enabled", "N")


class High(Nothing):
    """memory.high at 70 % of what the cgroup has at the start"""

    share = 0.7

    def begin(self, place):
        for cgroup in self.cgroups:
            cgroup.write("memory.high", int(cgroup.current * self.share))

    def end(self):
        for cgroup in self.cgroups:
            cgroup.write("memory.high", "max")


CONFIGURATIONS = {
    "nothing": Nothing,
    "isotherm": Isotherm,
    "senpai": Senpai,
    "senpai.py": SenpaiAsPublished,
    "damon-reclaim": DamonReclaim,
    "high": High,
}


@contextlib.contextmanager
def steered(name, cgroups, haste, options, place):
    """A configuration in force as long as this is entered."""
    steering = CONFIGURATIONS[name](cgroups, haste, options)
    try:
        steering.begin(place)
        yield steering
    finally:
        steering.end()
