# SPDX-License-Identifier: Apache-2.0
"""Layers, by kind."""

from . import (
    activation,
    container,
    conv,
    distance,
    dropout,
    layers,
    linear,
    loss,
    norm,
    pooling,
    rnn,
    transformer,
    vision,
)

__all__ = [
    "activation",
    "container",
    "conv",
    "distance",
    "dropout",
    "layers",
    "linear",
    "loss",
    "norm",
    "pooling",
    "rnn",
    "transformer",
    "vision",
]
