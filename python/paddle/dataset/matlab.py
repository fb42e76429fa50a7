# SPDX-License-Identifier: Apache-2.0
"""Reads the numeric matrices of MATLAB 5 files, as the flowers labels are."""

import struct
import zlib

import numpy as np

_MATRIX, _COMPRESSED = 14, 15
_ELEMENT_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_HEADER_BYTES = 128


def load_matrices(path):
    """The numeric matrices in a file, by name. ValueError if it is damaged."""
    with open(path, "rb") as file:
        data = file.read()
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise ValueError(f"{path}: not a MATLAB 5 file")
    matrices = {}
    try:
        for kind, body in _elements(data[_HEADER_BYTES:], order):
            if kind == _COMPRESSED:
                ((kind, body),) = _elements(zlib.decompress(body), order)
            if kind == _MATRIX:
                _read_matrix(body, order, matrices)
    except (struct.error, zlib.error, ValueError, KeyError) as error:
        raise ValueError(f"{path}: damaged MATLAB 5 file: {error}") from error
    return matrices


def _elements(data, order):
    """Yields (type, bytes) of the elements in `data`."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:  # the short form: four bytes of data in the tag
            kind, size = kind & 0xFFFF, kind >> 16
            body, at = data[at + 4 : at + 4 + size], at + 8
        else:
            body, at = data[at + 8 : at + 8 + size], at + 8 + size
            if kind != _COMPRESSED:
                at = -(-at // 8) * 8
        if len(body) != size:
            raise ValueError("it is cut short")
        yield kind, body


def _read_matrix(body, order, matrices):
    parts = list(_elements(body, order))
    if len(parts) < 4 or parts[3][0] not in _ELEMENT_TYPES:
        return  # a cell, a struct or text
    _, (_, dims), (_, name), (kind, values) = parts[:4]
    shape = np.frombuffer(dims, order + "i4")
    array = np.frombuffer(values, order + _ELEMENT_TYPES[kind])
    matrices[name.decode("ascii")] = array.reshape(shape, order="F")
