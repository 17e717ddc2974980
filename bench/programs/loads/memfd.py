# 256 MiB of a memfd that two processes map. One writes the first 48 MiB ten times a second, the other reads from 16
# to 80 MiB. All of it was written once.
import mmap
import os
import time

MIB = 1 << 20
file = os.memfd_create("shared")
os.truncate(file, 256 * MIB)
memory = mmap.mmap(file, 256 * MIB)
for at in range(0, len(memory), MIB):
    memory[at : at + MIB] = b"x" * MIB
ready, says = os.pipe()
child = os.fork() == 0
if child:
    # A mapping of its own, as another program would have.
    memory = mmap.mmap(file, 256 * MIB)
part = memoryview(memory)[16 * MIB : 80 * MIB] if child else memoryview(memory)[: 48 * MIB]
rounds = 0
while not child or os.getppid() != 1:
    if child:
        sum(part[::4096])
    else:
        part[::4096] = bytes(len(part) // 4096)
    time.sleep(0.1)
    rounds += 1
    if rounds == 10:
        if child:
            os.write(says, b"x")
        else:
            os.read(ready, 1)
            print("ready", flush=True)
