# A batch job: sorts a file with sort(1) again and again. Arguments: sort, the file, a directory for what comes out, and
# LOG, which gets a line for each time: when it began, in seconds since 1970, and how many microseconds it took.
import os
import subprocess
import sys
import time

sort, text, place, log = sys.argv[1:]
words = [sort, "--parallel=1", "-S", "32M", "-T", place, "-o", f"{place}/sorted", text]
with open(log, "w", buffering=1, encoding="ascii") as file:
    while True:
        began = time.time()
        subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, check=True)
        file.write(f"{began:.6f} {(time.time() - began) * 1e6:.1f}\n")
