# SPDX-License-Identifier: Apache-2.0
"""The loader behind DataLoader.from_generator."""

import numpy as np

from . import _tensors
from .collate import default_collate_fn
from .dataset import IterableDataset


class GeneratorLoader:
    """Batches from a Python generator function, as lists of tensors.

    One of `set_sample_generator`, `set_sample_list_generator` and
    `set_batch_generator` says where they come from; each iteration calls the
    function anew. With `use_multiprocess` the generator runs in a forked
    process, `capacity` batches ahead (2 if None).
    """

    def __init__(
        self,
        feed_list,
        capacity,
        use_double_buffer,
        iterable,
        return_list,
        use_multiprocess,
        drop_last,
    ):
        if not iterable:
            raise NotImplementedError(
                "DataLoader.from_generator: iterable=False feeds a static program "
                "by start() and reset(), and static graph mode is not there yet"
            )
        if capacity is not None and capacity < 1:
            raise ValueError(
                f"DataLoader.from_generator: capacity must be at least 1, but is "
                f"{capacity!r}"
            )
        self._capacity = capacity or 2
        self._use_multiprocess = use_multiprocess
        self._drop_last = drop_last
        self._batches = None

    def set_sample_generator(self, reader, batch_size, drop_last=True, places=None):
        """`reader()` yields samples, which are batched by `batch_size`."""
        if batch_size < 1:
            raise ValueError(
                f"set_sample_generator: batch_size must be at least 1, but is "
                f"{batch_size!r}"
            )

        def batches():
            samples = []
            for sample in reader():
                samples.append(_fields(sample))
                if len(samples) == batch_size:
                    yield default_collate_fn(samples)
                    samples = []
            if samples and not drop_last:
                yield default_collate_fn(samples)

        self._batches = batches
        return self

    def set_sample_list_generator(self, reader, places=None):
        """`reader()` yields batches as lists of samples."""

        def batches():
            for samples in reader():
                yield default_collate_fn([_fields(sample) for sample in samples])

        self._batches = batches
        return self

    def set_batch_generator(self, reader, places=None):
        """`reader()` yields batches: the arrays or tensors of their fields."""

        def batches():
            for batch in reader():
                yield [_array(field) for field in _fields(batch)]

        self._batches = batches
        return self

    # Older names of the same.
    decorate_sample_generator = set_sample_generator
    decorate_sample_list_generator = set_sample_list_generator
    decorate_batch_generator = set_batch_generator

    def __iter__(self):
        if self._batches is None:
            raise RuntimeError(
                "DataLoader.from_generator: no data source; call "
                "set_sample_generator, set_sample_list_generator or "
                "set_batch_generator first"
            )
        if not self._use_multiprocess:
            return (_tensors.to_tensors(b, owned=False) for b in self._batches())
        from .dataloader import DataLoader

        return iter(
            DataLoader(
                _Batches(self._batches),
                batch_size=None,
                num_workers=1,
                prefetch_factor=self._capacity,
            )
        )

    def __call__(self):
        return self.__iter__()

    def start(self):
        raise RuntimeError(
            "DataLoader.from_generator: start() is for iterable=False; iterate over "
            "the loader"
        )

    def reset(self):
        raise RuntimeError(
            "DataLoader.from_generator: reset() is for iterable=False; iterate over "
            "the loader again"
        )


class _Batches(IterableDataset):
    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        return self._batches()


def _fields(sample):
    return sample if isinstance(sample, (list, tuple)) else [sample]


def _array(field):
    if _tensors.is_tensor(field) or isinstance(field, np.ndarray):
        return field
    array = np.array(field)
    return array.astype(_tensors.default_float()) if array.dtype == "f8" else array
