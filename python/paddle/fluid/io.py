# SPDX-License-Identifier: Apache-2.0
"""Loading data; saving and loading programs and values."""

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
from .model_io import (
    get_program_parameter,
    get_program_persistable_vars,
    is_persistable,
    load,
    load_inference_model,
    load_params,
    load_persistables,
    load_program_state,
    load_vars,
    save,
    save_inference_model,
    save_params,
    save_persistable,
    save_persistables,
    save_vars,
    set_program_state,
)


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
