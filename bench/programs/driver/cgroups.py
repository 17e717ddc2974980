"""Cgroups of version 2: what the kernel says of their memory."""

import contextlib
import os
from pathlib import Path

from .processes import Failed, wait_for

ROOT = Path("/sys/fs/cgroup")


class Cgroup:
    """A cgroup that accounts its memory, made by this program and removed by `remove`."""

    def __init__(self, name):
        (ROOT / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
        self.path = f"/{name}"
        self.place = ROOT / name
        self.place.mkdir()

    def read(self, name):
        """The contents of one of its files."""
        return (self.place / name).read_text(encoding="ascii")

    def write(self, name, text):
        """Writes to one of its files."""
        (self.place / name).write_text(str(text), encoding="ascii")

    def table(self, name):
        """A file with a name and a number in each line."""
        return {name: int(value) for name, value in map(str.split, self.read(name).splitlines())}

    @property
    def current(self):
        """The bytes of memory that are charged to it."""
        return int(self.read("memory.current"))

    @property
    def pids(self):
        """Its processes."""
        return [int(pid) for pid in self.read("cgroup.procs").split()]

    def stalled(self):
        """The microseconds for which some, and all, of its tasks have waited for memory."""
        lines = map(str.split, self.read("memory.pressure").splitlines())
        totals = {words[0]: int(words[-1].partition("=")[2]) for words in lines}
        return totals["some"], totals["full"]

    def refaulted(self):
        """The bytes that were reclaimed and had to be brought back."""
        stat = self.table("memory.stat")
        return os.sysconf("SC_PAGE_SIZE") * sum(stat[f"workingset_refault_{kind}"] for kind in ("anon", "file"))

    def reclaim(self, bytes_):
        """Asks the kernel to take so many bytes. Less is normal, and no error."""
        with contextlib.suppress(BlockingIOError):
            self.write("memory.reclaim", int(bytes_))

    @contextlib.contextmanager
    def entered(self):
        """This program is in the cgroup as long as this is entered, and so are the processes that it starts."""
        self.write("cgroup.procs", os.getpid())
        try:
            yield
        finally:
            (ROOT / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def remove(self):
        """Ends its processes and removes it."""
        self.write("cgroup.kill", 1)

        def removed():
            with contextlib.suppress(OSError):
                self.place.rmdir()
            return not self.place.exists()

        wait_for(f"the end of the cgroup {self.path}", removed, seconds=30)


def require():
    """Checks that cgroups of version 2 account memory, and that pressure is known."""
    for name in ("cgroup.controllers", "memory.pressure"):
        if not (ROOT / name).exists():
            raise Failed(f"{ROOT / name} is missing: this needs cgroup version 2 and CONFIG_PSI")
    if "memory" not in (ROOT / "cgroup.controllers").read_text(encoding="ascii").split():
        raise Failed(f"{ROOT}: the memory controller is not there")
