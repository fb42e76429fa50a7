# SPDX-License-Identifier: Apache-2.0
"""Functions of each element."""

from ... import (
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

__all__ = [
    "abs",
    "ceil",
    "cos",
    "elu",
    "exp",
    "floor",
    "gelu",
    "hard_sigmoid",
    "leaky_relu",
    "log",
    "pow",
    "reciprocal",
    "relu",
    "relu6",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "softplus",
    "softsign",
    "sqrt",
    "square",
    "swish",
    "tanh",
]


def leaky_relu(x, alpha=0.02, name=None):
    return _F.leaky_relu(x, alpha)


def hard_sigmoid(x, slope=0.2, offset=0.5, name=None):
    return _F.hardsigmoid(x, slope, offset)


def swish(x, beta=1.0, name=None):
    return x * _F.sigmoid(x * beta)


def pow(x, factor=1.0, name=None):
    return x**factor
