# SPDX-License-Identifier: Apache-2.0
"""Datasets: what a DataLoader reads samples from.

A map-style dataset answers `dataset[i]` and `len(dataset)`; an iterable one
answers `iter(dataset)` and has no length.
"""

import bisect

from . import _tensors


class Dataset:
    """Base of map-style datasets: define `__getitem__` and `__len__`."""

    def __getitem__(self, idx):
        raise NotImplementedError(
            f"{type(self).__name__} does not define __getitem__, which a "
            "map-style paddle.io.Dataset needs"
        )

    def __len__(self):
        raise NotImplementedError(
            f"{type(self).__name__} does not define __len__, which a "
            "map-style paddle.io.Dataset needs"
        )


class IterableDataset(Dataset):
    """Base of datasets that are read in order: define `__iter__`.

    With `num_workers` > 0 every worker iterates over its own copy, so the
    dataset must pick its share by `paddle.io.get_worker_info()`, or samples
    appear once per worker.
    """

    def __iter__(self):
        raise NotImplementedError(
            f"{type(self).__name__} does not define __iter__, which a "
            "paddle.io.IterableDataset needs"
        )

    def __getitem__(self, idx):
        raise RuntimeError(
            f"{type(self).__name__} is an IterableDataset: it has no "
            "__getitem__, iterate over it"
        )

    def __len__(self):
        # TypeError, not RuntimeError: list(dataset) asks for a length hint and
        # accepts only this answer as "none".
        raise TypeError(f"{type(self).__name__} is an IterableDataset: it has no len()")


class TensorDataset(Dataset):
    """Sample i is the tuple of row i of every tensor in `tensors`."""

    def __init__(self, tensors):
        tensors = list(tensors)
        if not tensors:
            raise ValueError("TensorDataset: needs at least one tensor")
        rows = [tensor.shape[0] for tensor in tensors]
        if len(set(rows)) != 1:
            raise ValueError(
                f"TensorDataset: the tensors differ in their first dimension: {rows}"
            )
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self):
        return self.tensors[0].shape[0]


class ComposeDataset(Dataset):
    """Sample i holds the fields of sample i of every dataset, side by side."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ComposeDataset: needs at least one dataset")
        _require_map_style("ComposeDataset", self.datasets)
        lengths = [len(dataset) for dataset in self.datasets]
        if len(set(lengths)) != 1:
            raise ValueError(
                f"ComposeDataset: the datasets differ in length: {lengths}"
            )

    def __len__(self):
        return len(self.datasets[0])

    def __getitem__(self, idx):
        sample = []
        for dataset in self.datasets:
            fields = dataset[idx]
            if isinstance(fields, (list, tuple)):
                sample.extend(fields)
            else:
                sample.append(fields)
        return tuple(sample)


class ChainDataset(IterableDataset):
    """The samples of several iterable datasets, one dataset after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ChainDataset: needs at least one dataset")
        for i, dataset in enumerate(self.datasets):
            if not isinstance(dataset, IterableDataset):
                raise TypeError(
                    "ChainDataset: every dataset must be an IterableDataset, but "
                    f"dataset {i} is a {type(dataset).__name__}"
                )

    def __iter__(self):
        for dataset in self.datasets:
            yield from dataset


class ConcatDataset(Dataset):
    """Map-style datasets laid end to end."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: needs at least one dataset")
        _require_map_style("ConcatDataset", self.datasets)
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence):
        """The running total of the datasets' lengths."""
        sizes, total = [], 0
        for dataset in sequence:
            total += len(dataset)
            sizes.append(total)
        return sizes

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx):
        size = len(self)
        if not -size <= idx < size:
            raise IndexError(
                f"ConcatDataset: index {idx} is out of range for {size} samples"
            )
        if idx < 0:
            idx += size
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][idx - before]


class Subset(Dataset):
    """The samples of `dataset` at `indices`, in that order."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx):
        return self.dataset[self.indices[idx]]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Splits `dataset` at random into Subsets of the given lengths.

    The lengths add up to len(dataset). The permutation follows `paddle.seed`,
    or `generator`, a numpy Generator or RandomState.
    """
    lengths = list(lengths)
    if any(length < 0 for length in lengths) or sum(lengths) != len(dataset):
        raise ValueError(
            f"random_split: lengths {lengths} add up to {sum(lengths)}, but the "
            f"dataset has {len(dataset)} samples"
        )
    rng = _tensors.numpy_generator() if generator is None else generator
    order = rng.permutation(len(dataset)).tolist()
    subsets, start = [], 0
    for length in lengths:
        subsets.append(Subset(dataset, order[start : start + length]))
        start += length
    return subsets


def _require_map_style(who, datasets):
    for i, dataset in enumerate(datasets):
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                f"{who}: dataset {i} is an IterableDataset; only map-style "
                "datasets can be joined by index"
            )
