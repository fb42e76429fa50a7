# SPDX-License-Identifier: Apache-2.0
"""For the tests of paddle.io: datasets, and whether anything is left behind."""

import gc
import os
import time

import numpy as np
import paddle
import pytest
from paddle.io import Dataset, IterableDataset, get_worker_info


def num(value):
    return value.numpy() if isinstance(value, paddle.Tensor) else np.asarray(value)


class Squares(Dataset):
    """Sample i: a 2x3 array full of i, and i squared as a Python int."""

    def __init__(self, size):
        self.size = size

    def __getitem__(self, i):
        return np.full((2, 3), i, "float32"), i * i

    def __len__(self):
        return self.size


class Count(IterableDataset):
    """0 .. n-1, divided among the workers by turns."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.n, step):
            yield np.array([i], "int64")


class Images(Dataset):
    """Large enough that batches are lent rather than copied."""

    def __init__(self, size, side=64):
        self.size = size
        self.side = side

    def __getitem__(self, i):
        return np.full((3, self.side, self.side), i % 251, "uint8"), np.int64(i)

    def __len__(self):
        return self.size


class Call(Dataset):
    """Sample i is what `function(i)` returns."""

    def __init__(self, size, function):
        self.size = size
        self.function = function

    def __getitem__(self, i):
        return self.function(i)

    def __len__(self):
        return self.size


def children():
    return {
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if status_of(pid)[1] == os.getpid()
    }


def status_of(pid):
    """State and parent of a process; ("", 0) if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rsplit(")", 1)[1].split()[:2]
            return state, int(parent)
    except (FileNotFoundError, ProcessLookupError):
        return "", 0


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def leaves_nothing():
    """The test ends with the processes, descriptors and files it began with."""
    gc.collect()
    before = children(), descriptors()
    shared_memory = set(os.listdir("/dev/shm"))
    yield
    gc.collect()
    assert (children(), descriptors()) == before
    # Other programs come and go there: what a test has left is there at every look.
    left = set(os.listdir("/dev/shm")) - shared_memory
    end = time.monotonic() + 60
    while left and time.monotonic() < end:
        time.sleep(0.05)
        left &= set(os.listdir("/dev/shm"))
    assert not left
