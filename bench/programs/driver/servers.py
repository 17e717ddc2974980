"""Servers with clients, each on a Unix socket in a directory of its own."""

import os
import pwd
import re
import shutil
import signal
import socket
import sys

from . import install
from .processes import Failed, family, start, wait_for
from .target import Target

# Bytes of a value, and requests a second: each of the hot keys is read at least once in 2 s.
VALUE = 1000
LABORATORY_KEYS = 75_000
KEYS, HOT, RATE = (LABORATORY_KEYS, 1_000, 1_000) if install.LABORATORY else (300_000, 40_000, 20_000)


class Redis(Target):
    about = "300,000 keys of 1,000 bytes, 20,000 GETs a second on 40,000 of them"
    options = ()

    def begin(self):
        self.serve()
        client = [install.compiled("redis_client.c"), self.socket, KEYS, HOT, RATE, 0]
        self.run_until_ready(client)

    def serve(self):
        """Starts the server and writes the keys."""
        self.open(self.place)
        self.fill()

    def open(self, place):
        """Starts the server, with the keys that are saved in a directory."""
        # redis-server and redis-check-rdb are one program that acts by its name. Debian's redis-tools has
        # redis-check-rdb only, and unlike redis-server starts no service.
        program = shutil.which("redis-server") or install.command("redis-check-rdb", "redis-tools")
        self.socket = self.place / "redis.sock"
        words = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no"]
        words += ["--dir", place, "--loglevel", "warning", *self.options]
        process = self.run(words, executable=program)
        self.root = process.pid
        self.connection = wait_for("redis-server", self.connect, process=process)
        self.answers = self.connection.makefile("rb")

    def fill(self):
        """Writes the keys."""
        for first in range(0, KEYS, 500):
            sets = (b"SET key:%08d %d:%s\r\n" % (i, i, self.value(i)) for i in range(first, first + 500))
            self.connection.sendall(b"".join(sets))
            for _ in range(500):
                self.expect(b"+OK")

    def value(self, _number):
        """The value of a key."""
        return b"x" * VALUE

    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.socket))
        except OSError:
            connection.close()
            return None
        return connection

    def expect(self, start_of_line):
        line = self.answers.readline()
        if not line.startswith(start_of_line):
            raise Failed(f"redis answered {line!r}")

    def command(self, words):
        self.connection.sendall(words.encode() + b"\r\n")


class RedisSaving(Redis):
    about = "the same during BGSAVE, whose child takes about two minutes to read all that it shares with the parent"
    # Without a delay the child would end within a window, and the truth with it.
    options = ("--rdb-key-save-delay", "250")

    def begin(self):
        super().begin()
        self.during()
        wait_for("redis: BGSAVE", lambda: len(family(self.root)) > 1)

    def during(self):
        """Saves again when the last child has ended."""
        if len(family(self.root)) == 1:
            self.command("BGSAVE")
            self.answers.readline()


