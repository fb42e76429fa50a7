# SPDX-License-Identifier: Apache-2.0
"""Names of Paddle 1.x, for the scripts that still use them.

Everything here is another name, or another order of arguments, for what the rest
of the package does. Arguments that say how Paddle should compute are accepted and have no
effect: use_cudnn, force_cpu, inplace, zero_copy, dtype of a learning rate.
"""

from .. import _names
from .._later import explain as _explain
from .._later import on_first_use as _on_first_use
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
from ..static import InputSpec
from ..static import data as _data
from ..utils import unique_name
from . import (
    backward,
    clip,
    compiler,
    core,
    data_feeder,
    dygraph,
    executor,
    framework,
    initializer,
    input,
    io,
    layers,
    lod_tensor,
    metrics,
    nets,
    optimizer,
    param_attr,
    regularizer,
)
from .backward import append_backward, gradients
from .compiler import CompiledProgram
from .core import LoDTensor, LoDTensorArray, Scope, Tensor
from .data_feeder import DataFeeder
from .dygraph import disable_dygraph, enable_dygraph, load_dygraph, save_dygraph
from .executor import Executor, FetchHandler, global_scope, scope_guard
from .flags import get_flags, set_flags
from .framework import (
    Parameter,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    device_guard,
    name_scope,
    program_guard,
    require_version,
)
from .input import embedding, one_hot
from .io import DataLoader, load, save
from .lod_tensor import create_lod_tensor, create_random_int_lodtensor
from .parallel_executor import BuildStrategy, ExecutionStrategy, ParallelExecutor


def data(name, shape, dtype="float32", lod_level=0):
    """A variable that a run is fed. None or -1 in `shape` is known only then."""
    return _data(name, shape, dtype, lod_level)


def memory_optimize(
    input_program, skip_opt_set=None, print_log=False, level=0, skip_grads=True
):
    """Does nothing: the executor plans memory by itself."""


def release_memory(input_program, skip_opt_set=None):
    """Does nothing: the executor plans memory by itself."""


__getattr__ = _on_first_use(
    __name__,
    {
        "DatasetFactory": (".dataset", "DatasetFactory"),
        "DistributeTranspiler": (".transpiler", "DistributeTranspiler"),
        "DistributeTranspilerConfig": (".transpiler", "DistributeTranspilerConfig"),
        "communicator": (".communicator",),
        "contrib": (".contrib",),
        "dataset": (".dataset",),
        "incubate": (".incubate",),
        "transpiler": (".transpiler",),
    },
    _explain(
        __name__,
        servers_of_pslib="DataFeedDesc distributed",
        measuring="profiler average evaluator install_check",
    ),
)

__all__ = _names.gathered(
    globals(),
    "backward clip compiler core data_feeder dygraph executor framework initializer "
    "input io layers lod_tensor metrics nets optimizer param_attr regularizer "
    "unique_name",
)
