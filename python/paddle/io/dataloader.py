# SPDX-License-Identifier: Apache-2.0
"""DataLoader: batches of a dataset as tensors, made here or by processes."""

import collections
import numbers
import weakref

from ..framework.mode import in_dynamic_mode
from . import _tensors, feed
from .collate import default_collate_fn, default_convert_fn
from .dataset import IterableDataset
from .generator_loader import GeneratorLoader
from .pool import WorkerPool
from .sampler import BatchSampler, RandomSampler, SequenceSampler
from .worker import Fetcher, WorkerOptions


class DataLoader:
    """Iterates over the batches of `dataset`.

    A batch has the form of a sample (a list for a tuple), with arrays, tensors
    and numbers stacked to tensors. `batch_size=None` gives single samples as
    the dataset returns them.

    With `num_workers` > 0 forked processes make the batches, each
    `prefetch_factor` ahead, and hand them over in shared memory; the order is
    that of the sampler. Their generators (`random`, `numpy.random`, paddle's)
    differ between workers and between epochs and follow `paddle.seed`.
    `persistent_workers` keeps them for the next epoch. An exception in a worker
    is raised here with the worker's traceback in its message. A worker that
    dies, or that takes longer than `timeout` seconds (0: no limit) over a
    batch, is a RuntimeError that names it. After an exception the iteration is
    over and its workers are gone.

    Args:
        dataset: a Dataset, an IterableDataset, or anything with
            `__getitem__` and `__len__`.
        feed_list: in static mode the data variables of a program: a batch is then
            what Executor.run takes as its feed, unless return_list.
        places: accepted for compatibility; tensors are made on the current
            device.
        return_list: in static mode whether batches are lists all the same; in
            eager mode they always are.
        batch_sampler: yields lists of indices; excludes batch_size, shuffle and
            drop_last.
        batch_size: samples per batch, or None.
        shuffle: whether to draw the samples in random order.
        drop_last: whether to drop a last batch that is not full.
        collate_fn: makes a batch of a list of samples.
        num_workers: processes that make batches; 0 makes them here.
        use_buffer_reader: accepted for compatibility; workers always prefetch.
        prefetch_factor: batches that each worker makes ahead.
        use_shared_memory: if False, tensors do not alias the memory shared with
            the workers: one more copy.
        timeout: seconds to wait for a batch, 0 for ever.
        worker_init_fn: called with the worker's id when a worker starts.
        persistent_workers: whether workers outlive an epoch.
    """

    def __init__(
        self,
        dataset,
        feed_list=None,
        places=None,
        return_list=None,
        batch_sampler=None,
        batch_size=1,
        shuffle=False,
        drop_last=False,
        collate_fn=None,
        num_workers=0,
        use_buffer_reader=True,
        prefetch_factor=2,
        use_shared_memory=True,
        timeout=0,
        worker_init_fn=None,
        persistent_workers=False,
    ):
        _require_count("num_workers", num_workers, 0)
        _require_count("prefetch_factor", prefetch_factor, 1)
        if batch_size is not None:
            _require_count("batch_size", batch_size, 1)
        if not isinstance(timeout, numbers.Real) or not timeout >= 0:
            raise ValueError(
                f"DataLoader: timeout must be 0 or more seconds, but is {timeout!r}"
            )
        for name, function in (
            ("collate_fn", collate_fn),
            ("worker_init_fn", worker_init_fn),
        ):
            if function is not None and not callable(function):
                raise TypeError(
                    f"DataLoader: {name} must be callable, but is {function!r}"
                )
        iterable = isinstance(dataset, IterableDataset)
        _check_dataset(dataset, iterable, shuffle, batch_sampler)
        if batch_sampler is not None:
            _check_batch_sampler(batch_sampler, batch_size, shuffle, drop_last)
            # As Paddle says it: the sampler knows.
            batch_size = getattr(batch_sampler, "batch_size", None)
        elif batch_size is None and drop_last:
            raise ValueError("DataLoader: drop_last needs a batch_size")
        elif batch_size is not None and not iterable:
            batch_sampler = BatchSampler(
                dataset, shuffle=shuffle, batch_size=batch_size, drop_last=drop_last
            )

        self.dataset = dataset
        self.feed_list = feed_list
        self.places = places
        self.return_list = return_list
        self.batch_sampler = batch_sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.use_buffer_reader = use_buffer_reader
        self.prefetch_factor = prefetch_factor
        self.use_shared_memory = use_shared_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.auto_collate_batch = batch_sampler is not None or (
            iterable and batch_size is not None
        )
        if collate_fn is None:
            batched = self.auto_collate_batch
            collate_fn = default_collate_fn if batched else default_convert_fn
        self.collate_fn = collate_fn
        self._shuffle = shuffle
        self._iterable = iterable
        self._persistent = bool(persistent_workers)
        self._current = None  # the iterator that holds the persistent workers

    def __iter__(self):
        if self.feed_list and not self.return_list and not in_dynamic_mode():
            return ([feed.from_batch(self.feed_list, b)] for b in self._batches())
        return self._batches()

    def _batches(self):
        if self.num_workers == 0:
            return _LocalIterator(self)
        if not self._persistent:
            return _WorkersIterator(self, self._make_pool())
        pool = None if self._current is None else self._current.release()
        self._current = _WorkersIterator(self, pool or self._make_pool())
        return self._current

    def __call__(self):
        return self.__iter__()

    def __len__(self):
        if self._iterable:
            raise TypeError(
                "DataLoader: the length over an IterableDataset is not known"
            )
        if self.batch_sampler is None:
            return len(self.dataset)
        return len(self.batch_sampler)

    @staticmethod
    def from_generator(
        feed_list=None,
        capacity=None,
        use_double_buffer=True,
        iterable=True,
        return_list=False,
        use_multiprocess=False,
        drop_last=True,
    ):
        """A loader over Python generators; see GeneratorLoader."""
        return GeneratorLoader(
            feed_list,
            capacity,
            use_double_buffer,
            iterable,
            return_list,
            use_multiprocess,
            drop_last,
        )

    @staticmethod
    def from_dataset(dataset, places, drop_last=True):
        """A loader over an InMemoryDataset or QueueDataset: each iteration is a pass,
        and yields batches that Executor.run takes as its feed. A pass without a batch
        is a ValueError.

        places: accepted; the executor brings batches to its device.
        drop_last: what does not fill the last batch is left out.
        """
        return _DatasetLoader(dataset, drop_last)

    def _options(self):
        return WorkerOptions(
            dataset=self.dataset,
            collate_fn=self.collate_fn,
            init_fn=self.worker_init_fn,
            num_workers=self.num_workers,
            iterable=self._iterable,
            batched=self.auto_collate_batch,
            drop_last=self.drop_last,
        )

    def _make_pool(self):
        return WorkerPool(
            self._options(), self.prefetch_factor, self.timeout, self.use_shared_memory
        )

    def _requests(self):
        """What to ask for, batch by batch: indices, or how many samples."""
        if self._iterable:
            while True:
                yield self.batch_size or 1
        elif self.batch_sampler is not None:
            yield from self.batch_sampler
        elif self._shuffle:
            yield from RandomSampler(self.dataset)
        else:
            yield from SequenceSampler(self.dataset)


