# SPDX-License-Identifier: Apache-2.0
"""Training with several processes: who they are, and collectives among them."""

from .. import _names
from .._later import explain, on_first_use
from .collective import (
    Group,
    ReduceOp,
    all_gather,
    all_gather_object,
    all_reduce,
    alltoall,
    alltoall_single,
    barrier,
    broadcast,
    broadcast_object_list,
    gather,
    get_backend,
    get_group,
    new_group,
    reduce,
    reduce_scatter,
    scatter,
    scatter_object_list,
    split,
    wait,
)
from .entry_attr import CountFilterEntry, ProbabilityEntry, ShowClickEntry
from .parallel import (
    ParallelEnv,
    destroy_process_group,
    get_rank,
    get_world_size,
    gloo_barrier,
    gloo_init_parallel_env,
    gloo_release,
    init_parallel_env,
    is_available,
    is_initialized,
)
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send

_DATASETS = ("BoxPSDataset", "FileInstantDataset", "InMemoryDataset", "QueueDataset")

__getattr__ = on_first_use(
    __name__,
    {
        **{name: (".fleet.dataset", name) for name in _DATASETS},
        "fleet": (".fleet",),
        "launch": (".launch",),
        "spawn": (".multiprocess", "spawn"),
        "stream": (".stream",),
    },
    explain(
        __name__,
        automatic_parallel_training="ProcessMesh shard_tensor shard_op shard_layer "
        "reshard dtensor_from_fn Strategy Engine to_static",
    ),
)

__all__ = [*_names.gathered(globals()), "spawn"]
