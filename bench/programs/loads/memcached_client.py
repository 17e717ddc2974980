# A memcached client: writes 100,000 values, and reads 30,000 of them once a second. Argument: the socket.
import random
import socket
import sys
import time

KEYS, HOT, BATCH = 100_000, 30_000, 100
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
answers = server.makefile("rb")
for first in range(0, KEYS, BATCH):
    value = b"x" * 2000
    server.sendall(b"".join(b"set key%d 0 0 2000\r\n%s\r\n" % (i, value) for i in range(first, first + BATCH)))
    for _ in range(BATCH):
        assert answers.readline() == b"STORED\r\n"
order = list(range(0, KEYS, KEYS // HOT))[:HOT]
random.Random(1).shuffle(order)
rounds = 0
while True:
    for first in range(0, HOT, BATCH):
        began = time.monotonic()
        server.sendall(b"get " + b" ".join(b"key%d" % i for i in order[first : first + BATCH]) + b"\r\n")
        while answers.readline() != b"END\r\n":
            pass
        time.sleep(max(0.0, began + BATCH / HOT - time.monotonic()))
    rounds += 1
    if rounds == 3:
        print("ready", flush=True)
