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
from ..io.generator_loader import GeneratorLoader
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
    "PyReader",
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

class PyReader(GeneratorLoader):
    """A loader over generators; see paddle.io.DataLoader.from_generator."""

    def __init__(
        self,
        feed_list=None,
        capacity=None,
        use_double_buffer=True,
        iterable=True,
        return_list=False,
    ):
        super().__init__(
            feed_list, capacity, use_double_buffer, iterable, return_list, False, True
        )


__getattr__ = explain(
    __name__,
    static_graphs="save_vars save_params save_persistables save_persistable "
    "load_vars load_params load_persistables save_inference_model "
    "load_inference_model save load load_program_state set_program_state",
)
