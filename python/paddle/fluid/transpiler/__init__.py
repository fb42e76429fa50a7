# SPDX-License-Identifier: Apache-2.0
"""Programs for one machine made into programs for many, by hand.

New scripts use paddle.distributed.fleet, which does the same.
"""

from ... import _names
from . import distribute_transpiler, ps_dispatcher
from .distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig
from .ps_dispatcher import HashName, RoundRobin


def memory_optimize(
    input_program, skip_opt_set=None, print_log=False, level=0, skip_grads=True
):
    """Does nothing: the executor plans memory by itself."""


def release_memory(input_program, skip_opt_set=None):
    """Does nothing: the executor plans memory by itself."""


__all__ = _names.gathered(globals(), "distribute_transpiler ps_dispatcher")
