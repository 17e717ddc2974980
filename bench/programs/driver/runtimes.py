"""Language runtimes, and programs that are their own load."""

import os
import shutil
import sys
import urllib.request

from . import install
from .processes import wait_for
from .target import Program, Target


class Jvm(Program):
    about = "Java, G1: 600 MiB of old objects, a third read twice a second; 20 MiB/s of short-lived ones"

    options, size = ["-Xmx2g"], 600

    def words(self):
        java = install.command("java", "default-jdk-headless")
        return [java, *self.options, "-cp", install.compiled("Load.java"), "Load", self.size // install.SMALLER]


class LockedJvm(Jvm):
    about = "the same with 300 MiB in a heap of 512 MiB, all locked by mlockall (as Elasticsearch, Cassandra)"
    options, size = ["-Xms512m", "-Xmx512m"], 300

    def words(self):
        return [*super().words(), install.compiled("lock.c", "-shared", "-fPIC")]


class Zgc(Jvm):
    about = "the same with 200 MiB and ZGC, which maps the heap at three addresses until JDK 20"
    # Each collection changes the address at which objects are used: the truth then has pages twice. A clear of 300 MiB
    # at three addresses takes 10 ms here, which is all that --shared-hold allows.
    options, size = [*Jvm.options, "-XX:+UseZGC", "-XX:-ZProactive"], 200


class Node(Program):
    about = "200,000 objects and 128 MiB of buffers, a fifth of each read twice a second; short-lived objects"

    def words(self):
        return [install.command("node", "nodejs"), install.LOADS / "load.js", install.SMALLER]


class Go(Program):
    about = "700 MiB of blocks, 300 MiB read twice a second; a map, short-lived memory"

    def words(self):
        return [install.compiled("load.go")]


class Numpy(Program):
    about = "16 arrays of 64 MiB in huge pages, if the machine gives them; a quarter summed twice a second"

    def words(self):
        return [install.numpy_python(), install.LOADS / "numpy_load.py"]


class Prefork(Program):
    about = "Python: a parent with 80 MiB, 4 forked workers read 20 MiB each"

    def words(self):
        return [sys.executable, install.LOADS / "prefork.py"]


class Memfd(Program):
    about = "Python: a memfd of 256 MiB; one process writes 48 MiB, another reads 64 MiB, 32 MiB in common"

    def words(self):
        return [sys.executable, install.LOADS / "memfd.py"]


class Sqlite(Program):
    about = "Python's sqlite3 with mmap_size: 80,000 of 400,000 rows, in a random order"

    def words(self):
        # Made once, as it takes a while.
        install.CACHE.mkdir(parents=True, exist_ok=True)
        return [sys.executable, install.LOADS / "sqlite_load.py", install.CACHE / "rows.sqlite"]


class Hot(Program):
    about = "C: 64 KiB used every millisecond in 1 GiB written once"

    def words(self):
        return [install.compiled("hot.c")]


class Skewed(Program):
    about = "C: 704 MiB, of which pages are used at random, some much more often than others"

    def words(self):
        return [install.compiled("skewed.c")]


class OneMm(Program):
    about = "C: 512 MiB, 100 of them used, and 50 others by a child with the same address space (CLONE_VM)"

    def words(self):
        return [install.compiled("one_mm.c")]


class Stream(Program):
    about = "C: streams through 2 GiB, 200 MiB a second"

    def words(self):
        return [install.compiled("stream.c")]


class Chromium(Target):
    about = "headless, a page with 96 MiB, a quarter read twice a second"

    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        " --disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-port=0"
    )

    def begin(self):
        program = shutil.which("chromium") or install.command("chromium", "chromium")
        profile = self.place / "profile"
        words = [program, *self.flags.split(), f"--user-data-dir={profile}", (install.LOADS / "page.html").as_uri()]
        environment = {**os.environ, "HOME": str(self.place), "TMPDIR": str(self.place)}
        process = self.run(words, env=environment)
        self.root = process.pid
        port = profile / "DevToolsActivePort"
        wait_for("chromium", port.exists, process=process)
        url = f"http://127.0.0.1:{port.read_text(encoding='ascii').split()[0]}/json"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def ready():
            try:
                return '"title": "ready"' in direct.open(url, timeout=5).read().decode()
            except OSError:
                return False

        wait_for("chromium: the page", ready, every=0.5, process=process)


class Idle(Program):
    about = "Python that holds 300 MiB and sleeps"

    def words(self):
        script = "import time; x = b'x' * (300 << 20); print('ready', flush=True); time.sleep(3600)"
        return [sys.executable, "-c", script]
