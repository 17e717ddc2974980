"""What the programs need: Debian packages, and loads that are compiled here.

Packages that start a service when they are installed are unpacked below the cache instead.
"""

import os
import shutil
import subprocess
from pathlib import Path

from .processes import Failed

# The laboratory has everything that it needs from its host.
LABORATORY = Path("/lab/settings").exists()
# Emulated processors are slow: loads are smaller there by this factor.
SMALLER = 4 if LABORATORY else 1
LOADS = Path(__file__).parent.parent / "loads"
CACHE = Path(__file__).resolve().parents[3] / "target/bench/programs"


def run(words, **options):
    """Runs a command to its end."""
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if ran.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}: {ran.stderr.strip() or ran.stdout.strip()}")
    return ran.stdout


def command(name, package):
    """The path of a command, whose package is installed if necessary."""
    path = shutil.which(name)
    if path is None:
        apt_install([package])
        path = shutil.which(name)
    if path is None:
        raise Failed(f"{name} is missing; Debian's package {package} has it")
    return path


def apt_install(packages):
    """Installs Debian packages that start no service."""
    if shutil.which("apt-get") is None:
        raise Failed(f"please install what Debian calls {', '.join(packages)}")
    print(f"bench/programs: installing {' '.join(packages)}", flush=True)
    words = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    run(as_root(["env", "DEBIAN_FRONTEND=noninteractive", *words]))


def as_root(words):
    """The command as root."""
    return words if os.geteuid() == 0 else ["sudo", *words]


def unpacked(name, package, libraries=()):
    """A command from a package that is not to be installed, and the environment that it needs."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if path is not None:
        return path, {}
    place = CACHE / "packages" / package
    if not place.is_dir():
        if shutil.which("apt-get") is None:
            raise Failed(f"{name} is missing; Debian's package {package} has it")
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        run(["apt-get", "download", "-q", package, *libraries], cwd=part)
        for archive in part.glob("*.deb"):
            run(["dpkg", "-x", archive, part])
        part.rename(place)
    for path in place.glob(f"usr/*bin/{name}"):
        return path, {"LD_LIBRARY_PATH": ":".join(map(str, place.glob("usr/lib/*-linux-gnu*")))}
    raise Failed(f"Debian's package {package} has no {name}")


def numpy_python():
    """A Python interpreter that has numpy."""
    for attempt in range(2):
        for path in ("/usr/bin/python3", shutil.which("python3")):
            if path and subprocess.run([path, "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
                return path
        if attempt == 0:
            apt_install(["python3-numpy"])
    raise Failed("no Python has numpy")


def compiled(name, *options):
    """The load `name` (a file of C, Go or Java), compiled: a program, or for Java the directory of its class.

    Options are those of the C compiler, in place of `-static`."""
    source = LOADS / name
    output = CACHE / "compiled" / source.stem
    if output.exists() and (LABORATORY or output.stat().st_mtime > source.stat().st_mtime):
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".c":
        # Static: pages of shared libraries count as accessed when other programs access them (see truth.py).
        run([command("gcc", "gcc"), "-O2", "-Wall", *(options or ["-static"]), "-o", output, source, "-lm"])
    elif source.suffix == ".go":
        go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin") or command("go", "golang-go")
        run([go, "build", "-o", output, source])
    else:
        shutil.rmtree(output, ignore_errors=True)
        run([command("javac", "default-jdk-headless"), "-d", output, source])
    return output
