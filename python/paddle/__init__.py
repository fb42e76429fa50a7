# SPDX-License-Identifier: Apache-2.0
"""Train on one machine, then on many, with the scripts you have.

The package is a thin layer over libfleet: it composes and checks arguments; all
computing happens in C++.
"""

from . import _later, framework
from ._core import DataLossError
from ._core import EagerTensor as Tensor
from .autograd import enable_grad, grad, is_grad_enabled, no_grad, set_grad_enabled
from .batch import batch
from .framework.dtype import (
    bfloat16,
    bool,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
)
from .framework.mode import disable_static, enable_static, in_dynamic_mode
from .framework.param_attr import ParamAttr
from .framework.parameter import create_parameter
from .framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    XPUPlace,
    get_cudnn_version,
    get_device,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
    set_device,
)
from .framework.random import (
    get_cuda_rng_state,
    get_rng_state,
    seed,
    set_cuda_rng_state,
    set_rng_state,
)
from .tensor.attribute import *
from .tensor.creation import *
from .tensor.inplace import tanh_
from .tensor.linalg import (
    addmm,
    bmm,
    cholesky,
    cross,
    dist,
    dot,
    inverse,
    kron,
    matmul,
    mm,
    mv,
    norm,
    t,
    trace,
)
from .tensor.logic import *
from .tensor.manipulation import *
from .tensor.math import *
from .tensor.random import *
from .tensor.search import *
from .tensor.stat import *
from .tensor.to_string import set_printoptions
from .version import full_version as __version__

# Loaded when first asked for, to keep `import paddle` fast.
_ON_FIRST_USE = {
    "load": (".framework.io", "load"),
    "require_version": (".utils", "require_version"),
    "save": (".framework.io", "save"),
}
for _name in """
    amp
    callbacks
    common_ops_import
    core
    dataset
    distributed
    fluid
    hapi
    inference
    io
    jit
    linalg
    metric
    nn
    onnx
    optimizer
    reader
    regularizer
    static
    utils
    vision
""".split():
    _ON_FIRST_USE[_name] = ("." + _name,)

for _name in ("Model", "flops", "summary"):
    _ON_FIRST_USE[_name] = (".hapi", _name)

_ON_FIRST_USE["DataParallel"] = (".nn.layer.data_parallel", "DataParallel")

__getattr__ = _later.on_first_use(__name__, _ON_FIRST_USE)
