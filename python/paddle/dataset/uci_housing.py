# SPDX-License-Identifier: Apache-2.0
"""Boston housing: 13 features, centred and scaled by range, and the price."""

import numpy as np

from .common import download

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
NUM_COLUMNS = 14
# The first of the rows are for training.
TRAIN_SHARE = 0.8

feature_names = "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT".split()


def train():
    """A reader of (float64[13], float64[1])."""
    return _reader(lambda rows: rows[: int(len(rows) * TRAIN_SHARE)])


def test():
    """As train, over the remaining rows."""
    return _reader(lambda rows: rows[int(len(rows) * TRAIN_SHARE) :])


def _reader(part):
    path = download(URL, "uci_housing")

    def read():
        for row in part(_load(path)):
            yield row[:-1], row[-1:]

    return read


def _load(path):
    values = np.fromfile(path, sep=" ")
    if values.size == 0 or values.size % NUM_COLUMNS:
        raise ValueError(
            f"{path}: {values.size} numbers, which are no rows of {NUM_COLUMNS}"
        )
    rows = values.reshape(-1, NUM_COLUMNS)
    features = rows[:, :-1]
    extent = features.max(axis=0) - features.min(axis=0)
    extent[extent == 0] = 1
    rows[:, :-1] = (features - features.mean(axis=0)) / extent
    return rows
