# SPDX-License-Identifier: Apache-2.0
"""The loader behind DataLoader.from_generator."""

import numpy as np

from ..framework.mode import in_dynamic_mode
from . import _tensors, feed
from .collate import default_collate_fn
from .dataset import IterableDataset


class GeneratorLoader:
    """Batches from a Python generator function, as lists of tensors.

    One of `set_sample_generator`, `set_sample_list_generator` and
    `set_batch_generator` says where they come from; each iteration calls the
    function anew. With `use_multiprocess` the generator runs in a forked
    process, `capacity` batches ahead (2 if None).

    With `feed_list`, the data variables of a program, a batch is what
    Executor.run takes as its feed, unless `return_list`. Not `iterable`, the
    loader feeds the program itself: after start() every run takes the next
    batch, which a thread has read ahead, and raises EOFException when there is
    none; then reset() makes it ready for the next start().

    `use_double_buffer` and `places` are accepted: batches are always read ahead, and the
    executor brings them to its device.
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
        self.feed_list = None if feed_list is None else list(feed_list)
        if not iterable and not self.feed_list:
            raise ValueError(
                "DataLoader.from_generator: iterable=False feeds a program; feed_list "
                "must say which of its variables"
            )
        if capacity is not None and capacity < 1:
            raise ValueError(
                f"DataLoader.from_generator: capacity must be at least 1, but is "
                f"{capacity!r}"
            )
        self._capacity = capacity or 2
        self._use_multiprocess = use_multiprocess
        self._drop_last = drop_last
        self._iterable = iterable
        self._return_list = return_list
        self._batches = None
        self._feeds = None  # the same as dicts of names and values
        self._prefetch = None
        if not iterable:
            self.feed_list[0].block.program._readers.append(self)

    @property
    def _feeding(self):
        return bool(self.feed_list) and not in_dynamic_mode()

    def set_sample_generator(self, reader, batch_size, drop_last=True, places=None):
        """`reader()` yields samples, which are batched by `batch_size`."""
        if batch_size < 1:
            raise ValueError(
                f"set_sample_generator: batch_size must be at least 1, but is "
                f"{batch_size!r}"
            )

        def lists():
            samples = []
            for sample in reader():
                samples.append(_fields(sample))
                if len(samples) == batch_size:
                    yield samples
                    samples = []
            if samples and not drop_last:
                yield samples

        return self.set_sample_list_generator(lists, places)

    def set_sample_list_generator(self, reader, places=None):
        """`reader()` yields batches as lists of samples."""

        def batches():
            for samples in reader():
                yield default_collate_fn([_fields(sample) for sample in samples])

        def feeds():
            for samples in reader():
                yield feed.from_samples(self.feed_list, samples)

        self._batches, self._feeds = batches, feeds
        return self

    def set_batch_generator(self, reader, places=None):
        """`reader()` yields batches: the arrays or tensors of their fields."""

        def batches():
            for batch in reader():
                yield [_array(field) for field in _fields(batch)]

        def feeds():
            for batch in reader():
                yield feed.from_batch(self.feed_list, batch)

        self._batches, self._feeds = batches, feeds
        return self

    # Older names of the same.
    decorate_sample_generator = set_sample_generator
    decorate_sample_list_generator = set_sample_list_generator
    decorate_batch_generator = set_batch_generator
    decorate_paddle_reader = set_sample_list_generator
    decorate_tensor_provider = set_batch_generator

    def _check_source(self):
        if self._batches is None:
            raise RuntimeError(
                "DataLoader.from_generator: no data source; call "
                "set_sample_generator, set_sample_list_generator or "
                "set_batch_generator first"
            )

    def __iter__(self):
        self._check_source()
        if not self._iterable:
            raise RuntimeError(
                "DataLoader.from_generator: with iterable=False the program is fed: "
                "call start(), and run it without feed"
            )
        if self._feeding:
            if self._return_list:
                names = feed.names_of(self.feed_list)
                return ([made[name] for name in names] for made in self._feeds())
            return ([made] for made in self._feeds())
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
        """Begins to read, with iterable=False."""
        if self._iterable:
            raise RuntimeError(
                "DataLoader.from_generator: start() is for iterable=False; iterate over "
                "the loader"
            )
        self._check_source()
        if self._prefetch is not None:
            raise RuntimeError(
                "DataLoader.from_generator: the loader is started already; call "
                "reset() first"
            )
        self._prefetch = feed.Prefetch(self._feeds, self._capacity)

    def reset(self):
        """Ends reading, with iterable=False."""
        if self._iterable:
            raise RuntimeError(
                "DataLoader.from_generator: reset() is for iterable=False; iterate over "
                "the loader again"
            )
        if self._prefetch is not None:
            self._prefetch.close()
            self._prefetch = None

    def _add_to(self, fed):
        """`fed` with the next batch, unless it has all the variables already."""
        names = feed.names_of(self.feed_list)
        if fed and all(name in fed for name in names):
            return fed
        if self._prefetch is None:
            raise RuntimeError(
                f"the loader of {', '.join(names)} is not started: call start() before "
                "the program runs, or feed them"
            )
        return {**self._prefetch.next(), **(fed or {})}


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
