# SPDX-License-Identifier: Apache-2.0
"""Layers that drop parts of their input while training."""

from ... import _names
from .. import functional as F
from .layers import Layer


def _check_probability(name, p):
    if isinstance(p, bool) or not isinstance(p, (int, float)):
        raise TypeError(f"{name}: p must be a number, but got {type(p).__name__}")
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: p must lie between 0 and 1, but is {p}")


class Dropout(Layer):
    """Sets elements to zero with probability `p` while training.

    mode: 'upscale_in_train' divides the rest by 1 - p while training;
    'downscale_in_infer' multiplies by 1 - p in evaluation instead. axis: the
    dimensions with a choice of their own; the others share it.
    """

    def __init__(self, p=0.5, axis=None, mode="upscale_in_train", name=None):
        super().__init__()
        _check_probability("Dropout", p)
        self.p = p
        self.axis = axis
        self.mode = mode

    def forward(self, input):
        return F.dropout(
            input, p=self.p, axis=self.axis, training=self.training, mode=self.mode
        )

    def extra_repr(self):
        return f"p={self.p}, axis={self.axis}, mode={self.mode}"


class Dropout2D(Layer):
    """Sets whole channels of images to zero with probability `p` while training."""

    def __init__(self, p=0.5, data_format="NCHW", name=None):
        super().__init__()
        _check_probability("Dropout2D", p)
        self.p = p
        self.data_format = data_format

    def forward(self, input):
        return F.dropout2d(
            input, p=self.p, training=self.training, data_format=self.data_format
        )

    def extra_repr(self):
        return f"p={self.p}, data_format={self.data_format}"


class Dropout3D(Layer):
    """Sets whole channels of volumes to zero with probability `p` while training."""

    def __init__(self, p=0.5, data_format="NCDHW", name=None):
        super().__init__()
        _check_probability("Dropout3D", p)
        self.p = p
        self.data_format = data_format

    def forward(self, input):
        return F.dropout3d(
            input, p=self.p, training=self.training, data_format=self.data_format
        )

    def extra_repr(self):
        return f"p={self.p}, data_format={self.data_format}"


class AlphaDropout(Layer):
    """Dropout that keeps mean and variance, for networks with SELU."""

    def __init__(self, p=0.5, name=None):
        super().__init__()
        _check_probability("AlphaDropout", p)
        self.p = p

    def forward(self, input):
        return F.alpha_dropout(input, p=self.p, training=self.training)

    def extra_repr(self):
        return f"p={self.p}"


__all__ = _names.own(globals())
