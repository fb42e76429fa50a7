# SPDX-License-Identifier: Apache-2.0
"""What the tests of saved files share."""

import struct

import numpy as np
import paddle
import torch

DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
).split()


def tensor(value, dtype=None):
    return paddle._core.from_object(np.asarray(value, dtype=dtype))


def bfloat16(values):
    bits = torch.tensor(values, dtype=torch.bfloat16).view(torch.int16).numpy()
    return paddle._core.bfloat16_from_bits(bits.view(np.uint16))


def same(a, b):
    """Equal in value and type, arrays bit by bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, paddle.Tensor):
        return a.dtype == b.dtype and same(a.numpy(), b.numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return a == b


class Thing:
    """An object of a kind that no file holds."""
