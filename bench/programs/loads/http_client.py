# An HTTP client: GETs the paths /0 to /N-1 in turn on one connection, 500 a second. Arguments: the Unix socket, N.
import socket
import sys
import time

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
answers = server.makefile("rb")
files, requests = int(sys.argv[2]), 0
while True:
    server.sendall(b"GET /%d HTTP/1.1\r\nHost: bench\r\n\r\n" % (requests % files))
    assert b" 200 " in answers.readline()
    length = 0
    while (line := answers.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    answers.read(length)
    time.sleep(0.002)
    requests += 1
    if requests == 2 * files:
        print("ready", flush=True)
