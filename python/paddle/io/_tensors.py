# SPDX-License-Identifier: Apache-2.0
"""The one place where paddle.io meets tensors and the core's random state."""

from collections.abc import Mapping

import numpy as np

from .. import _core

# Array kinds that a tensor can hold; others (strings, objects) stay as they are.
NUMERIC_KINDS = "biufc"


def is_tensor(value):
    return isinstance(value, _core.Tensor)


def to_numpy(value):
    """`value` as numpy data if it is a tensor, else `value` itself."""
    return value._numpy_view() if isinstance(value, _core.Tensor) else value


def adopt(array):
    """A tensor over the memory of `array`, which must be nobody else's.

    The tensor keeps `array` alive. On a device other than the CPU it is a copy.
    """
    tensor = _core.from_dlpack(array)
    device = _core.get_device()
    return tensor if device == "cpu" else tensor._to(device, True)


def default_float():
    """The dtype that Python floats become."""
    return np.dtype(_core.get_default_dtype().name)


def draw_seed():
    """A number from paddle's generator: differs each time, follows paddle.seed."""
    return _core.draw_seed() >> 1  # so that small sums stay 64 bits


def numpy_generator():
    """A numpy generator that follows paddle.seed."""
    return np.random.default_rng(draw_seed())


def enter_worker():
    """Prepares the core in a process that was just forked.

    Threads and devices of the parent do not exist here.
    """
    _core.set_num_threads(1)
    _core.set_device("cpu")


def seed_core(seed):
    """Seeds the generator of a worker process."""
    _core.seed_cpu(seed)


def to_tensors(batch, owned):
    """`batch` with every numeric array in its lists and dicts made a tensor.

    Lists, tuples and mappings are rebuilt; everything else passes through. The
    tensors take the arrays' memory if it is `owned` by nobody else, and copy
    them if not.
    """
    if isinstance(batch, np.ndarray):
        if batch.dtype.kind not in NUMERIC_KINDS:
            return batch
        return adopt(batch) if owned else _core.from_object(batch)
    kind = type(batch)
    if kind is list:
        return [to_tensors(field, owned) for field in batch]
    if isinstance(batch, tuple):
        fields = [to_tensors(field, owned) for field in batch]
        return kind(*fields) if hasattr(kind, "_fields") else kind(fields)
    if isinstance(batch, Mapping):
        return {key: to_tensors(field, owned) for key, field in batch.items()}
    return batch