class _LocalIterator:
    """Makes each batch when it is asked for."""

    def __init__(self, loader):
        self._loader = loader
        self._requests = loader._requests()
        self._fetcher = Fetcher(loader._options())

    def __iter__(self):
        return self

    def __next__(self):
        indices = next(self._requests)
        try:
            batch = self._fetcher.fetch(indices)
        except StopIteration:
            if self._loader._iterable:
                raise
            raise RuntimeError(
                "DataLoader: the dataset raised StopIteration for the indices "
                f"{indices!r}"
            ) from None
        # What the default function stacked is the batch's own; what another
        # returned may be the dataset's.
        owned = self._loader.collate_fn is default_collate_fn
        return _tensors.to_tensors(batch, owned)

    def __len__(self):
        return len(self._loader)


class _WorkersIterator:
    """Keeps the workers busy and returns their batches in order.

    Batch i goes to the workers in turn, so which worker makes it, and with
    which random numbers, does not depend on timing.
    """

    def __init__(self, loader, pool):
        self._length = None if loader._iterable else len(loader)
        self._persistent = loader._persistent
        self._requests = loader._requests()
        self._pool = pool
        self._active = list(range(loader.num_workers))
        self._turn = 0
        self._num_requested = 0
        self._order = collections.deque()  # workers that owe a batch
        # Also runs at exit, and when the loop is left early.
        self._close = weakref.finalize(self, pool.close)
        try:
            pool.start_epoch(_tensors.draw_seed())
            for _ in range(loader.prefetch_factor * loader.num_workers):
                self._request()
        except BaseException:
            self._close()
            raise

    def __iter__(self):
        return self

    def __len__(self):
        if self._length is None:
            raise TypeError(
                "DataLoader: the length over an IterableDataset is not known"
            )
        return self._length

    def __next__(self):
        if self._pool is None:
            raise RuntimeError(
                "DataLoader: this iterator ended when another was started; "
                "persistent_workers=True allows one at a time"
            )
        while self._order:
            worker_id = self._order.popleft()
            try:
                found, batch = self._pool.receive(worker_id)
                if not found and worker_id in self._active:
                    self._active.remove(worker_id)
                self._request()
            except BaseException:
                self._order.clear()
                self._close()
                raise
            if found:
                return _tensors.to_tensors(batch, owned=True)
        if not self._persistent:
            self._close()
        raise StopIteration

    def release(self):
        """Gives up the workers to the next epoch; None if they are gone."""
        pool, self._pool = self._pool, None
        return pool if pool is not None and self._close.detach() else None

    def _request(self):
        """Asks for one more batch, of the next worker that may take one."""
        for _ in range(len(self._active)):
            worker_id = self._active[self._turn % len(self._active)]
            if self._pool.num_pending(worker_id) < self._pool.max_pending:
                break
            self._turn += 1
        else:
            return
        indices = next(self._requests, _END)
        if indices is _END:
            return
        self._turn += 1
        self._pool.request(worker_id, self._num_requested, indices)
        self._num_requested += 1
        self._order.append(worker_id)


