# SPDX-License-Identifier: Apache-2.0
"""File systems, and inference with servers."""

from ...._later import explain, on_first_use
from .fs import HDFSClient, LocalFS

__all__ = ["DistributedInfer", "HDFSClient", "LocalFS"]

__getattr__ = on_first_use(
    __name__,
    {"DistributedInfer": (".ps_util", "DistributedInfer"), "ps_util": (".ps_util",)},
    explain(
        __name__,
        recomputation="recompute",
        hybrid_parallel_training="hybrid_parallel_util",
    ),
)
