# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes that ranks, workers and servers send each other.

Reading these bytes makes plain values and runs nothing: whoever sends them chooses
among the kinds below and cannot name a function. docs/wire.md ("Objects") has the
bytes; all numbers are little-endian.

A list, dict, set, array or Tensor that the object holds several times travels once and
arrives as one object. Nothing is trusted when reading: a size is compared with the bytes
that are there before memory is taken, and bytes that make no sense raise DataLossError.
"""

import collections
import re
import struct

import numpy as np

from .. import _core
from .._core import DataLossError, EagerTensor
from ..framework.container import MAX_DEPTH, TENSOR_DTYPES, check_shape
from ..framework.place import usable_device

MAGIC = b"\x93FOB\x01"  # the last byte is the version

_INT64 = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_SIZE = struct.Struct("<Q")

# Numbers of numpy, its strings, dates and durations; never its objects.
_ARRAY_TYPE = re.compile(r"[<>|](?:[biufc]\d{1,2}|[SU]\d{1,9}|[mM]8(?:\[\w{1,8}\])?)")

# Lists of numbers, which are often long, travel as one array from this length on.
_LONG_LIST = 16

_CONTAINERS = {
    list: b"l",
    tuple: b"t",
    set: b"s",
    frozenset: b"z",
    dict: b"d",
    collections.OrderedDict: b"o",
}


def encode(obj):
    """The bytes of `obj`. TypeError or ValueError names the place in it that cannot be
    sent, such as obj['model'][3]."""
    writer = _Writer()
    try:
        writer.write(obj, 0)
    except _Refusal as refusal:
        path = "obj" + "".join(reversed(refusal.steps))
        raise refusal.kind(f"{path}: {refusal.reason}") from None
    return b"".join(writer.parts)


def decode(data, sender):
    """The object that encode() made `data` of. DataLossError, which names `sender`,
    where `data` are other bytes."""
    try:
        return _Reader(data).read()
    except (LookupError, OverflowError, TypeError, ValueError, struct.error) as error:
        raise DataLossError(f"{sender}: its bytes make no object: {error}") from None


class _Refusal(Exception):
    """Why a value cannot be sent. Containers add the steps to it on the way out, so that
    no path is built for values that can."""

    def __init__(self, kind, reason):
        super().__init__(reason)
        self.kind, self.reason, self.steps = kind, reason, []


def _describe(kind):
    if kind.__name__ in ("function", "builtin_function_or_method", "method"):
        return "a function"
    if issubclass(kind, type):
        return "a class"
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


class _Writer:
    """Appends the bytes of values to `parts`, in one walk."""

    def __init__(self):
        self.parts = [MAGIC]
        self._numbers = {}  # id of an object that may be referred to -> its number
        self._kept = []  # those objects, so that no id is used twice
        self._open = set()  # ids of the containers around the current value

    def write(self, obj, depth):
        kind = type(obj)
        put = self.parts.append
        if obj is None:
            put(b"N")
        elif kind is bool:
            put(b"T" if obj else b"F")
        elif kind is int:
            self._int(obj)
        elif kind is float:
            put(b"f" + _FLOAT.pack(obj))
        elif kind is str:
            self._sized(b"u", obj.encode("utf-8", "surrogatepass"))
        elif kind is bytes:
            self._sized(b"b", obj)
        elif kind is complex:
            put(b"c" + _COMPLEX.pack(obj.real, obj.imag))
        elif isinstance(obj, np.generic):
            self._array(b"n", obj)
        elif id(obj) in self._numbers:
            put(b"r" + _SIZE.pack(self._numbers[id(obj)]))
        elif kind in _CONTAINERS:
            self._container(obj, kind, depth)
        elif kind is np.ndarray:
            self._array(b"a", obj)
            self._number(obj)
        elif isinstance(obj, _core.Tensor):
            self._tensor(obj)
            self._number(obj)
        elif kind is bytearray:
            self._sized(b"B", bytes(obj))
            self._number(obj)
        else:
            self._refuse(obj)

    def _refuse(self, obj):
        hint = "; send its state_dict()" if hasattr(obj, "state_dict") else ""
        raise _Refusal(
            TypeError,
            f"{_describe(type(obj))} cannot be sent; None, bool, int, float, complex, "
            "str, bytes, list, tuple, dict, set, numpy arrays and scalars, and Tensors "
            f"can{hint}",
        )

    def _sized(self, tag, data):
        self.parts.append(tag + _SIZE.pack(len(data)))
        self.parts.append(data)

    def _int(self, value):
        if -(2**63) <= value < 2**63:
            self.parts.append(b"i" + _INT64.pack(value))
        else:
            size = value.bit_length() // 8 + 1
            self._sized(b"I", value.to_bytes(size, "little", signed=True))

    def _number(self, obj):
        """Gives `obj` the next number; the reader counts in the same order."""
        self._numbers[id(obj)] = len(self._kept)
        self._kept.append(obj)

    def _container(self, obj, kind, depth):
        if id(obj) in self._open:
            raise _Refusal(ValueError, "an object that contains itself cannot be sent")
        if depth >= MAX_DEPTH:
            raise _Refusal(
                ValueError, f"what is nested over {MAX_DEPTH} deep cannot be sent"
            )
        self._open.add(id(obj))
        if not self._numbers_of(obj, kind):
            self.parts.append(_CONTAINERS[kind] + _SIZE.pack(len(obj)))
            if isinstance(obj, dict):
                self._items(obj, depth + 1)
            else:
                self._members(obj, kind in (set, frozenset), depth + 1)
        self._open.remove(id(obj))
        if kind not in (tuple, frozenset):
            self._number(obj)

    def _items(self, obj, depth):
        for key, value in obj.items():
            try:
                step = "{key}"
                self.write(key, depth)
                step = None
                self.write(value, depth)
            except _Refusal as refusal:
                refusal.steps.append(step or f"[{key!r}]")
                raise

    def _members(self, obj, unordered, depth):
        for i, value in enumerate(obj):
            try:
                self.write(value, depth)
            except _Refusal as refusal:
                refusal.steps.append("{member}" if unordered else f"[{i}]")
                raise

    def _numbers_of(self, obj, kind):
        """Writes a long list of ints or of floats as one array; False for others."""
        if kind is not list or len(obj) < _LONG_LIST:
            return False
        kinds = set(map(type, obj))
        if kinds == {float}:
            self._sized(b"G", np.array(obj, "<f8").tobytes())
        elif kinds == {int}:
            try:
                self._sized(b"L", np.array(obj, "<i8").tobytes())
            except OverflowError:
                return False
        else:
            return False
        return True

    def _array(self, tag, obj):
        array = np.asarray(obj)
        code = array.dtype.str
        if not _ARRAY_TYPE.fullmatch(code) or array.dtype.itemsize == 0:
            raise _Refusal(TypeError, f"a numpy array of {array.dtype} cannot be sent")
        self._sized(tag, code.encode())
        self._shape_and_data(array.shape, array)

    def _tensor(self, tensor):
        if not isinstance(tensor, EagerTensor):
            raise _Refusal(TypeError, "a variable of a program has no value to send")
        if tensor.is_sparse():
            raise _Refusal(TypeError, "a sparse Tensor cannot be sent: make it dense")
        name = tensor.dtype.name
        if name not in TENSOR_DTYPES:
            raise _Refusal(TypeError, f"a Tensor of {name} cannot be sent")
        self._sized(b"x", name.encode())
        self._sized(b"", tensor.name.encode("utf-8", "surrogatepass"))
        self.parts.append(
            bytes([tensor._device != "cpu", tensor.stop_gradient, tensor.persistable])
        )
        array = np.asarray(tensor._numpy_view(), dtype=np.dtype(TENSOR_DTYPES[name]))
        self._shape_and_data(tensor.shape, array)

    def _shape_and_data(self, shape, array):
        self.parts.append(struct.pack(f"<B{len(shape)}Q", len(shape), *shape))
        self._sized(b"", array.tobytes())


class _Reader:
    """Takes values from the front of `data`."""

    def __init__(self, data):
        self._data = memoryview(data)
        self._position = 0
        self._numbered = []

    def read(self):
        magic = bytes(self._take(len(MAGIC)))
        if magic != MAGIC:
            raise ValueError("they begin like those of another program or version")
        value = self._value(0)
        if self._position != len(self._data):
            raise ValueError("more follows")
        return value

    def _take(self, size):
        begin = self._position
        if size > len(self._data) - begin:
            raise ValueError("they are cut off")
        self._position = begin + size
        return self._data[begin : self._position]

    def _unpack(self, numbers):
        return numbers.unpack(self._take(numbers.size))

    def _sized(self):
        (size,) = self._unpack(_SIZE)
        return self._take(size)

    def _text(self):
        return str(self._sized(), "utf-8", "surrogatepass")

    def _value(self, depth):
        tag = bytes(self._take(1))
        read = _READ.get(tag)
        if read is None:
            raise ValueError(f"no value begins with {tag!r}")
        value = read(self, depth)
        if tag in _NUMBERED:
            self._numbered.append(value)
        return value

    def _int(self, depth):
        return self._unpack(_INT64)[0]

    def _long_int(self, depth):
        return int.from_bytes(self._sized(), "little", signed=True)

    def _float(self, depth):
        return self._unpack(_FLOAT)[0]

    def _complex(self, depth):
        return complex(*self._unpack(_COMPLEX))

    def _reference(self, depth):
        (number,) = self._unpack(_SIZE)
        if number >= len(self._numbered):
            raise ValueError("a reference to what did not come")
        return self._numbered[number]

    def _count(self, depth):
        """How many values follow: each takes a byte at least."""
        if depth >= MAX_DEPTH:
            raise ValueError("nested too deeply")
        (count,) = self._unpack(_SIZE)
        if count > len(self._data) - self._position:
            raise ValueError("they are cut off")
        return count

    def _list(self, depth):
        return [self._value(depth + 1) for _ in range(self._count(depth))]

    def _members(self, kind, depth):
        values = self._list(depth)
        members = kind(values)
        if len(members) != len(values):
            raise ValueError("a member of a set comes twice")
        return members

    def _dict(self, kind, depth):
        count = self._count(depth)
        value = kind()
        for _ in range(count):
            key = self._value(depth + 1)
            value[key] = self._value(depth + 1)
        if len(value) != count:
            raise ValueError("a key of a dict comes twice")
        return value

    def _numbers(self, dtype):
        return np.frombuffer(self._sized(), dtype).tolist()

    def _array(self, depth):
        code = self._text()
        if not _ARRAY_TYPE.fullmatch(code):
            raise ValueError("an array of an unknown type")
        dtype = np.dtype(code)
        if dtype.itemsize == 0:
            raise ValueError("an array of an unknown type")
        # The copy is aligned and belongs to the receiver alone.
        return self._shape_and_data(dtype).copy()

    def _scalar(self, depth):
        array = self._array(depth)
        if array.ndim > 0:
            raise ValueError("a number with dimensions")
        return array[()]

    def _tensor(self, depth):
        name = self._text()
        dtype = np.dtype(TENSOR_DTYPES[name])
        tensor_name = self._text()
        on_gpu, stop_gradient, persistable = self._take(3)
        array = self._shape_and_data(dtype)
        if name == "bfloat16":
            tensor = _core.bfloat16_from_bits(array)
        else:
            tensor = _core.from_object(array)
        if not on_gpu:
            tensor = tensor._to("cpu", True)
        elif tensor._device == "cpu":
            # A Tensor from a GPU goes to this process's own; its number says nothing
            # here, since every rank has another one.
            tensor = tensor._to(usable_device("cuda:0"), True)
        tensor.name = tensor_name
        if not stop_gradient:
            tensor.stop_gradient = False
        tensor.persistable = bool(persistable)
        return tensor

    def _shape_and_data(self, dtype):
        (rank,) = self._take(1)
        shape = struct.unpack(f"<{rank}Q", self._take(8 * rank))
        data = self._sized()
        check_shape(shape, dtype, len(data))
        return np.frombuffer(data, dtype).reshape(shape)


_READ = {
    b"N": lambda reader, depth: None,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"i": _Reader._int,
    b"I": _Reader._long_int,
    b"f": _Reader._float,
    b"c": _Reader._complex,
    b"u": lambda reader, depth: reader._text(),
    b"b": lambda reader, depth: bytes(reader._sized()),
    b"B": lambda reader, depth: bytearray(reader._sized()),
    b"r": _Reader._reference,
    b"l": _Reader._list,
    b"t": lambda reader, depth: tuple(reader._list(depth)),
    b"s": lambda reader, depth: reader._members(set, depth),
    b"z": lambda reader, depth: reader._members(frozenset, depth),
    b"d": lambda reader, depth: reader._dict(dict, depth),
    b"o": lambda reader, depth: reader._dict(collections.OrderedDict, depth),
    b"L": lambda reader, depth: reader._numbers("<i8"),
    b"G": lambda reader, depth: reader._numbers("<f8"),
    b"a": _Reader._array,
    b"n": _Reader._scalar,
    b"x": _Reader._tensor,
}
_NUMBERED = frozenset((b"l", b"s", b"d", b"o", b"L", b"G", b"a", b"x", b"B"))
