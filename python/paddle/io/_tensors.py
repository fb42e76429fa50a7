# SPDX-License-Identifier: Apache-2.0
"""The one place where paddle.io meets tensors and the core's random state."""

from collections.abc import Mapping

import numpy as np

# Array kinds that a tensor can hold; others (strings, objects) stay as they are.
NUMERIC_KINDS = "biufc"


def is_tensor(value):
    return False


def to_numpy(value):
    """`value` as numpy data if it is a tensor, else `value` itself."""
    return value


def from_numpy(array):
    """A tensor over the memory of `array`, which it keeps alive."""
    return array


def default_float():
    """The dtype that Python floats become."""
    return np.dtype("float32")


def draw_seed():
    """A number from paddle's generator: differs each time, follows paddle.seed."""
    return int(np.random.randint(0, 2**31))


def numpy_generator():
    """A numpy generator that follows paddle.seed."""
    return np.random.RandomState(draw_seed())


def enter_worker():
    """Prepares the core in a process that was just forked."""


def seed_core(seed):
    """Seeds paddle's generator of this process."""


def to_tensors(batch):
    """`batch` with every numeric array in its lists and dicts made a tensor.

    Lists, tuples and mappings are rebuilt; everything else passes through.
    """
    if isinstance(batch, np.ndarray):
        return from_numpy(batch) if batch.dtype.kind in NUMERIC_KINDS else batch
    kind = type(batch)
    if kind is list:
        return [to_tensors(field) for field in batch]
    if isinstance(batch, tuple):
        fields = [to_tensors(field) for field in batch]
        return kind(*fields) if hasattr(kind, "_fields") else kind(fields)
    if isinstance(batch, Mapping):
        return {key: to_tensors(field) for key, field in batch.items()}
    return batch
