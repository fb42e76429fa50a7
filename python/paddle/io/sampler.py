# SPDX-License-Identifier: Apache-2.0
"""Samplers: in which order, and in which batches, samples are read."""

import math
import numbers

import numpy as np

from ..distributed.parallel import get_rank, get_world_size
from . import _tensors
from .dataset import IterableDataset


class Sampler:
    """Base of samplers: define `__iter__` over sample indices and `__len__`."""

    def __init__(self, data_source=None):
        self.data_source = data_source

    def __iter__(self):
        raise NotImplementedError(
            f"{type(self).__name__} does not define __iter__, which a "
            "paddle.io.Sampler needs"
        )


class SequenceSampler(Sampler):
    """0, 1, 2, ... up to the length of `data_source`."""

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """The indices of `data_source` in random order.

    With `replacement` the indices are drawn independently, `num_samples` of
    them. The order comes from numpy's global generator (`numpy.random.seed`),
    as Paddle's does, or from `generator`, an iterator over indices.
    """

    def __init__(
        self, data_source, replacement=False, num_samples=None, generator=None
    ):
        super().__init__(data_source)
        _require_bool("RandomSampler", "replacement", replacement)
        if num_samples is not None:
            if not replacement:
                raise ValueError(
                    "RandomSampler: num_samples needs replacement=True; without "
                    "replacement every sample is drawn once"
                )
            _require_positive("RandomSampler", "num_samples", num_samples)
        elif len(data_source) == 0:
            raise ValueError(
                "RandomSampler: the dataset is empty, so there is nothing to shuffle"
            )
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self):
        if self._num_samples is None:
            return len(self.data_source)
        return self._num_samples

    def __iter__(self):
        if self.generator is not None:
            for _, index in zip(range(self.num_samples), self.generator):
                yield index
            return
        size = len(self.data_source)
        if size == 0:
            return
        # This call, and no other, so that a given numpy seed shuffles as it
        # does under Paddle.
        yield from np.random.choice(
            np.arange(size), self.num_samples, replace=self.replacement
        ).tolist()

    def __len__(self):
        return self.num_samples


class WeightedRandomSampler(Sampler):
    """Draws `num_samples` indices with probability proportional to `weights`.

    `weights` has one row, or several: then each row is drawn from in turn.
    """

    def __init__(self, weights, num_samples, replacement=True):
        super().__init__()
        _require_positive("WeightedRandomSampler", "num_samples", num_samples)
        _require_bool("WeightedRandomSampler", "replacement", replacement)
        rows = np.asarray(_tensors.to_numpy(weights), dtype=np.float64)
        if rows.ndim not in (1, 2) or rows.size == 0:
            raise ValueError(
                "WeightedRandomSampler: weights must be one or more rows of "
                f"numbers, but have shape {list(rows.shape)}"
            )
        rows = rows.reshape(-1, rows.shape[-1])
        if not np.all(np.isfinite(rows)) or np.any(rows < 0):
            raise ValueError(
                "WeightedRandomSampler: weights must be finite and not negative"
            )
        needed = 1 if replacement else num_samples
        if np.any(np.count_nonzero(rows, axis=1) < needed):
            raise ValueError(
                f"WeightedRandomSampler: needs at least {needed} positive "
                "weights in every row"
            )
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement
        self._probabilities = rows / rows.sum(axis=1, keepdims=True)

    def __iter__(self):
        for row in self._probabilities:
            yield from np.random.choice(
                len(row), self.num_samples, self.replacement, row
            ).tolist()

    def __len__(self):
        return self.num_samples * len(self._probabilities)


