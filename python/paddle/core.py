# SPDX-License-Identifier: Apache-2.0
"""The names of the old C++ module that scripts reach for."""

from . import _core, _names
from ._later import explain, on_first_use
from .framework import dtype as _dtype
from .framework.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)

VarBase = _core.EagerTensor

# What a failed check raised; ops now raise ValueError and the like.
EnforceNotMet = Exception


class EOFException(Exception):
    """Raised by a reader of a static program when its data are used up."""


class VarDesc:
    class VarType:
        LOD_TENSOR = 7
        SELECTED_ROWS = 8
        FEED_MINIBATCH = 9
        FETCH_LIST = 10
        STEP_SCOPES = 11
        LOD_RANK_TABLE = 12
        LOD_TENSOR_ARRAY = 13
        PLACE_LIST = 14
        READER = 15
        RAW = 17
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


class op_proto_and_checker_maker:
    """What operations are there for, and under which attributes they say so."""

    class OpRole:
        Forward = 0
        Backward = 1
        Optimize = 2
        RPC = 4
        Dist = 8
        LRSched = 16
        Loss = 256

    @staticmethod
    def kOpRoleAttrName():
        return "op_role"

    @staticmethod
    def kOpRoleVarAttrName():
        return "op_role_var"

    @staticmethod
    def kOpNameScopeAttrName():
        return "op_namescope"

    @staticmethod
    def kOpDeviceAttrName():
        return "op_device"


class LoDTensorArray(list):
    """A list of LoDTensors."""


__getattr__ = on_first_use(
    __name__,
    {
        "LoDTensor": (".static.executor", "LoDTensor"),
        "ProgramDesc": (".static.program", "ProgramDesc"),
        "Scope": (".static.executor", "Scope"),
        "Tensor": (".static.executor", "LoDTensor"),
        "globals": (".fluid.flags", "flags"),
    },
    explain(
        __name__,
        the_C_interface_of_Paddle="Executor",
        the_binding_of_Gloo="Gloo",
    ),
)

__all__ = _names.gathered(globals())
