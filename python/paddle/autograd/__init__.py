# SPDX-License-Identifier: Apache-2.0
"""Gradients: when they are recorded, and how to ask for them."""

from .. import _names
from .backward_mode import backward, grad
from .grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .py_layer import PyLayer, PyLayerContext

__all__ = _names.gathered(globals())
