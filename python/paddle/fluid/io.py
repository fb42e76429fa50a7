# SPDX-License-Identifier: Apache-2.0
"""Loading data. What saves and loads static programs is not there yet."""

from .._later import explain
from ..batch import batch
from ..io import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequenceSampler,
    TensorDataset,
    get_worker_info,
)
from ..reader import (
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)

__all__ = [
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "TensorDataset",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "get_worker_info",
    "map_readers",
    "shuffle",
    "xmap_readers",
]

__getattr__ = explain(
    __name__,
    static_graphs="PyReader save_vars save_params save_persistables save_persistable "
    "load_vars load_params load_persistables save_inference_model "
    "load_inference_model save load load_program_state set_program_state",
)
