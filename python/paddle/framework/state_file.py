# SPDX-License-Identifier: Apache-2.0
"""Files of named arrays that Paddle reads too: .pdparams and .pdopt of static programs.

Such a file is a pickle of a dict of numpy arrays, in the names that every numpy has
since 1.0, followed by a trailer that those who read a pickle do not look at:

    size of the pickle, 8 bytes; its CRC-32C, 4 bytes; magic

With the trailer a cut or altered file is noticed. Files without one, as Paddle writes
them, are read as they are.
"""

import struct

import numpy as np

from .. import _core
from .._core import DataLossError
from . import pickle_reader
from .whole_file import open_whole

MAGIC = b"\x93FLTDICT"
_TRAILER = struct.Struct("<QI8s")
_KINDS = frozenset("?biufc")


def _text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(value):
    if 0 <= value < 256:
        return b"K" + struct.pack("<B", value)
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(data)) + data


def _array_head(array):
    """The opcodes of an array up to its bytes."""
    code = array.dtype.str
    dtype = (
        b"cnumpy\ndtype\n"
        + _text(code[1:])
        + b"\x89\x88\x87R("
        + _integer(3)
        + _text(code[0])
        + b"NNN"
        + b"J\xff\xff\xff\xff" * 2
        + b"K\x00tb"
    )
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R("
        + b"K\x01("
        + b"".join(_integer(n) for n in array.shape)
        + b"t"
        + dtype
        + b"\x89\x8e"
        + struct.pack("<Q", array.nbytes)
    )


def _plain(name, value):
    array = np.asarray(value)
    # asarray keeps a 0-d array as it is, ascontiguousarray does not.
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.dtype.kind not in _KINDS:
        raise TypeError(f"'{name}' is an array of {array.dtype}, which cannot be saved")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def write(arrays, append):
    """Gives `append` the bytes of a file with a dict of names and arrays, in parts."""
    size = crc = 0

    def put(data):
        nonlocal size, crc
        append(data)
        size += memoryview(data).nbytes
        crc = _core.crc32c(data, crc)

    put(b"\x80\x04}(")
    for name, value in arrays.items():
        array = _plain(name, value)
        put(_text(name) + _array_head(array))
        # A view of bytes: an empty array has no buffer that others take.
        put(array.reshape(-1).view(np.uint8) if array.nbytes else b"")
        put(b"tb")
    put(b"u.")
    append(_TRAILER.pack(size, crc, MAGIC))


def save(arrays, path):
    """Writes the arrays to a file, which appears whole or not at all."""
    with open_whole(path) as file:
        write(arrays, file.append)


def check(data):
    """Raises DataLossError when `data`, a whole file, has a trailer that does not fit
    to what is before it."""
    view = memoryview(data)
    if len(view) < _TRAILER.size:
        return
    size, crc, magic = _TRAILER.unpack(view[-_TRAILER.size :])
    if magic != MAGIC:
        return
    if size != len(view) - _TRAILER.size or crc != _core.crc32c(view[: -_TRAILER.size]):
        raise DataLossError("its checksum is wrong: bytes were altered")


def load(path):
    """The arrays of a file, by name, as this module or Paddle wrote it."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        if not data:
            raise DataLossError("it is empty")
        check(data)
        value, end = pickle_reader.read(data)
        _check_end(data, end)
        value = pickle_reader.convert(value, lambda saved: saved.array, np.asarray)
    except DataLossError as error:
        raise DataLossError(f"{path} is damaged: {error}") from None
    except ValueError as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, not named arrays")
    return value


def _check_end(data, end):
    """A file of ours that lost a part of its trailer, or a file with a second half."""
    left = len(data) - end
    if left and not (left == _TRAILER.size and bytes(data[-len(MAGIC) :]) == MAGIC):
        raise DataLossError(f"{left} bytes behind its end make no sense")
