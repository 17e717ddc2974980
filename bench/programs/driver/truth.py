"""The working set of processes, measured without isotherm.

The referenced marks of all pages are cleared (`echo 1 > /proc/PID/clear_refs`). After the window, the sum of
`Referenced` in /proc/PID/smaps is what was accessed in it. A page that several processes accessed counts once for
each of them. How much that is when each page counts once is not known, as smaps does not tell pages apart, but it
has bounds: see `Truth`.

`Referenced` counts a page, too, if the kernel marked the page itself, and not the process's mapping of it. It does so
when a process that accessed a page of a file ends, when a file is read, and when a kdamond or the reclaim of the kernel
finds the page accessed. Such a page counts for each process that maps it, whichever of them accessed it: a process of
Chromium that slept for the whole window has 3 to 6 MiB. The marked pages that several processes map are
`Truth.doubtful`. They are found in /proc/PID/pagemap and /proc/kpageflags.
"""

import array
import os
import time
from dataclasses import dataclass

from .processes import Failed, address_spaces, family

FIELDS = {"Rss", "Pss", "Referenced", "Shared_Clean", "Shared_Dirty", "Swap"}
PAGE = 4096
# Of an entry of /proc/PID/pagemap: in memory, mapped by this process only, and the page frame.
PRESENT, EXCLUSIVE, FRAME = 1 << 63, 1 << 56, (1 << 55) - 1
# Of an entry of /proc/kpageflags, in its first byte.
REFERENCED = 1 << 2


@dataclass
class Truth:
    """All in bytes."""

    # Accessed within the window, summed over the processes.
    touched: int
    # What of it other processes may have accessed instead: pages that several processes map and the kernel marked.
    # And what counts twice because it was accessed at two addresses.
    doubtful: int
    # Bounds of what was accessed when each page counts once.
    once_at_least: int
    once_at_most: int
    # Resident, summed over the processes, and with each page shared out evenly among those that map it.
    resident: int
    proportional: int
    processes: int


def mappings(pid):
    """The mappings of a process: (key that processes sharing it have in common, range, figures by name, in bytes)."""
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
                start, end = (int(address, 16) for address in first.split("-"))
                found.append((key, (start, end), figures))
    return found


def shared(figures):
    """The bytes of a mapping that other processes map as well."""
    return figures["Shared_Clean"] + figures["Shared_Dirty"]


def add_marks(pid, parts):
    """Adds the figure `Marked` to the mappings of a process: what is shared and has a mark of the page itself."""
    for _, (start, end), figures in parts:
        try:
            figures["Marked"] = marked(pid, start, end) if figures["Referenced"] and shared(figures) else 0
        except PermissionError:
            # Only root may read which pages are marked.
            figures["Marked"] = shared(figures)


def marked(pid, start, end):
    """The bytes of a mapping that other processes map as well, and that have a mark of the page itself."""
    entries = array.array("Q")
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap, open("/proc/kpageflags", "rb") as kpageflags:
        pagemap.seek(start // PAGE * entries.itemsize)
        entries.frombytes(pagemap.read((end - start) // PAGE * entries.itemsize))
        is_marked = lambda frame: os.pread(kpageflags.fileno(), 8, frame * 8)[0] & REFERENCED  # noqa: E731
        frames = (entry & FRAME for entry in entries if entry & PRESENT and not entry & EXCLUSIVE)
        return PAGE * sum(1 for frame in frames if is_marked(frame))


def of_all(pids, with_marks=False):
    """The mappings of those of the processes that are there, by process."""
    found = {}
    for pid in pids:
        try:
            parts = mappings(pid)
            if with_marks:
                add_marks(pid, parts)
            found[pid] = parts
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def resident(root):
    """The resident bytes of a process and its descendants."""
    return sum(figures["Rss"] for parts in of_all(family(root)).values() for *_, figures in parts)


def measure(root, window):
    """Measures what the process `root` and its descendants access within `window` seconds."""
    cleared = {}
    for pid in address_spaces(family(root)):
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
        seen.update(of_all([pid], with_marks=True))
    # What started since has accessed all that its marks say: fork and exec begin with clear ones.
    pids = address_spaces([*cleared, *(pid for pid in family(root) if pid not in cleared)])
    seen.update(of_all([pid for pid in pids if pid not in cleared], with_marks=True))
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


def doubly_mapped(parts):
    """What of the touched bytes of a process may be touched twice: pages of files that it maps at several addresses."""
    of_files = [(key[:2], int(key[2], 16), size, figures) for key, size, figures in parts if len(key) > 1]
    groups, file, end = [], None, 0
    for name, offset, (first, last), figures in sorted(of_files, key=lambda part: part[:2]):
        if name != file or offset >= end:
            groups.append([])
            file, end = name, offset
        beyond = max(end, offset + last - first)
        groups[-1].append((figures["Referenced"], last - first - (beyond - end)))
        end = beyond
    return sum(
        min(sum(touched) - max(touched), sum(again)) for touched, again in (zip(*group) for group in groups)
    )


def summary(seen, others):
    """The sums over processes."""
    groups = {}
    for parts in seen.values():
        for key, _, figures in parts:
            groups.setdefault(key, []).append(figures)
    at_least = at_most = 0
    doubtful = sum(map(doubly_mapped, seen.values()))
    for key, group in groups.items():
        touched = [figures["Referenced"] for figures in group]
        in_common = [shared(figures) for figures in group]
        # Pages that are not shared are different ones in each process.
        own = sum(max(0, one - other) for one, other in zip(touched, in_common))
        at_least += max(max(touched), own)
        doubtful += sum(min(figures["Referenced"], figures["Marked"]) for figures in group)
        if key[:2] in others:
            at_most += sum(touched)
        else:
            # If nobody else maps them, proportional sizes add up to the pages that there are.
            at_most += min(sum(touched), sum(figures["Pss"] for figures in group))
    total = lambda name: sum(figures[name] for group in groups.values() for figures in group)  # noqa: E731
    return Truth(total("Referenced"), doubtful, at_least, at_most, total("Rss"), total("Pss"), len(seen))
