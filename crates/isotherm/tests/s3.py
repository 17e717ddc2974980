"""A server that speaks S3 (moto) and has the bucket `fleet`. It can be told to fail.

It prints its port. Then each line of its input is a command, and gets one line of JSON:
  fail N HOW    after N further requests, answers 500 (`500`), or closes connections (`close`); `fail never -` ends that
  log           the methods and keys of the requests since the last `log`, but for those that failed
  age KEY S     makes an object look S seconds older
  sums PREFIX   what pyarrow reads below PREFIX of the bucket: rows, and the sum of present_bytes
"""

import json
import socket
import sys
import threading
from datetime import timedelta

import moto.s3.models
import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

app = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()
left, how, log = None, None, []


def serve(environ, start_response):
    global left
    with lock:
        failed = left == 0
        if left:
            left -= 1
    if failed and how == "close":
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionError
    if failed:
        start_response("500 Internal Server Error", [("Content-Length", "0")])
        return []
    answered = []

    def start(status, *rest):
        answered.append(status)
        return start_response(status, *rest)

    body = app(environ, start)
    with lock:
        log.append(" ".join([environ["REQUEST_METHOD"], environ["PATH_INFO"], answered[0].split()[0]]))
    return body


def buckets():
    return next(iter(moto.s3.models.s3_backends.values()))["aws"].buckets


def sums(prefix):
    files = [
        file.path
        for file in store.get_file_info(pyarrow.fs.FileSelector(f"fleet/{prefix}", recursive=True))
        if file.path.endswith(".parquet")
    ]
    if not files:
        return {"files": 0, "rows": 0, "present": None}
    table = pyarrow.dataset.dataset(files, filesystem=store, format="parquet").to_table()
    return {"files": len(files), "rows": len(table), "present": pyarrow.compute.sum(table["present_bytes"]).as_py()}


server = make_server("127.0.0.1", 0, serve, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
store = pyarrow.fs.S3FileSystem(
    access_key="key",
    secret_key="secret",
    endpoint_override=f"127.0.0.1:{server.port}",
    scheme="http",
    region="us-east-1",
    allow_bucket_creation=True,
)
store.create_dir("fleet")
log.clear()
print(server.port, flush=True)
for line in sys.stdin:
    name, *words = line.split()
    answer = None
    with lock:
        if name == "fail":
            left, how = None if words[0] == "never" else int(words[0]), words[1]
        elif name == "log":
            answer, log = log, []
        elif name == "age":
            buckets()["fleet"].keys[words[0]].last_modified -= timedelta(seconds=int(words[1]))
    if name == "sums":
        answer = sums(words[0])
    print(json.dumps(answer), flush=True)
