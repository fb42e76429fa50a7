# SPDX-License-Identifier: Apache-2.0
"""Element types: `paddle.float32` and its kin, and how other spellings become one."""

import builtins

from .._core import DType
from .._core import get_default_dtype as _get_default
from .._core import set_default_dtype as _set

dtype = DType

bool = DType.bool
uint8 = DType.uint8
int8 = DType.int8
int16 = DType.int16
int32 = DType.int32
int64 = DType.int64
float16 = DType.float16
bfloat16 = DType.bfloat16
float32 = DType.float32
float64 = DType.float64
complex64 = DType.complex64
complex128 = DType.complex128

DType.__module__ = "paddle._core"  # where pickle finds it
DType.__repr__ = DType.__str__ = lambda self: f"paddle.{self.name}"

_BY_NAME = {t.name: t for t in DType if t is not DType.none}
_BY_NAME.update(float=float32, double=float64, half=float16, int=int64)
_BY_PYTHON_TYPE = {builtins.bool: bool, int: int64, float: float32}


def convert(value):
    """The element type that `value` names: a paddle dtype, a string such as
    'float32', a numpy dtype or type, or Python's bool, int or float. None stays
    "the op decides"."""
    if isinstance(value, DType):
        return value
    if value is None:
        return DType.none
    if isinstance(value, str):
        name = value.removeprefix("paddle.")
    elif value in _BY_PYTHON_TYPE:
        return _BY_PYTHON_TYPE[value]
    else:
        name = getattr(value, "name", None) or getattr(value, "__name__", None)
        if name is None or name not in _BY_NAME:
            import numpy

            try:
                name = numpy.dtype(value).name
            except TypeError:
                name = str(value)
    try:
        return _BY_NAME[name]
    except KeyError:
        raise TypeError(
            f"'{value}' is no element type; the known ones are "
            + ", ".join(t.name for t in DType if t is not DType.none)
        ) from None


def is_known(name):
    """Whether the string `name` names an element type."""
    return name.removeprefix("paddle.") in _BY_NAME


def convert_dtype(value):
    """The name of the element type, as numpy spells it: 'float32'."""
    return convert(value).name


def set_default_dtype(d):
    """Sets the type that floating-point tensors are created with."""
    kind = convert(d)
    if kind not in (float16, float32, float64, bfloat16):
        raise TypeError(f"the default dtype must be a floating-point type, not {d}")
    _set(kind)


def get_default_dtype():
    """The name of the type that floating-point tensors are created with."""
    return _get_default().name


def is_floating(value):
    return convert(value) in (float16, bfloat16, float32, float64)
