# SPDX-License-Identifier: Apache-2.0
"""Shared memory between a worker process and its parent.

Each worker has one nameless file (memfd) made before the fork, so that nothing
can be left behind in a file system. It is sparse and cut into slots; a slot
holds one batch. Slots are reused, so their pages are faulted in once and stay
warm, and both sides map as much of a slot as the batch in it needs.

The parent decides which slot a batch goes to. It lends the slot's memory to
the arrays of the batch and may hand the slot out again when they are gone.
"""

import ctypes
import io
import mmap
import os
import pickle

import numpy as np

from . import _tensors

# Address space of a slot in the sparse file; no memory until it is written.
SLOT_BYTES = 1 << 38
# Arrays in a slot start at cache lines.
ALIGNMENT = 64
# Windows grow in such steps, so that batches of varying size seldom remap.
WINDOW_STEP = 1 << 20
# Smaller arrays are copied out rather than lent: a label that a script keeps
# would otherwise hold the slot of a whole batch of images.
LEND_FROM_BYTES = 1 << 15

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value


def make_file(num_slots):
    """A file descriptor of shared memory for `num_slots` slots."""
    fd = os.memfd_create("paddle.io", os.MFD_CLOEXEC)
    os.ftruncate(fd, num_slots * SLOT_BYTES)
    return fd


class _Window:
    """The first `size` bytes of a slot in this process's memory.

    Not Python's mmap, which keeps a file descriptor of its own per mapping:
    many workers with deep prefetch would run out of them.
    """

    def __init__(self, fd, slot, size):
        # Bound here, so that it is there when the interpreter shuts down.
        self._munmap = _libc.munmap
        self.address = None
        self.size = size
        address = _libc.mmap(
            None,
            size,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_SHARED,
            fd,
            slot * SLOT_BYTES,
        )
        if address == _MAP_FAILED:
            errno = ctypes.get_errno()
            raise OSError(
                errno,
                f"paddle.io.DataLoader: cannot map {size} bytes of shared memory "
                f"for a batch: {os.strerror(errno)}",
            )
        self.address = address

    def __del__(self):
        if self.address is not None:
            self._munmap(self.address, self.size)


class _Memory:
    """Bytes at an address, for numpy, which keeps `owner` alive for them."""

    def __init__(self, address, shape, dtype, owner):
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype,
            "version": 3,
        }
        self.owner = owner


