# A parent with 80 MiB and 4 workers that it forked. Each worker reads a part of 20 MiB ten times a second; parts
# overlap by 4 MiB.
import mmap
import os
import sys
import time

MIB = 1 << 20
memory = mmap.mmap(-1, 80 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, len(memory), MIB):
    memory[at : at + MIB] = b"x" * MIB
workers = []
ready, says = os.pipe()
for worker in range(4):
    if os.fork() == 0:
        view = memoryview(memory)[worker * 16 * MIB : worker * 16 * MIB + 20 * MIB]
        rounds = 0
        while os.getppid() != 1:
            sum(view[::4096])
            time.sleep(0.1)
            rounds += 1
            if rounds == 10:
                os.write(says, b"x")
        os._exit(0)
for _ in range(4):
    os.read(ready, 1)
print("ready", flush=True)
sys.stdin.read()
while True:
    time.sleep(60)
