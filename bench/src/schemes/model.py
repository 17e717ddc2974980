# Trains a linear model on hashed words, as text classifiers do. Words use scattered places of a large table
# of weights, frequent words again and again. Argument: the number of steps.
import sys

import numpy as np

TABLE = 1 << 24  # weights of 8 bytes: 128 MiB
WORDS = 6_000
BATCH = 4_000

random = np.random.default_rng(1)
weights = np.zeros(TABLE)
places = random.permutation(WORDS).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
examples = random.random((2_000, 2_000))  # 32 MB, read once
weights[places] = examples[: WORDS // 2_000].ravel()
mean = examples.mean()

error = 0.0
for step in range(int(sys.argv[1])):
    words = random.zipf(1.3, BATCH) % WORDS
    used = places[words]
    answer = weights[used] * mean
    error += float(answer.sum())
    np.subtract.at(weights, used, answer * 1e-3)
print(error)
