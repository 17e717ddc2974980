"""Programs that answer requests, in cgroups of their own, and the latencies of their requests.

The clients are in no such cgroup. The files are on a disk in the laboratory (`prepared`), because those of its own file
system cannot be reclaimed.
"""

import array
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path

from . import install, runtimes, servers
from .processes import wait_for

DISK = Path("/disk")
# Of the 1,000,000 accounts of pgbench's scale 10, those that are asked for.
ASKED = 100_000
# The files of nginx, of 64 KiB each, and those that are asked for.
FILES, HOT_FILES = 1_600, 200
LINES = 400_000
BUFFERS = "160MB"
SEED = 1


def text_of(generator, bytes_):
    """Text of so many bytes, which compresses as records do: its fields are the same, and what is in them is not."""
    records = []
    for _ in range(bytes_ // 100 + 1):
        name, city = generator.choices(NAMES, k=2)
        number = generator.randrange(10**9)
        # Without blanks and quotes, which redis takes for more than text.
        records.append(f"{{customer:{number},name:{name},mail:{name}@example.org,city:{city},"
                       f"orders:[{number % 977}],status:active}}")  # fmt: skip
    return ",".join(records)[:bytes_].encode()


NAMES = ["".join(random.Random(number).choices("etaoinshrdlucm", k=4 + number % 7)) for number in range(500)]


class Service:
    """What is mixed into a target: its cgroups, its clients and their latencies."""

    # The cgroups, in the first of which the server is.
    cgroups = ("server",)
    # Bytes of files that are read all the time and that no process maps.
    hot_files = 0
    # What is done so often.
    unit = "requests"

    def serve_in(self, cgroups):
        """Starts the server in its cgroup, with all the memory that it will have."""
        with cgroups["server"].entered():
            self.serve()

    def load(self, seconds):
        """Starts the clients, outside of the cgroups, for so long, and returns when they are steady."""

    @property
    def log(self):
        """Where the latencies go."""
        return self.place / "log"

    def latencies(self, since, until):
        """The latencies of what was due in this time (seconds since 1970), in microseconds."""
        return [took for at, took in self.logged() if since <= at < until]

    def logged(self):
        """When each request was due, in seconds since 1970, and its latency in microseconds."""
        with open(self.log, encoding="ascii") as lines:
            # A line may be written just now.
            return [(float(words[0]), float(words[1])) for line in lines if len(words := line.split()) == 2]

    def jobs(self, _since, _until):
        """The times that batch jobs took which ended in this time, in microseconds."""
        return []


class Redis(Service, servers.Redis):
    about = "redis: 75,000 keys with 1,000 bytes of text, 500 GETs a second on 1,000 of them"

    def serve(self):
        self.open(DISK / "redis")
        wait_for("redis-server: its keys", self.is_filled)

    def is_filled(self):
        """Whether all keys are there. Until then, the server answers that it is loading them."""
        self.command("DBSIZE")
        return self.answers.readline().strip() == b":%d" % servers.KEYS

    def load(self, seconds):
        words = [install.compiled("redis_client.c"), self.socket, servers.KEYS, servers.HOT, servers.RATE // 2]
        self.began = time.time()
        self.client = self.run_until_ready([*words, seconds, self.log, "sent"])

    def logged(self):
        self.client.wait(60)
        numbers = array.array("I", self.log.read_bytes())
        return [(self.began + due / 1e6, took / 1e3) for due, took in zip(numbers[::2], numbers[1::2])]


class Postgres(Service, servers.Postgres):
    about = "PostgreSQL: pgbench -S, 2 clients, 60 queries a second on 100,000 of 1,000,000 accounts; 160 MB of buffers"

    def serve(self):
        self.directory()
        self.open(DISK / "postgres", BUFFERS)
        # All accounts are read by their index, so that they are in the server's buffers.
        script = "SET enable_seqscan = off;\nSELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0;\n"
        install.run(self.pgbench(script, "-t", 1), user=self.user, cwd=self.sockets)

    def pgbench(self, script, *options):
        """The command that runs this script."""
        file = self.place / "script.sql"
        file.write_text(script, encoding="ascii")
        return [self.program("pgbench"), *self.client, "-n", "-f", file, *options]

    def load(self, seconds):
        script = f"\\set aid random(1, {ASKED})\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
        options = ["-M", "prepared", "-c", 2, "-j", 1, "-T", seconds, "--rate", 60]
        words = self.pgbench(script, *options, "-l", f"--log-prefix={self.sockets}/log")
        self.asking = self.run(words, user=self.user, cwd=self.sockets)

    def logged(self):
        self.asking.wait(90)
        found = []
        for log in self.sockets.glob("log*"):
            with open(log, encoding="ascii") as lines:
                for words in map(str.split, lines):
                    # Without the time for which it was late.
                    took = float(words[2]) - float(words[6])
                    found.append((int(words[4]) + (float(words[5]) - took) / 1e6, took))
        return found


class Jvm(Service, runtimes.Jvm):
    about = "Java, G1: 150 MiB of old objects, a third read twice a second; short-lived ones"
    unit = "slices of work"

    def words(self):
        java, *rest = super().words()
        return [java, f"-Dlog={self.log}", *rest]

    def serve(self):
        self.begin()


class Node(Service, runtimes.Node):
    about = "node: 50,000 objects and 32 MiB of buffers, a fifth of each read twice a second; short-lived objects"
    unit = "slices of work"

    def words(self):
        return [*super().words(), self.log]

    def serve(self):
        self.begin()


class Nginx(Service, servers.Nginx):
    about = "nginx: 1,600 files of 64 KiB, all read once, then 50 requests a second on 200 of them"
    hot_files = HOT_FILES << 16

    def serve(self):
        self.socket = super().serve(DISK / "files")

    def load(self, seconds):
        words = [install.LOADS / "http_client.py", self.socket, FILES, HOT_FILES, 50, self.log]
        self.run_until_ready([sys.executable, *words])


class Batch(Redis):
    about = "redis as above, beside a batch job in a cgroup of its own: sort(1) of a file of 24 MB, again and again"
    cgroups = ("server", "batch")

    @property
    def sorted(self):
        """Where the times of the batch jobs go."""
        return self.place / "sorted"

    def serve_in(self, cgroups):
        super().serve_in(cgroups)
        with cgroups["batch"].entered():
            words = [install.LOADS / "sorting.py", "/usr/bin/sort", DISK / "text", DISK / "sorting", self.sorted]
            self.run([sys.executable, *words])
        wait_for("sort", lambda: self.sorted.exists() and self.sorted.stat().st_size > 0, seconds=180)

    def jobs(self, since, until):
        with open(self.sorted, encoding="ascii") as lines:
            rows = [tuple(map(float, words)) for line in lines if len(words := line.split()) == 2]
        return [took for began, took in rows if since <= began + took / 1e6 < until]


SERVICES = {
    "redis": Redis,
    "postgres": Postgres,
    "jvm": Jvm,
    "node": Node,
    "nginx": Nginx,
    "batch": Batch,
}


def image():
    """Makes the disk with the files that the programs need, once. Returns its path."""
    disk = install.CACHE / "disk"
    made = install.CACHE / "disk.ext4"
    if made.exists():
        return made
    disk.mkdir(parents=True, exist_ok=True)
    for name in ("files", "sorting"):
        (disk / name).mkdir(exist_ok=True)
    generator = random.Random(SEED)
    for number in range(FILES):
        (disk / "files" / str(number)).write_bytes(text_of(generator, 1 << 16))
    with open(disk / "text", "wb") as file:
        for _ in range(LINES):
            file.write(text_of(generator, 59) + b"\n")
    keys(disk / "redis")
    database(disk / "postgres")
    part = made.with_suffix(".part")
    part.unlink(missing_ok=True)
    install.run([install.command("mke2fs", "e2fsprogs"), "-q", "-t", "ext4", "-d", disk, part, "1G"])
    part.rename(made)
    return made


class Filled(servers.Redis):
    """A redis with values that compress as records do."""

    def fill(self):
        self.text = text_of(random.Random(SEED), 1 << 20)
        super().fill()

    def value(self, number):
        at = number * 7_919 % (len(self.text) - servers.VALUE)
        return self.text[at:at + servers.VALUE]


def keys(place):
    """Saves the keys of redis at `place`, as many as it has in the laboratory."""
    place.mkdir(exist_ok=True)
    servers.KEYS = servers.LABORATORY_KEYS
    with tempfile.TemporaryDirectory() as scratch:
        server = Filled(Path(scratch))
        with contextlib.ExitStack() as stack:
            stack.callback(server.finish)
            server.serve()
            server.command("SAVE")
            server.expect(b"+OK")
        install.run(["cp", Path(scratch) / "dump.rdb", place])


def database(place):
    """Fills a database at `place`, which belongs to the user `nobody` of the laboratory in the end."""
    if place.exists():
        return
    scratch = install.CACHE / "database"
    install.run(["rm", "-rf", scratch])
    scratch.mkdir(parents=True)
    server = servers.Postgres(scratch)
    with contextlib.ExitStack() as stack:
        stack.callback(server.finish)
        server.serve()
    nobody = 65_534
    install.run(["cp", "-a", scratch / "server/db", place])
    install.run(["chown", "-R", f"{nobody}:{nobody}", place])
    install.run(["rm", "-rf", scratch])

