# SPDX-License-Identifier: Apache-2.0
"""From samples to what a run of a program is fed."""

import queue
import threading

import numpy as np

from ..core import EOFException


def names_of(variables):
    return [v if isinstance(v, str) else v.name for v in variables]


def from_samples(variables, samples):
    """A dict of names and values for the samples of a batch, each with a field for
    each of the data variables."""
    fields = [[] for _ in variables]
    for sample in samples:
        if not isinstance(sample, (list, tuple)):
            sample = [sample]
        if len(sample) != len(fields):
            raise ValueError(
                f"a sample has {len(sample)} fields, but there are {len(fields)} "
                f"variables to feed: {', '.join(names_of(variables))}"
            )
        for field, value in zip(fields, sample):
            field.append(value)
    return {v.name: _value(v, field) for v, field in zip(variables, fields)}


def from_batch(variables, batch):
    """What to feed for a batch whose fields are arrays already."""
    if isinstance(batch, dict):
        return batch
    batch = list(batch) if isinstance(batch, (list, tuple)) else [batch]
    if len(batch) != len(variables):
        raise ValueError(
            f"a batch has {len(batch)} fields, but there are {len(variables)} variables "
            f"to feed: {', '.join(names_of(variables))}"
        )
    return dict(zip(names_of(variables), batch))


def _value(variable, samples):
    dtype = variable.dtype.name
    if variable.lod_level > 0:
        return _sequences(variable, samples, dtype)
    array = np.array([np.asarray(sample) for sample in samples]).astype(
        dtype, copy=False
    )
    shape = variable.shape
    if len(array.shape) != len(shape):
        try:
            array = array.reshape([-1, *shape[1:]])
        except ValueError:
            raise ValueError(
                f"{variable.name} has shape {shape}, which samples of shape "
                f"{list(array.shape[1:])} do not fit"
            ) from None
    return array


def _sequences(variable, samples, dtype):
    from ..static.executor import LoDTensor

    if variable.lod_level > 1:
        raise ValueError(
            f"{variable.name} has lod_level {variable.lod_level}: sequences of sequences "
            "are not supported"
        )
    rest = variable.shape[1:]
    parts = [np.asarray(sample).astype(dtype).reshape(-1, *rest) for sample in samples]
    tensor = LoDTensor()
    tensor.set(np.concatenate(parts) if parts else np.zeros([0, *rest], dtype))
    tensor.set_recursive_sequence_lengths([[len(part) for part in parts]])
    return tensor


_END = object()


class Prefetch:
    """Reads ahead in a thread; next() gives what it read, and raises what went wrong
    there, or EOFException at the end."""

    def __init__(self, iterate, capacity):
        self._queue = queue.Queue(capacity)
        self._stop = threading.Event()
        self._ended = None
        self._thread = threading.Thread(
            target=self._read, args=(iterate,), name="paddle-reader", daemon=True
        )
        self._thread.start()

    def _read(self, iterate):
        try:
            for item in iterate():
                if not self._put(item):
                    return
            self._put(_END)
        except Exception as error:
            self._put(_Failed(error))

    def _put(self, item):
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def next(self):
        if self._ended is None:
            item = self._queue.get()
            if item is _END:
                self._ended = EOFException("there is no more data: call reset()")
            elif isinstance(item, _Failed):
                self._ended = item.error
            else:
                return item
        raise self._ended

    def close(self):
        self._stop.set()
        self._thread.join()


class _Failed:
    def __init__(self, error):
        self.error = error
