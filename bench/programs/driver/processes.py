"""Processes: starting, waiting for conditions, descendants, CPU time, ending."""

import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A program could not be measured, with the reason."""


def start(words, deathsig=signal.SIGKILL, **options):
    """Starts a program that ends when this one does."""

    def ends_with_us():
        _libc.prctl(PR_SET_PDEATHSIG, int(deathsig))

    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.DEVNULL)
    try:
        return subprocess.Popen([str(word) for word in words], preexec_fn=ends_with_us, **options)
    except OSError as error:
        raise Failed(f"{words[0]} cannot be started: {error}") from error


def wait_for(what, condition, seconds=120, every=0.05, process=None):
    """Waits until `condition()` is true, and returns its value. Fails after `seconds`, or if `process` ended."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if process is not None and process.poll() is not None:
            raise Failed(f"{what}: the program ended with status {process.returncode}")
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(every)


def family(root):
    """The process `root` and its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if os.path.exists(f"/proc/{pid}"):
            found.append(pid)
        todo.extend(children.get(pid, []))
    return sorted(found)


KCMP_VM = 1
SYS_KCMP = {"x86_64": 312}.get(os.uname().machine, 272)


def address_spaces(pids):
    """Of the processes, those that share no address space with one before them."""
    found = []
    for pid in pids:
        # Zero is the answer "the same". Without root, or after the end of a process, it is an error: -1.
        if all(_libc.syscall(SYS_KCMP, pid, other, KCMP_VM, 0, 0) != 0 for other in found):
            found.append(pid)
    return found


def major_faults(pids):
    """The major page faults of the processes so far."""
    return sum(_stat(pid, 9) for pid in pids)


def cpu_seconds(pids):
    """The CPU time so far of the processes and of their children that have ended, in seconds."""
    ticks = sum(_stat(pid, field) for pid in pids for field in range(11, 15))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid, field):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[field])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def end(process, with_signal=signal.SIGTERM, patience=15):
    """Ends a process that `start` started."""
    if process is None or process.poll() is not None:
        return
    process.send_signal(with_signal)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
