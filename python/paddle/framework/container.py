# SPDX-License-Identifier: Apache-2.0
"""The file format of paddle.save: plain data that cannot execute anything.

Everything is little-endian. A file is

    preamble   64 bytes: magic, version, zeros
    blobs      raw bytes of arrays and byte strings, each at a multiple of 64
    header     JSON: {"root": node, "blobs": [[offset, size, crc], ...]}
    trailer    64 bytes: header's offset, size and CRC-32C, size of the file,
               zeros, CRC-32C of the trailer before it, magic

A node is one of

    null, true, false, 12, 1.5, "text", [node, ...]     themselves
    {"tuple": [node, ...]}, {"dict": [[key, node], ...]}, {"ordered": [...]}
    {"complex": [real, imaginary]}
    {"bytes": blob}
    {"array": blob, "dtype": "<f4", "shape": [2, 3]}
    {"scalar": blob, "dtype": "<f4"}                    one number of numpy's
    {"tensor": blob, "dtype": "float32", "shape": [2, 3], "name": "w_0"}

where `blob` is a position in "blobs". Nothing is trusted: every size is compared
with the size of the file before memory is asked for, every part has a checksum, and
what does not fit raises DataLossError.
"""

import collections
import json
import struct

import numpy as np

from .. import _core
from .._core import DataLossError

MAGIC = b"\x93FLEET\r\n"
VERSION = 1
ALIGNMENT = 64

_PREAMBLE = struct.Struct("<8sI52x")
_TRAILER = struct.Struct("<QQIQ24x")  # then its CRC and the magic
_TRAILER_SIZE = _TRAILER.size + 4 + len(MAGIC)
_SMALLEST = _PREAMBLE.size + _TRAILER_SIZE

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


def _padding(size):
    return -size % ALIGNMENT


# -- writing


class _Writer:
    """Turns an object into nodes and its arrays into blobs, in one walk."""

    def __init__(self, append):
        self._append = append
        self._position = 0
        self._blobs = []
        self._nodes = {}  # id of an array or tensor -> its node
        self._kept = []  # so that no id is used twice
        self._open = set()  # ids of the containers around the current one

    def write(self, obj):
        self._put(_PREAMBLE.pack(MAGIC, VERSION))
        root = self._node(obj, "obj", 0)
        header = json.dumps(
            {"root": root, "blobs": self._blobs}, separators=(",", ":")
        ).encode()
        offset = self._position
        self._put(header)
        size = self._position + _TRAILER_SIZE
        trailer = _TRAILER.pack(offset, len(header), _core.crc32c(header), size)
        self._put(trailer + struct.pack("<I", _core.crc32c(trailer)) + MAGIC)

    def _put(self, data):
        self._append(data)
        self._position += memoryview(data).nbytes

    def _blob(self, data):
        """Writes a contiguous buffer and returns its position in the table."""
        self._put(bytes(_padding(self._position)))
        size = memoryview(data).nbytes
        self._blobs.append([self._position, size, _core.crc32c(data)])
        self._put(data)
        return len(self._blobs) - 1

    def _node(self, obj, path, depth):
        kind = type(obj)
        if obj is None or kind in (bool, int, float, str):
            return obj
        if kind is bytes:
            return {"bytes": self._blob(obj)}
        if kind is complex:
            return {"complex": [obj.real, obj.imag]}
        if isinstance(obj, (_core.Tensor, np.ndarray, np.generic)):
            if id(obj) not in self._nodes:
                self._nodes[id(obj)] = self._leaf(obj, path)
                self._kept.append(obj)
            return self._nodes[id(obj)]
        if kind in (list, tuple) or isinstance(obj, dict):
            return self._container(obj, path, depth)
        hint = ""
        if hasattr(obj, "state_dict"):
            hint = "; save its state_dict() instead"
        raise TypeError(
            f"paddle.save: {path} is a {kind.__module__}.{kind.__qualname__}, and "
            "only tensors, arrays, numbers, strings, bytes, None and dicts, lists "
            f"and tuples of them can be saved{hint}"
        )

    def _container(self, obj, path, depth):
        if id(obj) in self._open:
            raise ValueError(f"paddle.save: {path} contains itself")
        if depth >= MAX_DEPTH:
            raise ValueError(f"paddle.save: {path} is nested too deeply")
        self._open.add(id(obj))
        if isinstance(obj, dict):
            items = [
                [_key_node(key, path), self._node(value, f"{path}[{key!r}]", depth + 1)]
                for key, value in obj.items()
            ]
            ordered = isinstance(obj, collections.OrderedDict)
            node = {"ordered" if ordered else "dict": items}
        else:
            items = [
                self._node(value, f"{path}[{i}]", depth + 1)
                for i, value in enumerate(obj)
            ]
            node = items if isinstance(obj, list) else {"tuple": items}
        self._open.remove(id(obj))
        return node

    def _leaf(self, obj, path):
        if isinstance(obj, _core.Tensor):
            return self._tensor(obj, path)
        if obj.dtype.newbyteorder("<").str not in ARRAY_DTYPES:
            raise TypeError(
                f"paddle.save: {path} is an array of {obj.dtype}, and only arrays of "
                "numbers and bools can be saved"
            )
        array = np.asarray(obj, dtype=obj.dtype.newbyteorder("<"), order="C")
        blob = self._blob(array)
        if isinstance(obj, np.generic):
            return {"scalar": blob, "dtype": array.dtype.str}
        return {"array": blob, "dtype": array.dtype.str, "shape": list(obj.shape)}

    def _tensor(self, tensor, path):
        if tensor.is_sparse():
            raise TypeError(f"paddle.save: {path} is a sparse Tensor: make it dense")
        name = tensor.dtype.name
        if name not in TENSOR_DTYPES:
            raise TypeError(f"paddle.save: {path} is a Tensor of {name}")
        array = np.asarray(
            tensor._numpy_view(), dtype=np.dtype(TENSOR_DTYPES[name]), order="C"
        )
        return {
            "tensor": self._blob(array),
            "dtype": name,
            "shape": list(tensor.shape),
            "name": tensor.name,
        }


