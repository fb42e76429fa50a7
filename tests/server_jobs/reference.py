# SPDX-License-Identifier: Apache-2.0
"""What ps_trainer computes, in numpy and in one process."""

import numpy as np

RATE = np.float32(0.125)
NUM_WEIGHTS = 1000


def keys_at(step, worker, batch, keys):
    place = np.arange(batch, dtype=np.int64)
    return (step * 7919 + worker * 104729 + place * 1299709 + 17) % keys


def begin(keys, dim):
    rows = np.full((keys, dim), 0.25, np.float32)
    weights = np.arange(NUM_WEIGHTS, dtype=np.float32) / NUM_WEIGHTS
    return rows, weights


def train(steps, *, workers=2, keys=1000, dim=4, batch=64):
    """Synchronous training: the mean over workers of what each one's batch gives."""
    rows, weights = begin(keys, dim)
    key, column = np.arange(keys)[:, None], np.arange(dim)[None, :]
    target = ((key * 31 + column * 7) % 17).astype(np.float32) / 17 - np.float32(0.5)
    for step in range(steps):
        total = np.zeros_like(rows)
        for worker in range(workers):
            at = keys_at(step, worker, batch, keys)
            np.add.at(total, at, rows[at] - target[at])
        rows -= RATE * total / workers
        mean = sum((weights - 0.5) * (1 + worker) for worker in range(workers))
        weights = (weights - RATE * mean / workers).astype(np.float32)
    return rows, weights


def count(steps, *, workers=2, keys=1000, dim=4, batch=64):
    """Every gradient is one: rows tell how often each key was pushed."""
    rows, weights = begin(keys, dim)
    for step in range(steps):
        for worker in range(workers):
            np.subtract.at(rows, keys_at(step, worker, batch, keys), RATE)
    return rows, weights - RATE * steps * workers
