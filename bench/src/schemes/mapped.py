# Sums a mapped file once, then its first sixteenth many times. Arguments: the file, the number of sums.
import sys

import numpy as np

data = np.memmap(sys.argv[1], dtype=np.uint64, mode="r")
total = int(data.sum())
part = data[: len(data) // 16]
for _ in range(int(sys.argv[2])):
    total ^= int(part.sum())
print(total)
