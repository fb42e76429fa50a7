# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rates."""

from .. import _names
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

__all__ = _names.gathered(globals(), "lr")
