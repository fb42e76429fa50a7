# SPDX-License-Identifier: Apache-2.0
"""The collectives under the name that Paddle gives those with a choice of stream."""

from .. import _names
from .collective import (
    all_gather,
    all_reduce,
    alltoall,
    alltoall_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from .point_to_point import recv, send

__all__ = _names.gathered(globals())
