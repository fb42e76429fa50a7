# SPDX-License-Identifier: Apache-2.0
"""Noise in training."""

import paddle

from ... import _names, _ops
from ...tensor.shape_argument import sizes


def dropout(x, p=0.5, axis=None, training=True, mode="upscale_in_train", name=None):
    """Zero with probability p, for each element.

    axis: draw one number for all elements along the axes that are not named.
    mode: 'upscale_in_train' divides by 1 - p in training; 'downscale_in_infer'
    multiplies by it outside training.
    """
    if p == 0:
        return x
    if axis is None:
        axes = None
    else:
        axes = [axis] if isinstance(axis, int) else list(axis)
    if mode == "downgrade_in_infer":
        mode = "downscale_in_infer"
    return _ops.dropout(x, p, not training, mode, axes)[0]


def _per_channel(x, p, training, data_format, rank, formats, function):
    if len(x.shape) != rank:
        raise ValueError(
            f"{function}: x must have {rank} dimensions, but has shape {list(x.shape)}"
        )
    if data_format not in formats:
        raise ValueError(
            f"{function}: data_format must be one of {formats}, but is '{data_format}'"
        )
    axis = [0, rank - 1] if data_format[-1] == "C" else [0, 1]
    return dropout(x, p, axis, training)


def dropout2d(x, p=0.5, training=True, data_format="NCHW", name=None):
    """dropout() of whole channels of [N, C, H, W]."""
    return _per_channel(x, p, training, data_format, 4, ("NCHW", "NHWC"), "dropout2d")


def dropout3d(x, p=0.5, training=True, data_format="NCDHW", name=None):
    """dropout() of whole channels of [N, C, D, H, W]."""
    return _per_channel(x, p, training, data_format, 5, ("NCDHW", "NDHWC"), "dropout3d")


def alpha_dropout(x, p=0.5, training=True, name=None):
    """dropout() that keeps mean and variance after selu()."""
    if not 0 <= p <= 1:
        raise ValueError(f"alpha_dropout: p is {p} but must lie in [0, 1]")
    if p == 0 or not training:
        return x
    if p == 1:
        return x * 0.0
    low = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717
    a = ((1 - p) * (1 + p * low * low)) ** -0.5
    b = -a * low * p
    keep = paddle.bernoulli(paddle.full(sizes(x), 1 - p, x.dtype))
    return (x * keep + low * (1.0 - keep)) * a + b


__all__ = _names.own(globals())
