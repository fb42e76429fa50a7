# SPDX-License-Identifier: Apache-2.0
"""What Paddle 1.x kept beside its layers."""

from ..._later import explain, on_first_use
from . import layers
from .layers import sparse_embedding

__getattr__ = on_first_use(
    __name__,
    {"mixed_precision": (".mixed_precision",)},
    explain(__name__, slimming="slim"),
)
