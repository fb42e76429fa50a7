# SPDX-License-Identifier: Apache-2.0
"""Modes, programs, types of variables, and the check of the version."""

from .._core import Block, Operator
from .._core import Tensor as Variable
from ..framework.mode import in_dynamic_mode as in_dygraph_mode
from ..framework.parameter import Parameter
from ..framework.place import (
    CPUPlace,
    CUDAPlace,
    cpu_places,
    cuda_places,
    is_compiled_with_cuda,
)
from ..static.program import (
    OpRole,
    Program,
    default_main_program,
    default_startup_program,
    device_guard,
    name_scope,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from ..utils import require_version

ParamBase = Parameter


def grad_var_name(var_name):
    """The name of a variable's gradient."""
    return var_name + "@GRAD"
