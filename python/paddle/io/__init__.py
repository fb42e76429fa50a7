# SPDX-License-Identifier: Apache-2.0
"""Datasets, samplers and the DataLoader."""

from .. import _names
from .collate import default_collate_fn, default_convert_fn
from .dataloader import DataLoader
from .dataset import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .sampler import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)
from .worker import WorkerInfo, get_worker_info

__all__ = _names.gathered(globals())
