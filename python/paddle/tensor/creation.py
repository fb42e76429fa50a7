# SPDX-License-Identifier: Apache-2.0
"""Making tensors: from data, constants, sequences and patterns."""

import numbers

from .. import _core, _names, _ops
from .._core import DType, Tensor, Variable
from .._lib.generated.tensor_creation import *
from ..framework.dtype import convert
from ..framework.mode import in_dynamic_mode
from ..framework.place import device_of
from . import shape_argument

# Integers above this lose digits as the double that an attribute is.
_EXACT = 2**53


# ---- from data


def to_tensor(data, dtype=None, place=None, stop_gradient=True):
    """A tensor with a copy of `data`: a number, an array, nested lists or a Tensor.

    Floating-point numbers and lists take the default dtype, arrays and Tensors keep
    theirs, unless `dtype` says otherwise. A single number gives shape [1].

    In static mode, a Variable that has this value in every run; a Variable stays itself.
    """
    if in_dynamic_mode():
        return computed_tensor(data, dtype, place, stop_gradient)
    x = _variable(data, dtype)
    x.stop_gradient = stop_gradient
    return x


def _variable(data, dtype):
    """`data` as a Variable of the program that is built."""
    kind = convert(dtype)
    if isinstance(data, (list, tuple)) and _holds_variable(data):
        data = _ops.stack([_variable(item, None) for item in data])
    if isinstance(data, Variable):
        if kind is DType.none or data.dtype is kind:
            return data
        return _ops.cast(data, data.dtype, kind)
    value = computed_tensor(data, dtype)
    variable = _core.as_variable(value)
    variable._constant = value
    return variable


def _holds_variable(items):
    return any(
        isinstance(item, Variable)
        or (isinstance(item, (list, tuple)) and _holds_variable(item))
        for item in items
    )


def computed_tensor(data, dtype=None, place=None, stop_gradient=True):
    """What to_tensor() gives in dynamic mode, in either mode."""
    # Here, not above: numpy takes a good part of the time of `import paddle`.
    import numpy as np

    kind = convert(dtype)
    if isinstance(data, Tensor):
        x = _core.from_object(data)
    elif isinstance(data, np.ndarray):
        x = _from_array(data)
    else:
        x = _from_python(data, kind)
    if kind is not DType.none and x.dtype is not kind:
        x = _ops.cast(x, x.dtype, kind)
    device = _target(data, place)
    if x._device != device:
        x = x._to(device, True)
    x.stop_gradient = stop_gradient
    return x


def _target(data, place):
    """The device of the new tensor; a Tensor's copy stays where the Tensor is."""
    if place is None and isinstance(data, Tensor):
        return data._device
    return device_of(place)


def _from_array(array):
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"to_tensor(): an array of type {array.dtype} cannot become a Tensor"
        )
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and array.max() >= 2**63:
            raise ValueError(f"to_tensor(): {array.max()} does not fit int64")
        array = array.astype("int64")
    return _core.from_object(array)


def _from_python(data, kind):
    import numpy as np

    if isinstance(data, (list, tuple)):
        if _holds_tensor(data):
            items = [x if isinstance(x, Tensor) else computed_tensor(x) for x in data]
            return _core.from_object(items)
        try:
            array = np.array(data)
        except ValueError as error:
            raise ValueError(
                f"to_tensor(): the lists do not form a regular array: {error}"
            ) from None
    elif isinstance(data, (numbers.Number, np.generic)):
        array = np.array([data])
    elif hasattr(data, "__array__") or hasattr(data, "__dlpack__"):
        return _from_array(np.asarray(data))
    else:
        raise TypeError(
            "to_tensor(): data must be a number, an array, nested lists of them or a "
            f"Tensor, but got {type(data).__name__}"
        )
    if array.dtype.kind == "O":
        raise TypeError(
            "to_tensor(): the lists hold something that is neither number nor Tensor"
        )
    if kind is not DType.none or array.dtype.kind not in "fc":
        return _from_array(array)
    default = _core.get_default_dtype()
    if array.dtype.kind == "c":
        default = DType.complex128 if default is DType.float64 else DType.complex64
    if default is DType.bfloat16:  # numpy has none
        x = _from_array(array.astype("float32"))
        return _ops.cast(x, DType.float32, default)
    return _from_array(array.astype(default.name, copy=False))


def _holds_tensor(items):
    return any(
        isinstance(item, Tensor)
        or (isinstance(item, (list, tuple)) and _holds_tensor(item))
        for item in items
    )


def assign(x, output=None):
    """A copy of x, a Tensor, array, list or number, that gradients flow through. With
    `output`, that becomes the copy instead; a parameter or buffer stays one, where it
    lies, and takes the values only."""
    if isinstance(output, Variable):
        output._assign_in_place(x if isinstance(x, Tensor) else to_tensor(x))
        return output
    if isinstance(x, Tensor):
        out = _ops.assign(x)
    else:
        out = to_tensor(x)
    if output is None:
        return out
    if not isinstance(output, Tensor):
        raise TypeError(
            "assign(): argument 'output' must be a Tensor, but got "
            f"{type(output).__name__}"
        )
    if output.persistable or (output.is_leaf and not output.stop_gradient):
        output.set_value(out)
    else:
        output._assign_in_place(out)
    return output


