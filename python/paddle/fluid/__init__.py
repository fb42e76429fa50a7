# SPDX-License-Identifier: Apache-2.0
"""Names of Paddle 1.x, for the scripts that still use them.

Everything here is another name, or another order of arguments, for what the rest
of the package does. What builds static programs raises and says so.
"""

from .._later import explain as _explain
from ..batch import batch
from ..framework.mode import in_dynamic_mode as in_dygraph_mode
from ..framework.param_attr import ParamAttr, WeightNormParamAttr
from ..framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_places,
    is_compiled_with_cuda,
)
from ..utils import unique_name
from . import (
    clip,
    core,
    dygraph,
    framework,
    initializer,
    io,
    layers,
    metrics,
    optimizer,
    param_attr,
    regularizer,
)
from .dygraph import disable_dygraph, enable_dygraph, load_dygraph, save_dygraph
from .framework import Parameter, Variable, require_version
from .input import one_hot
from .io import DataLoader

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "DataLoader",
    "ParamAttr",
    "Parameter",
    "Variable",
    "WeightNormParamAttr",
    "batch",
    "clip",
    "core",
    "cpu_places",
    "cuda_places",
    "disable_dygraph",
    "dygraph",
    "enable_dygraph",
    "framework",
    "in_dygraph_mode",
    "initializer",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "load_dygraph",
    "metrics",
    "one_hot",
    "optimizer",
    "param_attr",
    "regularizer",
    "require_version",
    "save_dygraph",
    "unique_name",
]

__getattr__ = _explain(
    __name__,
    static_graphs="Executor Program program_guard default_main_program "
    "default_startup_program data embedding DataFeeder DataFeedDesc DatasetFactory "
    "LoDTensor LoDTensorArray Tensor Scope global_scope scope_guard name_scope "
    "device_guard CompiledProgram BuildStrategy ExecutionStrategy ParallelExecutor "
    "create_lod_tensor create_random_int_lodtensor memory_optimize "
    "release_memory append_backward gradients nets backward compiler executor "
    "profiler contrib average evaluator install_check save load",
    the_parameter_server="DistributeTranspiler DistributeTranspilerConfig transpiler "
    "incubate communicator distributed",
)
