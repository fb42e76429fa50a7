# SPDX-License-Identifier: Apache-2.0
"""What a program is fed."""

from ..framework.dtype import convert, get_default_dtype
from ..framework.mode import require_static
from .program import default_main_program

__all__ = ["InputSpec", "data"]


def _dims(function, shape):
    try:
        return [-1 if n is None else int(n) for n in shape]
    except TypeError:
        raise TypeError(
            f"{function}: shape must be a list of integers and None, but is {shape!r}"
        ) from None


def data(name, shape, dtype=None, lod_level=0):
    """A variable that a run is fed. None or -1 in `shape` is known only then.

    lod_level: 1 for rows that belong to sequences of different lengths.
    """
    require_static("paddle.static.data")
    if not isinstance(name, str):
        raise TypeError(f"data: name must be a string, but got {type(name).__name__}")
    kind = convert(get_default_dtype() if dtype is None else dtype)
    return (
        default_main_program()
        .global_block()
        ._add_variable(
            name,
            _dims("data", shape),
            kind,
            {"is_data": True, "stop_gradient": True, "lod_level": lod_level},
        )
    )


class InputSpec:
    """Name, shape and type of an input, without the input."""

    def __init__(self, shape, dtype="float32", name=None):
        self.shape = tuple(_dims("InputSpec", shape))
        self.dtype = convert(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor, name=None):
        """As `tensor` is."""
        return cls(tensor.shape, tensor.dtype, name or tensor.name)

    @classmethod
    def from_numpy(cls, ndarray, name=None):
        """As the array is."""
        return cls(ndarray.shape, ndarray.dtype, name)

    def batch(self, batch_size):
        """Puts a dimension before the others, in place."""
        sizes = batch_size if isinstance(batch_size, (list, tuple)) else [batch_size]
        if len(sizes) != 1:
            raise ValueError(f"batch: one size is needed, but got {batch_size}")
        self.shape = (int(sizes[0]), *self.shape)
        return self

    def unbatch(self):
        """Takes the first dimension away, in place."""
        if not self.shape:
            raise ValueError("unbatch: the shape has no dimension")
        self.shape = self.shape[1:]
        return self

    def __repr__(self):
        return f"InputSpec(shape={self.shape}, dtype={self.dtype}, name={self.name})"

    def __eq__(self, other):
        return isinstance(other, InputSpec) and (
            (self.shape, self.dtype, self.name)
            == (other.shape, other.dtype, other.name)
        )

    def __hash__(self):
        return hash((self.shape, self.dtype, self.name))
