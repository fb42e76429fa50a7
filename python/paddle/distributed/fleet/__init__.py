# SPDX-License-Identifier: Apache-2.0
"""The Fleet API: a script for one machine, on many.

    from paddle.distributed import fleet

    fleet.init(is_collective=True)
    optimizer = fleet.distributed_optimizer(optimizer)
    model = fleet.distributed_model(model)

The functions are methods of the one Fleet of this process, `fleet.fleet`.
"""

from ..._later import explain, on_first_use
from . import base
from .base import role_maker
from .base.distributed_strategy import DistributedStrategy
from .base.fleet_base import Fleet
from .base.role_maker import PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from .base.util_factory import UtilBase

__all__ = [
    "DistributedStrategy",
    "Fleet",
    "PaddleCloudRoleMaker",
    "Role",
    "UserDefinedRoleMaker",
    "UtilBase",
]

fleet = Fleet()
util = fleet.util

for _name in """
    init is_first_worker worker_index worker_num rank nranks is_worker worker_endpoints
    server_num server_index server_endpoints is_server node_num local_rank rank_in_node
    local_device_ids world_device_ids barrier_worker init_worker init_server run_server
    stop_worker worker_stats distributed_model distributed_optimizer step clear_grad set_lr get_lr
    state_dict set_state_dict minimize amp_init distributed_scaler save_inference_model
    save_persistables load_model shrink save_cache_model save_dense_params
    get_hybrid_communicate_group
    _final_strategy _get_applied_meta_list _get_applied_graph_list
""".split():
    globals()[_name] = getattr(fleet, _name)

_later = explain(
    __name__,
    meta_optimizers_as_classes="meta_optimizers",
    federated_training="init_coordinator make_fl_strategy get_fl_client",
    hybrid_parallel_training="meta_parallel CommunicateTopology HybridCommunicateGroup",
)

# With numpy, which takes long to load.
__getattr__ = on_first_use(
    __name__,
    {
        "MultiSlotDataGenerator": (".data_generator", "MultiSlotDataGenerator"),
        "MultiSlotStringDataGenerator": (
            ".data_generator",
            "MultiSlotStringDataGenerator",
        ),
        "data_generator": (".data_generator",),
        "dataset": (".dataset",),
        "metrics": (".metrics",),
        "utils": (".utils",),
    },
    _later,
)
