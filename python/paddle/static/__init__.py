# SPDX-License-Identifier: Apache-2.0
"""Programs: what a step computes, built once and run many times."""

from .. import _names
from .._core import Variable
from .._later import on_first_use
from ..framework.param_attr import WeightNormParamAttr
from ..framework.place import cpu_places, cuda_places
from . import nn
from .backward import append_backward, gradients
from .compiled import (
    BuildStrategy,
    CompiledProgram,
    ExecutionStrategy,
    ParallelExecutor,
)
from .executor import Executor, Scope, global_scope, scope_guard
from .global_variable import create_global_var
from .input import InputSpec, data
from .io import (
    deserialize_persistables,
    deserialize_program,
    load,
    load_from_file,
    load_inference_model,
    load_program_state,
    load_vars,
    normalize_program,
    save,
    save_inference_model,
    save_to_file,
    save_vars,
    serialize_persistables,
    serialize_program,
    set_program_state,
)
from .metric import accuracy, auc
from .nn import create_parameter
from .program import (
    Program,
    default_main_program,
    default_startup_program,
    device_guard,
    name_scope,
    program_guard,
)
from .python_ops import Print, py_func

__getattr__ = on_first_use(__name__, {"amp": (".amp",)})

__all__ = _names.gathered(globals(), "nn")
