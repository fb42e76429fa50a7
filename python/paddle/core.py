# SPDX-License-Identifier: Apache-2.0
"""The names of the old C++ module that scripts reach for."""

from . import _core
from ._later import explain
from .framework import dtype as _dtype
from .framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "VarBase",
    "VarDesc",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
    "is_compiled_with_xpu",
]

VarBase = _core.Tensor

# What a failed check raised; ops now raise ValueError and the like.
EnforceNotMet = Exception


class EOFException(Exception):
    """Raised by a reader of a static program when its data are used up."""


class VarDesc:
    class VarType:
        BOOL = _dtype.bool
        INT8 = _dtype.int8
        UINT8 = _dtype.uint8
        INT16 = _dtype.int16
        INT32 = _dtype.int32
        INT64 = _dtype.int64
        FP16 = _dtype.float16
        BF16 = _dtype.bfloat16
        FP32 = _dtype.float32
        FP64 = _dtype.float64


def get_cuda_device_count():
    return _core.num_cuda_devices()


__getattr__ = explain(
    __name__,
    static_graphs="Scope LoDTensor LoDTensorArray ProgramDesc Executor globals",
    the_parameter_server="Gloo",
)
