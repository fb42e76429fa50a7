# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rates."""

from . import lr
from .optimizer import Optimizer
from .rules import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Lamb,
    Lars,
    LarsMomentum,
    Momentum,
    RMSProp,
)

__all__ = [
    "Optimizer",
    "SGD",
    "Momentum",
    "Adam",
    "AdamW",
    "Adagrad",
    "Adamax",
    "RMSProp",
    "Adadelta",
    "Lamb",
    "Lars",
    "LarsMomentum",
    "Ftrl",
    "lr",
]
