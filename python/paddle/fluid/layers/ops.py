# SPDX-License-Identifier: Apache-2.0
"""Functions of each element."""

from ... import (
    _names,
    abs,
    ceil,
    cos,
    exp,
    floor,
    log,
    reciprocal,
    round,
    rsqrt,
    sin,
    sqrt,
    square,
)
from ...nn import functional as _F
from ...nn.functional import elu, gelu, relu, relu6, sigmoid, softplus, softsign, tanh


def leaky_relu(x, alpha=0.02, name=None):
    return _F.leaky_relu(x, alpha)


def hard_sigmoid(x, slope=0.2, offset=0.5, name=None):
    return _F.hardsigmoid(x, slope, offset)


def swish(x, beta=1.0, name=None):
    return x * _F.sigmoid(x * beta)


def pow(x, factor=1.0, name=None):
    return x**factor


__all__ = _names.gathered(globals())
