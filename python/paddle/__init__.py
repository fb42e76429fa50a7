# SPDX-License-Identifier: Apache-2.0
"""Train on one machine, then on many, with the scripts you have.

The package is a thin layer over libfleet: it composes and checks arguments; all
computing happens in C++.
"""

import importlib as _importlib

from . import framework
from ._core import Tensor
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
from .framework.io import DataLossError, load, save
from .framework.mode import disable_static, enable_static, in_dynamic_mode
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

# Loaded when first asked for, to keep `import paddle` fast.
_ON_FIRST_USE = {"dataset", "io", "reader"}


def __getattr__(name):
    if name in _ON_FIRST_USE:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'paddle' has no attribute '{name}'")
