# SPDX-License-Identifier: Apache-2.0
"""What Paddle 1.x kept beside its layers."""

from ..._later import explain
from . import layers
from .layers import sparse_embedding

__all__ = ["layers", "sparse_embedding"]

__getattr__ = explain(__name__, mixed_precision="mixed_precision", slimming="slim")
