# SPDX-License-Identifier: Apache-2.0
"""Batches on their way from a worker process to its parent: pickled, but for arrays and
tensors, which lie in memory of both (fleet/data/batch_buffers.h)."""

import io
import math
import pickle

import numpy as np

from .. import _core
from . import _tensors

# Smaller arrays are copied out rather than lent: a label that a script keeps
# would otherwise hold the buffer of a whole batch of images.
LEND_FROM_BYTES = 1 << 15


class BatchWriter:
    """The worker's side; one batch at a time."""

    def __init__(self, fd, num_buffers):
        self._buffers = _core.BatchWriter(fd, num_buffers)
        self.start = self._buffers.start

    def empty(self, shape, dtype):
        """An uninitialised array in the buffer."""
        dtype = np.dtype(dtype)
        memory = self._buffers.add(math.prod(shape) * dtype.itemsize)
        return memory.view(dtype).reshape(shape)

    def dump(self, value):
        """Pickles `value`; its arrays stay in, or are copied to, the buffer."""
        stream = io.BytesIO()
        _Pickler(stream, self).dump(value)
        return stream.getvalue()

    def write(self, data):
        """Appends bytes to the buffer and returns their offset."""
        return self.place(np.frombuffer(data, np.uint8))

    def place(self, array):
        """The offset of `array` in the buffer, copying it there if need be."""
        if array.flags.c_contiguous:
            offset = self._buffers.offset_of(array.ctypes.data)
            if offset is not None:
                return offset
        copy = self.empty(array.shape, array.dtype.newbyteorder("="))
        copy[...] = array
        return self._buffers.offset_of(copy.ctypes.data)


class _Pickler(pickle.Pickler):
    """Pickles all but arrays and tensors, which become offsets in the buffer."""

    def __init__(self, stream, writer):
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._writer = writer

    def persistent_id(self, obj):
        if type(obj) is np.ndarray:
            if obj.dtype.kind not in _tensors.NUMERIC_KINDS:
                return None
            array, is_tensor = obj, False
        elif _tensors.is_tensor(obj):
            array, is_tensor = _tensors.to_numpy(obj), True
        else:
            return None
        dtype = array.dtype.newbyteorder("=").str
        return self._writer.place(array), array.shape, dtype, is_tensor


class BatchReader:
    """The parent's side of one worker's buffers."""

    def __init__(self, fd, num_buffers, max_lent):
        self._buffers = _core.BatchReader(fd, num_buffers, max_lent)
        self.take = self._buffers.take
        self.give_back = self._buffers.give_back
        self.close = self._buffers.close

    def read(self, buffer, offset, num_bytes):
        """A copy of bytes that the worker wrote."""
        return self._buffers.at(buffer, offset, num_bytes).tobytes()

    def load(self, buffer, data):
        """Unpickles what BatchWriter.dump returned, and frees or lends the buffer.

        Where it may be lent, large arrays are views of it and it becomes free when the
        last of them is gone; otherwise they are copies and it is free on return.
        """
        loan = self._buffers.lend(buffer)
        try:
            return _Unpickler(io.BytesIO(data), self, buffer, loan).load()
        finally:
            if loan is None:
                self.give_back(buffer)

    def array(self, buffer, loan, offset, shape, dtype):
        dtype = np.dtype(dtype)
        num_bytes = math.prod(shape) * dtype.itemsize
        memory = self._buffers.at(buffer, offset, num_bytes, loan)
        array = memory.view(dtype).reshape(shape)
        if loan is None or num_bytes < LEND_FROM_BYTES:
            return array.copy()
        return array


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream, reader, buffer, loan):
        super().__init__(stream)
        self._reader = reader
        self._buffer = buffer
        self._loan = loan

    def persistent_load(self, pid):
        offset, shape, dtype, is_tensor = pid
        array = self._reader.array(self._buffer, self._loan, offset, shape, dtype)
        return _tensors.adopt(array) if is_tensor else array