class SlotWriter:
    """The worker's side of its slots; one batch at a time."""

    def __init__(self, fd, num_slots):
        self._fd = fd
        self._windows = [None] * num_slots
        self._slot = 0
        self._used = 0
        # Windows of the current slot that grew too small for this batch. They
        # are kept to its end, so that no foreign array takes their addresses.
        self._outgrown = []

    def start(self, slot):
        """Begins a batch in `slot`; what was in it is gone."""
        self._slot = slot
        self._used = 0
        self._outgrown = []

    def empty(self, shape, dtype):
        """An uninitialised array in the slot."""
        dtype = np.dtype(dtype)
        num_bytes = dtype.itemsize
        for extent in shape:
            num_bytes *= extent
        offset = self._reserve(num_bytes)
        window = self._windows[self._slot]
        return np.asarray(_Memory(window.address + offset, shape, dtype.str, window))

    def dump(self, value):
        """Pickles `value`; its arrays stay in, or are copied to, the slot."""
        buffer = io.BytesIO()
        _SlotPickler(buffer, self).dump(value)
        return buffer.getvalue()

    def write(self, data):
        """Appends bytes to the slot and returns their offset."""
        return self.place(np.frombuffer(data, np.uint8))

    def place(self, array):
        """The offset of `array` in the slot, copying it there if need be."""
        if array.flags.c_contiguous:
            address = array.__array_interface__["data"][0]
            for window in (self._windows[self._slot], *self._outgrown):
                if window and 0 <= address - window.address < window.size:
                    return address - window.address
        copy = self.empty(array.shape, array.dtype.newbyteorder("="))
        copy[...] = array
        return self.place(copy)

    def _reserve(self, num_bytes):
        offset = -(-self._used // ALIGNMENT) * ALIGNMENT
        end = offset + num_bytes
        if end > SLOT_BYTES:
            raise MemoryError(
                f"paddle.io.DataLoader: a batch of {end} bytes; at most {SLOT_BYTES}"
            )
        window = self._windows[self._slot]
        if window is None or window.size < end:
            size = max(end, window.size * 3 // 2 if window else 0)
            size = -(-max(size, 1) // WINDOW_STEP) * WINDOW_STEP
            if window:
                self._outgrown.append(window)
            # The new window shows the same pages as the old one, and more.
            self._windows[self._slot] = _Window(self._fd, self._slot, size)
        self._used = end
        return offset


class _SlotPickler(pickle.Pickler):
    """Pickles all but arrays and tensors, which become offsets in the slot."""

    def __init__(self, buffer, writer):
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
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


class SlotReader:
    """The parent's side of one worker's slots."""

    def __init__(self, fd, num_slots, max_lent):
        self.fd = fd
        self._windows = [None] * num_slots
        # Last freed, first used: its pages are the likeliest to be in cache.
        self._free = list(range(num_slots))
        self._num_pending = 0
        self._max_lent = max_lent

    def take(self):
        """A free slot for a batch to come, until `load` or `give_back`."""
        slot = self._free.pop()
        self._num_pending += 1
        return slot

    def give_back(self, slot):
        """Frees a slot that was taken."""
        self._num_pending -= 1
        self._free.append(slot)

    def read(self, slot, offset, num_bytes):
        """A copy of bytes that the worker wrote."""
        window = self._window(slot, offset + num_bytes)
        return ctypes.string_at(window.address + offset, num_bytes)

    def load(self, slot, data):
        """Unpickles what SlotWriter.dump returned, and frees or lends `slot`.

        While fewer than `max_lent` batches are on loan, large arrays are views
        of the slot and it becomes free when the last of them is gone;
        otherwise they are copies and it is free on return.
        """
        num_lent = len(self._windows) - len(self._free) - self._num_pending
        if num_lent >= self._max_lent:
            try:
                return _SlotUnpickler(io.BytesIO(data), self, slot, None).load()
            finally:
                self.give_back(slot)
        self._num_pending -= 1
        lease = _Lease(self._free, slot)
        return _SlotUnpickler(io.BytesIO(data), self, slot, lease).load()

    def array(self, slot, lease, offset, shape, dtype):
        num_bytes = np.dtype(dtype).itemsize
        for extent in shape:
            num_bytes *= extent
        window = self._window(slot, offset + num_bytes)
        owner = window if lease is None else (window, lease)
        array = np.asarray(_Memory(window.address + offset, shape, dtype, owner))
        if lease is None or num_bytes < LEND_FROM_BYTES:
            return array.copy()
        return array

    def _window(self, slot, end):
        window = self._windows[slot]
        if window is None or window.size < end:
            size = -(-max(end, 1) // WINDOW_STEP) * WINDOW_STEP
            window = self._windows[slot] = _Window(self.fd, slot, size)
        return window


class _Lease:
    """Held by the arrays over a slot; frees it when the last is gone.

    That may be on any thread: appending to a list is atomic.
    """

    def __init__(self, free, slot):
        self._free = free
        self._slot = slot

    def __del__(self):
        self._free.append(self._slot)


class _SlotUnpickler(pickle.Unpickler):
    def __init__(self, buffer, reader, slot, lease):
        super().__init__(buffer)
        self._reader = reader
        self._slot = slot
        self._lease = lease

    def persistent_load(self, pid):
        offset, shape, dtype, is_tensor = pid
        array = self._reader.array(self._slot, self._lease, offset, shape, dtype)
        return _tensors.adopt(array) if is_tensor else array
