# SPDX-License-Identifier: Apache-2.0
"""Eager mode as Paddle 1.x spelt it."""

from ... import _names
from ..._later import on_first_use
from ...autograd import grad, no_grad
from ...nn import BatchNorm, Layer, LayerList, ParameterList, Sequential
from . import base, checkpoint, learning_rate_scheduler, nn, parallel
from .base import (
    disable_dygraph,
    enable_dygraph,
    enabled,
    guard,
    to_variable,
)
from .checkpoint import load_dygraph, save_dygraph
from .learning_rate_scheduler import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LinearLrWarmup,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
)
from .nn import Conv2D, Dropout, Embedding, LayerNorm, Linear, Pool2D
from .parallel import DataParallel, ParallelEnv, prepare_context

# Programs of layers, which eager scripts seldom need.
__getattr__ = on_first_use(
    __name__,
    {
        "ProgramTranslator": ("...jit", "ProgramTranslator"),
        "TracedLayer": ("...jit", "TracedLayer"),
        "TranslatedLayer": ("...jit", "TranslatedLayer"),
        "declarative": ("...jit", "declarative"),
        "dygraph_to_static_func": ("...jit", "declarative"),
        "jit": ("...jit",),
    },
)

__all__ = _names.gathered(globals())
