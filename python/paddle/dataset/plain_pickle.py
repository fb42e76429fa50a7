# SPDX-License-Identifier: Apache-2.0
"""Pickles that hold arrays and plain values, read so that no code can run."""

import pickle

import numpy as np


def _encode(text, encoding="latin1"):
    """How Python 2 bytes are written by protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in encoding {encoding!r}")
    return text.encode("latin1")


# What numpy's arrays and scalars are rebuilt from, in numpy 1 and 2.
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): bytearray,
    ("collections", "OrderedDict"): dict,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _ALLOWED[(_module, "_reconstruct")] = np.ndarray.__reduce__(np.empty(0))[0]
    _ALLOWED[(_module, "scalar")] = np.float64(0).__reduce__()[0]
# How protocol 5 writes arrays.
for _module in ("numpy.core.numeric", "numpy._core.numeric"):
    _ALLOWED[(_module, "_frombuffer")] = np.empty(1).__reduce_ex__(5)[0]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        found = _ALLOWED.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(
                f"the file asks for {module}.{name}; only arrays and plain "
                "values are admitted"
            )
        return found


def load_plain(file, encoding="bytes"):
    """The pickled value in an open file.

    UnpicklingError where it holds anything but numpy arrays, numbers, strings,
    bytes and containers of these. `encoding` is for strings of Python 2.
    """
    return _PlainUnpickler(file, encoding=encoding).load()


def load_samples(file):
    """What `dump_samples` wrote."""
    return load_plain(file, encoding="latin1")


def dump_samples(samples, file):
    """Writes a list of samples; protocol 4, which numpy 1 and 2 both read."""
    pickle.dump(samples, file, protocol=4)
