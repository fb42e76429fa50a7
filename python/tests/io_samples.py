# SPDX-License-Identifier: Apache-2.0
"""Datasets for the tests of paddle.io."""

import numpy as np
import paddle
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
