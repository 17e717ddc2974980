# An HTTP client: GETs the paths /0 to /N-1 in turn on one connection, 500 a second. Arguments: the Unix socket, N.
# With three more arguments, HOT, RATE and LOG: after the first round, only the paths /0 to /HOT-1, RATE a second, and
# LOG gets a line for each of these requests: when it was sent, in seconds since 1970, and its latency in microseconds.
import socket
import sys
import time

server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
answers = server.makefile("rb")
files = int(sys.argv[2])


def get(number):
    server.sendall(b"GET /%d HTTP/1.1\r\nHost: bench\r\n\r\n" % number)
    assert b" 200 " in answers.readline()
    length = 0
    while (line := answers.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    answers.read(length)


def steadily():
    requests = 0
    while True:
        get(requests % files)
        time.sleep(0.002)
        requests += 1
        if requests == 2 * files:
            print("ready", flush=True)


def logged(hot, rate, log):
    for number in range(files):
        get(number)
    print("ready", flush=True)
    requests, due = 0, time.time()
    while True:
        # What is late by more than a second is given up.
        due = max(due + 1 / rate, time.time() - 1)
        time.sleep(max(0, due - time.time()))
        sent = time.time()
        get(requests % hot)
        requests += 1
        log.write(f"{sent:.6f} {(time.time() - sent) * 1e6:.1f}\n")


if len(sys.argv) > 3:
    with open(sys.argv[5], "w", buffering=1, encoding="ascii") as file:
        logged(int(sys.argv[3]), float(sys.argv[4]), file)
else:
    steadily()
