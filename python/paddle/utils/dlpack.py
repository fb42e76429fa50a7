# SPDX-License-Identifier: Apache-2.0
"""Tensors to and from other libraries, over the same memory."""

from .. import _core


def to_dlpack(x):
    """A DLPack capsule over the memory of `x`, to be consumed once."""
    if not isinstance(x, _core.Tensor):
        raise TypeError(f"to_dlpack: x must be a Tensor, but got {type(x).__name__}")
    return x.__dlpack__()


def from_dlpack(dlpack):
    """A Tensor over the memory of a DLPack capsule, or of an object that can give
    one (`__dlpack__`), such as an array of numpy or a tensor of torch."""
    if type(dlpack).__name__ != "PyCapsule" and not hasattr(dlpack, "__dlpack__"):
        raise TypeError(
            "from_dlpack: dlpack must be a DLPack capsule or have __dlpack__, but got "
            + type(dlpack).__name__
        )
    return _core.from_dlpack(dlpack)