class Postgres(Target):
    about = "pgbench -S, 3 clients, 6,000 transactions a second, scale 10, shared_buffers 400 MB"
    rate = ("--rate", "6000")

    def begin(self):
        self.serve()
        log = self.place / "pgbench.log"
        words = [self.program("pgbench"), *self.client, "-S", "-n", "-c", 3, "-j", 1, "-T", 3600, *self.rate]
        with open(log, "wb") as file:
            client = self.run([*words, "-P", 1], stderr=file, user=self.user, cwd=self.place)
        # Until each connection has read most of what it will read.
        progress = lambda: len(re.findall(rb"progress: .* tps", log.read_bytes())) >= 8  # noqa: E731
        wait_for("pgbench", progress, process=client)

    def serve(self):
        """Makes a database, starts the server, and fills the tables."""
        self.open(self.directory() / "db", "400MB")
        install.run([self.program("pgbench"), "-i", "-q", "-s", 10, *self.client], user=self.user, cwd=self.sockets)

    def directory(self):
        """A directory of the user that runs the server, for its sockets."""
        self.programs = self.find()
        self.user = self.account()
        self.sockets = self.place / "server"
        self.sockets.mkdir()
        if self.user is not None:
            os.chmod(self.place, 0o755)
            shutil.chown(self.sockets, self.user)
        return self.sockets

    def open(self, data, buffers):
        """Starts the server on a directory of data, which is made if it is not there."""
        self.client = ["-h", self.sockets, "-U", "bench", "postgres"]
        as_user = {"user": self.user, "cwd": self.sockets}
        if not data.exists():
            install.run([self.program("initdb"), "-D", data, "-U", "bench", "--auth=trust", "--no-sync", "--locale=C"],
                        **as_user)
        settings = {"listen_addresses": "", "unix_socket_directories": self.sockets, "shared_buffers": buffers,
                    "fsync": "off"}  # fmt: skip
        words = [self.program("postgres"), "-D", data]
        for name, value in settings.items():
            words += ["-c", f"{name}={value}"]
        process = self.run(words, with_signal=signal.SIGINT, deathsig=signal.SIGQUIT, **as_user)
        self.root = process.pid
        answers = lambda: start([self.program("pg_isready"), "-q", "-h", self.sockets]).wait() == 0  # noqa: E731
        wait_for("postgres", answers, process=process)

    def program(self, name):
        """The path of one of PostgreSQL's programs."""
        return self.programs / name

    def find(self):
        """The directory of the newest PostgreSQL."""
        for attempt in range(2):
            for place in sorted(install.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
                if (place / "initdb").exists() and (place / "pgbench").exists():
                    return place
            if attempt == 0:
                install.apt_install(["postgresql"])
        raise Failed("PostgreSQL is missing")

    def account(self):
        """The user that runs the server, which refuses to run as root."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                return pwd.getpwnam(name).pw_name
            except KeyError:
                continue
        raise Failed("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


class Memcached(Target):
    about = "100,000 values of 2,000 bytes, 30,000 of them read once a second"

    def begin(self):
        program, environment = install.unpacked("memcached", "memcached", ["libevent-2.1-7"])
        path = self.place / "memcached.sock"
        words = [program, "-s", path, "-m", 512, "-t", 2]
        if os.geteuid() == 0:
            words += ["-u", "root"]
        process = self.run(words, env={**os.environ, **environment})
        self.root = process.pid
        wait_for("memcached", path.exists, process=process)
        self.run_until_ready([sys.executable, install.LOADS / "memcached_client.py", path])


class Nginx(Target):
    about = "2 workers, 400 files of 64 KiB, 500 requests a second"
    configuration = """
daemon off; worker_processes 2; pid {place}/nginx.pid; error_log stderr; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile off; keepalive_requests 1000000; keepalive_timeout 1h;
  client_body_temp_path {place}/1; proxy_temp_path {place}/2; fastcgi_temp_path {place}/3;
  uwsgi_temp_path {place}/4; scgi_temp_path {place}/5;
  server {{ listen unix:{place}/nginx.sock; root {files}; }}
}}
"""

    def begin(self):
        files = self.place / "files"
        files.mkdir()
        for number in range(400):
            (files / str(number)).write_bytes(b"x" * 65536)
        self.run_until_ready([sys.executable, install.LOADS / "http_client.py", self.serve(files), 400])

    def serve(self, files):
        """Serves a directory. Returns the path of the socket."""
        program, environment = install.unpacked("nginx", "nginx", ["nginx-common"])
        user = "user root;" if os.geteuid() == 0 else ""
        configuration = self.place / "nginx.conf"
        text = self.configuration.format(place=self.place, files=files, user=user)
        configuration.write_text(text, encoding="utf-8")
        words = [program, "-e", "stderr", "-p", self.place, "-c", configuration]
        process = self.run(words, env={**os.environ, **environment})
        self.root = process.pid
        path = self.place / "nginx.sock"
        wait_for("nginx", path.exists, process=process)
        return path
