# SPDX-License-Identifier: Apache-2.0
"""Modes, types of variables, and the check of the version."""

from .._core import Tensor as Variable
from .._later import explain
from ..framework.mode import in_dynamic_mode as in_dygraph_mode
from ..framework.parameter import Parameter
from ..framework.place import (
    CPUPlace,
    CUDAPlace,
    cpu_places,
    cuda_places,
    is_compiled_with_cuda,
)
from ..utils import require_version

__all__ = [
    "CPUPlace",
    "CUDAPlace",
    "ParamBase",
    "Parameter",
    "Variable",
    "cpu_places",
    "cuda_places",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "require_version",
]

ParamBase = Parameter


__getattr__ = explain(
    __name__,
    static_graphs="Program Block Operator program_guard name_scope device_guard "
    "default_main_program default_startup_program switch_main_program "
    "switch_startup_program",
)
