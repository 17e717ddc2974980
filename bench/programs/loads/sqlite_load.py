# Reads a fifth of the rows of a database, in a random order, through a mapping of the file. Argument: the database,
# which is made if it is not there.
import random
import sqlite3
import sys
import time

ROWS, HOT = 400_000, 80_000
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA mmap_size = 2147418112")
db.execute("PRAGMA synchronous = OFF")
db.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, value BLOB)")
if db.execute("SELECT count(*) FROM rows").fetchone()[0] != ROWS:
    db.execute("DELETE FROM rows")
    db.executemany("INSERT INTO rows VALUES (?, ?)", ((i, b"x" * 1000) for i in range(ROWS)))
    db.commit()
# Map all of it.
db.execute("SELECT sum(length(value)) FROM rows").fetchone()
order = list(range(0, ROWS // 2, ROWS // 2 // HOT))
random.Random(1).shuffle(order)
total = rounds = 0
while True:
    for at in range(0, len(order), 400):
        began = time.monotonic()
        for row in order[at : at + 400]:
            total += len(db.execute("SELECT value FROM rows WHERE id = ?", (row,)).fetchone()[0])
        time.sleep(max(0.0, began + 0.01 - time.monotonic()))
    rounds += 1
    if rounds == 1:
        print("ready", flush=True)
