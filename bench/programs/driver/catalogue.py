"""The programs by name, in the order in which they are measured."""

from .runtimes import (
    Chromium, Go, Hot, Idle, Jvm, LockedJvm, Memfd, Node, Numpy, OneMm, Prefork, Skewed, Sqlite, Stream, Zgc,
)  # fmt: skip
from .servers import Memcached, Nginx, Postgres, Redis, RedisSaving

TARGETS = {
    "redis": Redis,
    "redis-bgsave": RedisSaving,
    "jvm": Jvm,
    "jvm-locked": LockedJvm,
    "jvm-zgc": Zgc,
    "node": Node,
    "go": Go,
    "postgres": Postgres,
    "sqlite": Sqlite,
    "numpy": Numpy,
    "prefork": Prefork,
    "memfd": Memfd,
    "memcached": Memcached,
    "nginx": Nginx,
    "chromium": Chromium,
    "hot-64k": Hot,
    "stream": Stream,
    "skewed": Skewed,
    "one-mm": OneMm,
    "idle": Idle,
}
