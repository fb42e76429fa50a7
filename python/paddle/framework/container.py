# SPDX-License-Identifier: Apache-2.0
"""What the files of paddle.save (docs/container_format.md) hold of numpy's: arrays,
numbers and Tensors. The format itself is fleet/saved/container.h."""

import numpy as np

from .. import _core

MAGIC = _core.CONTAINER_MAGIC

# Deeper nesting is a mistake or an attack; Python's own stack is not far away.
MAX_DEPTH = 100
MAX_RANK = 64

# Element types of arrays, as numpy writes them, and of tensors by their name.
ARRAY_DTYPES = {
    np.dtype(code).newbyteorder("<").str
    for code in "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()
}
TENSOR_DTYPES = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "bfloat16": "<u2",  # its bits
    "complex64": "<c8",
    "complex128": "<c16",
}


# Of saved::Blob.
_ARRAY, _SCALAR, _TENSOR = 1, 2, 3


def _leaf(obj, path):
    """Kind, element type, shape, name and memory of what is not Python's own."""
    if isinstance(obj, _core.Tensor):
        return _tensor(obj, path)
    if not isinstance(obj, (np.ndarray, np.generic)):
        kind = type(obj)
        hint = ""
        if hasattr(obj, "state_dict"):
            hint = "; save its state_dict() instead"
        raise TypeError(
            f"paddle.save: {path} is a {kind.__module__}.{kind.__qualname__}, and "
            "only tensors, arrays, numbers, strings, bytes, None and dicts, lists "
            f"and tuples of them can be saved{hint}"
        )
    if obj.dtype.newbyteorder("<").str not in ARRAY_DTYPES:
        raise TypeError(
            f"paddle.save: {path} is an array of {obj.dtype}, and only arrays of "
            "numbers and bools can be saved"
        )
    array = np.asarray(obj, dtype=obj.dtype.newbyteorder("<"), order="C")
    kind = _SCALAR if isinstance(obj, np.generic) else _ARRAY
    return kind, array.dtype.str, list(obj.shape), "", array


def _tensor(tensor, path):
    if tensor.is_sparse():
        raise TypeError(f"paddle.save: {path} is a sparse Tensor: make it dense")
    name = tensor.dtype.name
    if name not in TENSOR_DTYPES:
        raise TypeError(f"paddle.save: {path} is a Tensor of {name}")
    array = np.asarray(
        tensor._numpy_view(), dtype=np.dtype(TENSOR_DTYPES[name]), order="C"
    )
    return _TENSOR, name, list(tensor.shape), tensor.name, array


def write(obj, append):
    """Calls `append` with one buffer after the other, which together are the file."""
    _core.write_container(obj, append, _leaf)


def _made_by(make_tensor):
    def leaf(kind, element, shape, name, memory):
        if kind == _TENSOR:
            array = memory.view(TENSOR_DTYPES[element]).reshape(shape)
            return make_tensor(array, element, name)
        array = memory.view(element)
        return array[0] if kind == _SCALAR else array.reshape(shape)

    return leaf


def read_file(file, size, make_tensor):
    """The object in an open file of that size. `make_tensor(array, dtype, name)` makes
    what a saved Tensor becomes; a bfloat16 one comes as an array of its bits."""
    return _core.read_container_file(file.fileno(), size, _made_by(make_tensor))


def read(data, make_tensor):
    """The object at the beginning of `data`, and where it ends."""
    return _core.read_container(data, _made_by(make_tensor))


def check_shape(shape, dtype, byte_size):
    """Raises ValueError unless an array of that shape has that many bytes."""
    if len(shape) > MAX_RANK:
        raise ValueError(f"an array with {len(shape)} dimensions")
    count = 1
    for extent in shape:
        if type(extent) is not int or not 0 <= extent < 2**62:
            raise ValueError("an array with a shape that is none")
        count *= extent
    if count * dtype.itemsize != byte_size:
        raise ValueError(
            f"an array of shape {list(shape)} and type {dtype} with {byte_size} bytes"
        )
