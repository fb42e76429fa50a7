# SPDX-License-Identifier: Apache-2.0
"""Switching eager mode on, and variables from arrays."""

import contextlib

import paddle

from ...autograd import grad, no_grad


def enabled():
    """Whether functions compute at once."""
    return paddle.in_dynamic_mode()


def enable_dygraph(place=None):
    paddle.disable_static(place)


def disable_dygraph():
    paddle.enable_static()


@contextlib.contextmanager
def guard(place=None):
    """Eager mode inside of the `with` block, on `place`."""
    was_static = not paddle.in_dynamic_mode()
    device = paddle.get_device()
    paddle.disable_static(place)
    try:
        yield
    finally:
        paddle.set_device(device)
        if was_static:
            paddle.enable_static()


def to_variable(value, name=None, zero_copy=None, dtype=None):
    """A Tensor of an array, a list or a number; a Tensor is returned as it is."""
    if paddle.is_tensor(value):
        return value if dtype is None else paddle.cast(value, dtype)
    tensor = paddle.to_tensor(value, dtype=dtype)
    if name is not None:
        tensor.name = name
    return tensor
