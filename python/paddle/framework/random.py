# SPDX-License-Identifier: Apache-2.0
"""The random state of the process."""

from .. import _core
from .place import device_of


class Generator:
    """The generator that random functions draw from."""

    def __init__(self, seed):
        self._initial_seed = seed

    def initial_seed(self):
        return self._initial_seed

    def manual_seed(self, value):
        return seed(value)


def seed(value):
    """Starts all random functions, on every device, from `value`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"a seed is an integer, not {type(value).__name__}")
    value = value.__index__()
    _core.manual_seed(value % 2**64)
    return Generator(value)


def get_rng_state(device="cpu"):
    """The state of the generators of `device`, to be given to set_rng_state()."""
    return _core.get_rng_state(device_of(device))


def set_rng_state(state, device="cpu"):
    """Goes on from a state that get_rng_state() gave."""
    _core.set_rng_state(device_of(device), state)


def get_cuda_rng_state():
    """The states of the generators of all GPUs, as a list."""
    return [_core.get_rng_state(f"cuda:{i}") for i in range(_core.num_cuda_devices())]


def set_cuda_rng_state(state_list):
    """Goes on from what get_cuda_rng_state() gave."""
    for i, state in enumerate(state_list):
        _core.set_rng_state(f"cuda:{i}", state)