def _key_node(key, path, depth=0):
    if key is None or type(key) in (bool, int, float, str):
        return key
    if type(key) is tuple and depth < 2:
        return {"tuple": [_key_node(part, path, depth + 1) for part in key]}
    raise TypeError(
        f"paddle.save: {path} has a key of type {type(key).__qualname__}, and only "
        "strings, numbers, None and tuples of them can be keys"
    )


def write(obj, append):
    """Calls `append` with one buffer after the other, which together are the file."""
    _Writer(append).write(obj)


# -- reading


class _Reader:
    """Reads nodes back. `read_at(offset, size)` gives a writable buffer."""

    def __init__(self, read_at, file_size, make_tensor):
        self._read_at = read_at
        self._file_size = file_size
        self._make_tensor = make_tensor
        self._leaves = {}  # blob -> (node, value)

    def read(self):
        self._check_preamble()
        header = self._header()
        try:
            root, blobs = header["root"], header["blobs"]
            self._blobs = self._check_blobs(blobs)
            return self._value(root, 0)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataLossError(f"its header makes no sense: {error}") from None

    def _check_preamble(self):
        if self._file_size < _SMALLEST:
            raise DataLossError("it is cut off")
        magic, version = _PREAMBLE.unpack(self._read_at(0, _PREAMBLE.size))
        if magic != MAGIC:
            raise DataLossError("its first bytes are damaged")
        if version != VERSION:
            raise DataLossError(
                f"it has version {version} of the format, and this program reads "
                f"version {VERSION}"
            )

    def _header(self):
        self._end = self._file_size - _TRAILER_SIZE
        trailer = bytes(self._read_at(self._end, _TRAILER_SIZE))
        fields = trailer[: _TRAILER.size]
        (crc,) = struct.unpack_from("<I", trailer, _TRAILER.size)
        if trailer[-len(MAGIC) :] != MAGIC:
            raise DataLossError("it is cut off")
        if _core.crc32c(fields) != crc:
            raise DataLossError("its last bytes are damaged")
        offset, size, header_crc, file_size = _TRAILER.unpack(fields)
        if file_size != self._file_size:
            raise DataLossError(
                f"it has {self._file_size} bytes and should have {file_size}"
            )
        if offset < _PREAMBLE.size or offset + size != self._end:
            raise DataLossError("its header is not where it should be")
        text = bytes(self._read_at(offset, size))
        if _core.crc32c(text) != header_crc:
            raise DataLossError("its header is damaged")
        self._end = offset
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise DataLossError("its header is no JSON") from None

    def _check_blobs(self, blobs):
        """Blobs lie behind each other, inside the file, and do not overlap."""
        if type(blobs) is not list:
            raise ValueError("no table of blobs")
        begin = _PREAMBLE.size
        for offset, size, crc in blobs:
            if not all(type(n) is int for n in (offset, size, crc)):
                raise ValueError("a blob without numbers")
            if size < 0 or offset < begin or offset + size > self._end:
                raise ValueError("a blob outside of the file")
            begin = offset + size
        return blobs

    def _value(self, node, depth):
        if node is None or type(node) in (bool, int, float, str):
            return node
        if depth >= MAX_DEPTH:
            raise ValueError("nested too deeply")
        if type(node) is list:
            return [self._value(item, depth + 1) for item in node]
        if len(node) == 1:
            ((kind, items),) = node.items()
            if kind == "tuple":
                return tuple([self._value(item, depth + 1) for item in items])
            if kind in ("dict", "ordered"):
                make = dict if kind == "dict" else collections.OrderedDict
                return make(
                    (self._key(key, 0), self._value(value, depth + 1))
                    for key, value in items
                )
            if kind == "complex":
                real, imaginary = items
                return complex(real, imaginary)
        return self._leaf(node)

    def _key(self, node, depth):
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is dict and list(node) == ["tuple"] and depth < 2:
            return tuple([self._key(part, depth + 1) for part in node["tuple"]])
        raise ValueError("a key of a kind that cannot be one")

    def _leaf(self, node):
        for kind in ("tensor", "array", "scalar", "bytes"):
            if kind in node:
                break
        else:
            raise ValueError("a node of an unknown kind")
        blob = node[kind]
        if type(blob) is not int or not 0 <= blob < len(self._blobs):
            raise ValueError("a node without its blob")
        # One blob is one object, so memory cannot exceed the size of the file.
        if blob in self._leaves:
            first, value = self._leaves[blob]
            if first != node:
                raise ValueError("two nodes with one blob")
            return value
        value = self._make_leaf(kind, node, blob)
        self._leaves[blob] = (node, value)
        return value

    def _make_leaf(self, kind, node, blob):
        offset, size, crc = self._blobs[blob]
        if kind == "bytes":
            return bytes(self._read_blob(offset, size, crc))
        dtype = node["dtype"]
        if kind == "tensor":
            name = node["name"]
            if type(name) is not str:
                raise ValueError("a tensor whose name is no text")
            dtype, element = TENSOR_DTYPES[dtype], dtype
        elif dtype not in ARRAY_DTYPES:
            raise ValueError("an array of an unknown type")
        dtype = np.dtype(dtype)
        shape = [] if kind == "scalar" else node["shape"]
        check_shape(shape, dtype, size)
        data = self._read_blob(offset, size, crc)
        array = np.frombuffer(data, dtype=dtype).reshape(shape)
        if kind == "tensor":
            return self._make_tensor(array, element, name)
        return array[()] if kind == "scalar" else array

    def _read_blob(self, offset, size, crc):
        data = self._read_at(offset, size)
        if _core.crc32c(data) != crc:
            raise DataLossError(f"its bytes {offset} to {offset + size} are damaged")
        return data


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


def read(read_at, file_size, make_tensor):
    """The object in a file.

    `read_at(offset, size)` gives a writable buffer of exactly that many bytes.
    `make_tensor(array, dtype, name)` makes what a saved Tensor becomes; a bfloat16
    one comes as an array of its bits.
    """
    return _Reader(read_at, file_size, make_tensor).read()


def find_end(data):
    """Where the object at the beginning of `data` ends, when more may follow it."""
    position = data.find(MAGIC, _SMALLEST - len(MAGIC))
    while position >= 0:
        end = position + len(MAGIC)
        fields = data[end - _TRAILER_SIZE : end - _TRAILER_SIZE + _TRAILER.size]
        (crc,) = struct.unpack_from("<I", data, end - _TRAILER_SIZE + _TRAILER.size)
        if _TRAILER.unpack(fields)[3] == end and _core.crc32c(fields) == crc:
            return end
        position = data.find(MAGIC, position + 1)
    return len(data)
