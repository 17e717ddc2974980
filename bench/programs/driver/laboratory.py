"""Runs a part of this driver in the laboratory (lab/README.md), with the files that programs need there."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import install
from .processes import Failed, start

ROOT = Path(__file__).resolve().parents[3]
GUEST = "/root/isotherm"
PATH = "/bin:/usr/lib/jre/bin:/usr/sbin"
COMPILED = f"{GUEST}/target/bench/programs/compiled"


def boot(options, files, call, arguments, timeout, stdout=None):
    """Calls a function of a module of this driver in the laboratory. Returns the status of the machine.

    `call` is such as `schemes.inside`. It finds `arguments` in `sys.argv`."""
    module = call.partition(".")[0]
    script = f"import sys; sys.path.insert(0, '{GUEST}/bench/programs'); from driver import {module}; {call}()"
    words = [ROOT / "lab/boot", *options, "--nodes", 1, "--timeout", timeout]
    for file in files:
        words += ["--file", file]
    words += ["damon", "env", f"PATH={PATH}", "python3", "-c", script, *arguments]
    process = start(words, stdout=stdout)
    try:
        return process.wait(timeout + 300)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        # It ends the machine with itself.
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()


def needed(names):
    """The files that the programs of these names need in the machine."""
    python = subprocess.run(
        ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if python.returncode != 0:
        raise Failed("Debian's python3 is missing")
    library = Path(python.stdout.strip())
    small = install.CACHE / "python" / library.name
    if not small.is_dir():
        leave_out = shutil.ignore_patterns("test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "config-*",
                                           "__pycache__", "turtledemo", "pydoc_data", "dist-packages")  # fmt: skip
        shutil.copytree(library, small, ignore=leave_out, ignore_dangling_symlinks=True)
    interpreter = Path("/usr/bin/python3").resolve()
    files = [f"{interpreter}:/bin/python3", f"{small}:{library}", f"{ROOT / 'bench/programs'}:{GUEST}/bench/programs"]
    for name in names:
        files += NEEDED[name]()
    return list(dict.fromkeys(files))


def redis():
    """redis-server and its client."""
    server = install.command("redis-check-rdb", "redis-tools")
    return [server, f"{install.compiled('redis_client.c')}:{COMPILED}/redis_client"]


def jvm():
    """A small Java, and the load."""
    runtime = install.CACHE / "jre"
    if not runtime.is_dir():
        install.run([install.command("jlink", "default-jdk-headless"), "--add-modules", "java.base",
                     "--strip-debug", "--output", runtime])  # fmt: skip
    return [f"{runtime}:/usr/lib/jre", f"{install.compiled('Load.java')}:{COMPILED}/Load"]


def node():
    """Node."""
    return [install.command("node", "nodejs")]


def postgres():
    """PostgreSQL's programs and files."""
    from . import servers  # noqa: PLC0415

    place = servers.Postgres(Path()).find()
    version = place.parent.name
    programs = [f"{place / name}:{place / name}" for name in ("initdb", "postgres", "pgbench", "pg_isready")]
    share = f"/usr/share/postgresql/{version}"
    zones = [f"{path}:{path}" for path in ("/usr/share/zoneinfo/UTC", "/usr/share/zoneinfo/Etc") if Path(path).exists()]
    # The server looks for the directory of its libraries, and needs none of them here.
    library = place.parent / "lib/plpgsql.so"
    return [*programs, f"{share}:{share}", f"{library}:{library}", *zones]


def nginx():
    """nginx."""
    path, _ = install.unpacked("nginx", "nginx", ["nginx-common"])
    return [f"{path}:/usr/sbin/nginx"]


def batch():
    """redis, and sort(1)."""
    return [*redis(), "/usr/bin/sort:/usr/bin/sort"]


NEEDED = {"redis": redis, "postgres": postgres, "jvm": jvm, "node": node, "nginx": nginx, "batch": batch}