class BatchSampler(Sampler):
    """Lists of `batch_size` indices, from a dataset or from a sampler."""

    def __init__(
        self,
        dataset=None,
        sampler=None,
        shuffle=False,
        batch_size=1,
        drop_last=False,
    ):
        if (dataset is None) == (sampler is None):
            raise ValueError("BatchSampler: give either dataset or sampler")
        _require_bool("BatchSampler", "shuffle", shuffle)
        _require_bool("BatchSampler", "drop_last", drop_last)
        _require_positive("BatchSampler", "batch_size", batch_size)
        if sampler is not None:
            if shuffle:
                raise ValueError(
                    "BatchSampler: shuffle has no effect beside sampler, which "
                    "decides the order; leave it out"
                )
            if not hasattr(sampler, "__iter__"):
                raise TypeError(
                    "BatchSampler: sampler must be iterable, but is a "
                    f"{type(sampler).__name__}"
                )
        elif isinstance(dataset, IterableDataset):
            raise TypeError(
                "BatchSampler: an IterableDataset has no indices to sample; "
                "give the DataLoader batch_size instead"
            )
        else:
            sampler = RandomSampler(dataset) if shuffle else SequenceSampler(dataset)
        super().__init__(dataset)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        return _batches(self.sampler, self.batch_size, self.drop_last)

    def __len__(self):
        return _num_batches(len(self.sampler), self.batch_size, self.drop_last)


class DistributedBatchSampler(BatchSampler):
    """The batches of one rank, so that the ranks share each epoch's samples.

    Every rank gets ceil(len(dataset) / num_replicas) samples; where that does
    not divide, the first samples appear twice. Rank r takes the r-th block of
    `batch_size` indices out of every `num_replicas` blocks, and the remainder
    is cut into equal parts. With `shuffle`, the order of epoch e is that of
    `numpy.random.RandomState(e)`, the same on all ranks; e counts the
    iterations, or is given by `set_epoch`.

    `num_replicas` and `rank` default to this process's place in the job.
    """

    def __init__(
        self,
        dataset,
        batch_size,
        num_replicas=None,
        rank=None,
        shuffle=False,
        drop_last=False,
    ):
        who = "DistributedBatchSampler"
        _require_positive(who, "batch_size", batch_size)
        _require_bool(who, "shuffle", shuffle)
        _require_bool(who, "drop_last", drop_last)
        if num_replicas is None:
            num_replicas = get_world_size()
        if rank is None:
            rank = get_rank()
        _require_positive(who, "num_replicas", num_replicas)
        if not isinstance(rank, numbers.Integral) or not 0 <= rank < num_replicas:
            raise ValueError(
                f"{who}: rank must be in [0, {num_replicas}), but is {rank!r}"
            )
        self.dataset = self.data_source = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.nranks = num_replicas
        self.local_rank = rank
        self.epoch = 0
        self.num_samples = math.ceil(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        indices = list(range(len(self.dataset)))
        # A dataset smaller than the number of ranks is repeated more than once.
        while 0 < len(indices) < self.total_size:
            indices += indices[: self.total_size - len(indices)]
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(indices)
            self.epoch += 1
        mine = self._share(indices) if self.nranks > 1 else indices
        return _batches(mine, self.batch_size, self.drop_last)

    def _share(self, indices):
        per_round = self.batch_size * self.nranks
        whole = len(indices) - len(indices) % per_round
        first = self.local_rank * self.batch_size
        mine = []
        for start in range(first, whole, per_round):
            mine += indices[start : start + self.batch_size]
        rest = indices[whole:]
        part = len(rest) // self.nranks
        return mine + rest[self.local_rank * part : (self.local_rank + 1) * part]

    def __len__(self):
        return _num_batches(self.num_samples, self.batch_size, self.drop_last)

    def set_epoch(self, epoch):
        """Makes the next iteration shuffle as epoch `epoch`."""
        self.epoch = epoch


def _batches(indices, batch_size, drop_last):
    batch = []
    for index in indices:
        batch.append(index)
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def _num_batches(num_samples, batch_size, drop_last):
    if drop_last:
        return num_samples // batch_size
    return -(-num_samples // batch_size)


def _require_positive(who, name, value):
    is_int = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_int or value <= 0:
        raise ValueError(f"{who}: {name} must be a positive integer, but is {value!r}")


def _require_bool(who, name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{who}: {name} must be True or False, but is {value!r}")