_END = object()


def _check_dataset(dataset, iterable, shuffle, batch_sampler):
    if iterable:
        if shuffle:
            raise ValueError(
                "DataLoader: an IterableDataset is read in its own order; "
                "shuffle=True has no meaning for it"
            )
        if batch_sampler is not None:
            raise ValueError(
                "DataLoader: an IterableDataset has no indices for a batch_sampler"
            )
    elif not hasattr(dataset, "__getitem__"):
        raise TypeError(
            "DataLoader: dataset must be a paddle.io.Dataset or IterableDataset, "
            f"or have __getitem__, but is a {type(dataset).__name__}"
        )


def _check_batch_sampler(batch_sampler, batch_size, shuffle, drop_last):
    if batch_size != 1 or shuffle or drop_last:
        raise ValueError(
            "DataLoader: batch_sampler decides the batches; give it without "
            f"batch_size={batch_size}, shuffle={shuffle}, drop_last={drop_last}"
        )
    if not hasattr(batch_sampler, "__iter__"):
        raise TypeError(
            "DataLoader: batch_sampler must be iterable, but is a "
            f"{type(batch_sampler).__name__}"
        )


def _require_count(name, value, least):
    is_int = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_int or value < least:
        raise ValueError(
            f"DataLoader: {name} must be an integer of at least {least}, but is "
            f"{value!r}"
        )


class _DatasetLoader:
    def __init__(self, dataset, drop_last):
        if not hasattr(dataset, "_feeds"):
            raise TypeError(
                "DataLoader.from_dataset takes an InMemoryDataset or QueueDataset, but "
                f"got a {type(dataset).__name__}"
            )
        self._dataset = dataset
        self._drop_last = drop_last

    def __iter__(self):
        return ([feed] for feed in self._dataset._feeds(self._drop_last))

    __call__ = __iter__
