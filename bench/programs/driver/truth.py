"""The working set of processes, measured without isotherm.

The referenced marks of all pages are cleared (`echo 1 > /proc/PID/clear_refs`). After the window, the sum of
`Referenced` in /proc/PID/smaps is what was accessed in it. A page that several processes accessed counts once for
each of them. How much that is when each page counts once is not known, as smaps does not tell pages apart, but it
has bounds: see `Truth`.

`Referenced` counts a page, too, if the kernel marked the page itself, and not the process's mapping of it. It does so
for pages of files when a process that accessed them ends, and for all pages of a large folio when a kdamond looks at
one of them. So pages of a file may count for each process that maps it, although another process accessed them: a
process of Chromium that slept for the whole window has 3 to 6 MiB. How much that may be is `Truth.doubtful`.
"""

import os
import time
from dataclasses import dataclass

from .processes import Failed, family

FIELDS = {"Rss", "Pss", "Referenced", "Shared_Clean", "Shared_Dirty", "Swap"}


@dataclass
class Truth:
    """All in bytes."""

    # Accessed within the window, summed over the processes.
    touched: int
    # What of it other processes may have accessed instead.
    doubtful: int
    # Bounds of what was accessed when each page counts once.
    once_at_least: int
    once_at_most: int
    # Resident, summed over the processes, and with each page shared out evenly among those that map it.
    resident: int
    proportional: int
    processes: int


def mappings(pid):
    """The mappings of a process: (key that processes which share it have in common, figures by name, in bytes)."""
    found, figures = [], {}
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            first, _, rest = line.partition(" ")
            if first.endswith(":"):
                name = first[:-1]
                if name in FIELDS:
                    figures[name] = int(rest.split()[0]) * 1024
            else:
                _, offset, device, inode, *path = rest.split(maxsplit=4)
                # What has no file is shared by fork only, and then lies at the same address.
                key = (device, inode, offset, *path) if inode != "0" else (first.partition("-")[0],)
                figures = dict.fromkeys(FIELDS, 0)
                found.append((key, figures))
    return found


def of_all(pids):
    """The mappings of those of the processes that are there, by process."""
    found = {}
    for pid in pids:
        try:
            found[pid] = mappings(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def resident(root):
    """The resident bytes of a process and its descendants."""
    return sum(figures["Rss"] for parts in of_all(family(root)).values() for _, figures in parts)


def measure(root, window):
    """Measures what the process `root` and its descendants access within `window` seconds."""
    cleared = {}
    for pid in family(root):
        try:
            with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
                file.write("1")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            raise Failed(f"/proc/{pid}/clear_refs: {error}") from error
        cleared[pid] = time.monotonic()
    # Processes are read in the order in which they were cleared, so that the window is the same for each.
    seen = {}
    for pid, since in cleared.items():
        time.sleep(max(0.0, since + window - time.monotonic()))
        seen.update(of_all([pid]))
    # What started since has accessed all that its marks say: fork and exec begin with clear ones.
    seen.update(of_all([pid for pid in family(root) if pid not in cleared]))
    if not seen:
        raise Failed("the program has ended")
    return summary(seen, files_of_others(set(seen)))


def files_of_others(pids):
    """The files that processes other than these map, as (device, inode)."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in pids:
            try:
                with open(f"/proc/{name}/maps", encoding="utf-8", errors="replace") as file:
                    found.update(tuple(line.split(maxsplit=5)[3:5]) for line in file)
            except OSError:
                continue
    return found


def is_on_disk(key):
    """Whether the mappings with this key are of a file that is not shared memory."""
    path = key[3].strip() if len(key) > 3 else ""
    is_memory = path.startswith(("/dev/", "/memfd:", "/SYSV")) or path.endswith("(deleted)")
    return path.startswith("/") and not is_memory


def summary(seen, others):
    """The sums over processes."""
    groups = {}
    for parts in seen.values():
        for key, figures in parts:
            groups.setdefault(key, []).append(figures)
    at_least = at_most = doubtful = 0
    for key, group in groups.items():
        touched = [figures["Referenced"] for figures in group]
        shared = [figures["Shared_Clean"] + figures["Shared_Dirty"] for figures in group]
        # Pages that are not shared are different ones in each process.
        own = sum(max(0, one - other) for one, other in zip(touched, shared))
        at_least += max(max(touched), own)
        if key[:2] in others or (len(group) > 1 and is_on_disk(key)):
            doubtful += sum(map(min, touched, shared))
        if key[:2] in others:
            at_most += sum(touched)
        else:
            # If nobody else maps them, proportional sizes add up to the pages that there are.
            at_most += min(sum(touched), sum(figures["Pss"] for figures in group))
    total = lambda name: sum(figures[name] for group in groups.values() for figures in group)  # noqa: E731
    return Truth(total("Referenced"), doubtful, at_least, at_most, total("Rss"), total("Pss"), len(seen))
