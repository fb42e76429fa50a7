# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping under its old names."""

from .._later import explain
from ..nn.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue

GradientClipByValue = ClipGradByValue
GradientClipByNorm = ClipGradByNorm
GradientClipByGlobalNorm = ClipGradByGlobalNorm

__all__ = [
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
]

__getattr__ = explain(__name__, static_graphs="set_gradient_clip ErrorClipByValue")