# ---- constants


def _default(dtype):
    kind = convert(dtype)
    return _core.get_default_dtype() if kind is DType.none else kind


def _is_number(value):
    if isinstance(value, numbers.Real):
        return True
    import numpy as np

    return isinstance(value, np.generic)


def _fill(function, shape, value, kind):
    dims, tensor = shape_argument.split(function, "shape", shape)
    if type(value) is float:
        return _ops.fill_constant(tensor, None, dims, value, "", kind)
    if isinstance(value, Tensor):
        return _ops.fill_constant(tensor, value, dims, 0.0, "", kind)
    if isinstance(value, int) and abs(value) > _EXACT:
        return _ops.fill_constant(tensor, None, dims, 0.0, str(value), kind)
    if not _is_number(value):
        raise TypeError(
            f"{function}(): argument 'fill_value' must be a number or a Tensor of one "
            f"element, but got {type(value).__name__}"
        )
    return _ops.fill_constant(tensor, None, dims, float(value), "", kind)


def full(shape, fill_value, dtype=None, name=None):
    """A tensor with `fill_value` everywhere."""
    return _fill("full", shape, fill_value, _default(dtype))


def zeros(shape, dtype=None, name=None):
    """A tensor of zeros."""
    return _fill("zeros", shape, 0.0, _default(dtype))


def ones(shape, dtype=None, name=None):
    """A tensor of ones."""
    return _fill("ones", shape, 1.0, _default(dtype))


def empty(shape, dtype=None, name=None):
    """A tensor with whatever its memory held before."""
    dims, tensor = shape_argument.split("empty", "shape", shape)
    return _ops.empty(tensor, dims, _default(dtype))


def full_like(x, fill_value, dtype=None, name=None):
    """A tensor of the shape and type of x with `fill_value` everywhere."""
    if isinstance(fill_value, int) and abs(fill_value) > _EXACT:
        kind = x.dtype if dtype is None else convert(dtype)
        return _fill("full_like", _ops.shape(x), fill_value, kind)
    return _ops.fill_any_like(x, fill_value, convert(dtype))


# ---- sequences and patterns


def _bounds(function, **bounds):
    """The numbers among the bounds as floats and the tensors, by name."""
    values, tensors = {}, {}
    for name, value in bounds.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, int) and abs(value) > _EXACT:
            raise ValueError(
                f"{function}(): argument '{name}' is {value}, but must lie within 2**53"
            )
        elif _is_number(value):
            values[name] = float(value)
        else:
            raise TypeError(
                f"{function}(): argument '{name}' must be a number or a Tensor of one "
                f"element, but got {type(value).__name__}"
            )
    return values, tensors


def _is_integral(value):
    if isinstance(value, Tensor):
        return value.dtype in (DType.int32, DType.int64, DType.int16, DType.uint8)
    return isinstance(value, numbers.Integral)


def arange(start=0, end=None, step=1, dtype=None, name=None):
    """Numbers from start on, by steps, before end; arange(n) goes from 0 to n."""
    if end is None:
        start, end = 0, start
    values, tensors = _bounds("arange", start=start, end=end, step=step)
    kind = convert(dtype)
    if kind is DType.none:
        integral = all(_is_integral(value) for value in (start, end, step))
        kind = DType.int64 if integral else _core.get_default_dtype()
    return _ops.range(
        tensors.get("start"),
        tensors.get("end"),
        tensors.get("step"),
        values.get("start"),
        values.get("end"),
        values.get("step"),
        kind,
    )


def linspace(start, stop, num, dtype=None, name=None):
    """`num` numbers in equal steps from start to stop, both included."""
    values, tensors = _bounds("linspace", start=start, stop=stop)
    count, num_tensor = (1, num) if isinstance(num, Tensor) else (num, None)
    return _ops.linspace(
        tensors.get("start"),
        tensors.get("stop"),
        num_tensor,
        values.get("start"),
        values.get("stop"),
        count,
        _default(dtype),
    )


def eye(num_rows, num_columns=None, dtype=None, name=None):
    """A matrix with ones on the diagonal."""
    columns = num_rows if num_columns is None else num_columns
    for argument, value in (("num_rows", num_rows), ("num_columns", columns)):
        if shape_argument.integer("eye", argument, value) < 0:
            raise ValueError(f"eye(): argument '{argument}' is {value}")
    return _ops.eye(num_rows, columns, _default(dtype))


def diagflat(x, offset=0, name=None):
    """A matrix with the elements of x on its diagonal."""
    return _ops.diag_v2(_ops.flatten_contiguous_range(x, 0, -1), offset, 0.0)


def meshgrid(*args, **kwargs):
    """For vectors of n1, n2, ... elements, tensors of shape [n1, n2, ...] in which
    the i-th varies along dimension i only."""
    unknown = set(kwargs) - {"name"}
    if unknown:
        raise TypeError(f"meshgrid(): unknown argument '{unknown.pop()}'")
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = args[0]
    return _ops.meshgrid(list(args))


__all__ = _names.own(globals(), "computed_tensor")
