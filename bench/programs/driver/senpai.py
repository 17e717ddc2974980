"""A small senpai: takes memory from cgroups in small steps as long as hardly any of their tasks wait for memory.

The method is that of Weiner et al., "TMO: Transparent Memory Offloading in Datacenters" (ASPLOS 2022, section 3.3). In
each period, a cgroup is asked (memory.reclaim) for

    memory.current * STEP * max(0, 1 - some / THRESHOLD)

bytes, where `some` is the share of the period in which a task has waited for memory (memory.pressure). It never knows
which memory is idle, and sets no limit that could be left behind. PERIOD and THRESHOLD are those of the paper. STEP is
1 %, the largest step of the senpai that was published as a program (its option --max-probe): by the paper's 0.05 %, an
hour would take a quarter of the memory, and five minutes next to nothing.

Arguments: the period in seconds, and the cgroups below /sys/fs/cgroup.
"""

import contextlib
import sys
import time
from pathlib import Path

PERIOD = 6.0
THRESHOLD = 0.001
STEP = 0.01


def amount(current, some, step=STEP, threshold=THRESHOLD):
    """The bytes to ask for after a period with this share of stalls."""
    return int(current * step * max(0.0, 1.0 - some / threshold))


def main(period, cgroups):
    """Steers until it is ended."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from driver.cgroups import ROOT, Cgroup  # noqa: PLC0415

    class Existing(Cgroup):
        def __init__(self, path):
            self.path, self.place = path, ROOT / path.strip("/")

    steered = [Existing(path) for path in cgroups]
    before = [cgroup.stalled()[0] for cgroup in steered]
    at = time.monotonic()
    while True:
        time.sleep(period)
        now = time.monotonic()
        for i, cgroup in enumerate(steered):
            some = cgroup.stalled()[0]
            if bytes_ := amount(cgroup.current, (some - before[i]) / 1e6 / (now - at)):
                cgroup.reclaim(bytes_)
            # What its own step has the tasks wait for counts in the next period.
            before[i] = some
        at = now


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(float(sys.argv[1]), sys.argv[2:])
