"""What is measured: a program with its load."""

import os
import signal
import subprocess

from .processes import Failed, end, start, wait_for


class Target:
    """A program and its load, in a directory of its own. `root` is the process to watch, with its descendants."""

    # What the load does, for the table of `--list`.
    about = ""

    def __init__(self, place):
        self.place = place
        self.root = None
        # In the order in which they end: (process, signal).
        self.started = []
        # Called with the identity of the first process as soon as it has started.
        self.at_start = None

    def begin(self):
        """Starts the program and its load, and returns when both are steady."""
        raise NotImplementedError

    def during(self):
        """Called again and again while the program is measured."""

    def finish(self):
        """Ends everything that was started."""
        for process, with_signal in reversed(self.started):
            end(process, with_signal)
        self.started.clear()

    def run(self, words, with_signal=signal.SIGTERM, **options):
        """Starts a process that `finish` ends. What it says on standard error is in the file `errors`."""
        with open(self.place / "errors", "ab") as errors:
            options.setdefault("stderr", errors)
            process = start(words, **options)
        self.started.append((process, with_signal))
        if self.at_start and len(self.started) == 1:
            self.at_start(process.pid)
        return process

    def run_until_ready(self, words, seconds=180, **options):
        """Starts a load that prints `ready` once it is steady."""
        output = self.place / "output"
        with open(output, "wb") as file:
            process = self.run(words, stdout=file, **options)
        wait_for(
            f"{words[0]}: ready", lambda: b"ready" in output.read_bytes(), seconds=seconds, process=process
        )
        return process


class Program(Target):
    """A program that is its own load."""

    def words(self):
        """The command."""
        raise NotImplementedError

    def begin(self):
        self.root = self.run_until_ready(self.words(), stdin=subprocess.DEVNULL).pid


class Running(Target):
    """A program that runs already, with a load of its own."""

    def __init__(self, place, pid):
        super().__init__(place)
        self.root = pid

    def begin(self):
        if not os.path.exists(f"/proc/{self.root}"):
            raise Failed(f"there is no process {self.root}")
