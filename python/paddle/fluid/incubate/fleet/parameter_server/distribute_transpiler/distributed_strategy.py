# SPDX-License-Identifier: Apache-2.0
"""Strategies of the older Fleet for jobs with servers."""

import os

from ......distributed.fleet.base.strategy_fields import CONFIGS
from .....compiler import BuildStrategy, ExecutionStrategy
from .....transpiler.distribute_transpiler import DistributeTranspilerConfig

_QUEUES = CONFIGS["a_sync_configs"]


def _take(config, values):
    """Sets attributes by a dict or by another object of the kind."""
    if not isinstance(values, dict):
        if not isinstance(values, type(config)):
            raise TypeError(
                f"a {type(config).__name__} or a dict is wanted, not a "
                f"{type(values).__name__}"
            )
        values = vars(values)
    for name, value in values.items():
        if not hasattr(config, name):
            raise ValueError(f"{type(config).__name__} doesn't have key: {name}")
        setattr(config, name, value)


class TrainerRuntimeConfig:
    """How an asynchronous trainer queues. Starts from the environment's
    FLAGS_communicator_..."""

    _FLAGS = (
        "max_merge_var_num",
        "send_queue_size",
        "independent_recv_thread",
        "min_send_grad_num_before_recv",
        "thread_pool_size",
        "send_wait_times",
    )

    def __init__(self):
        self.mode = None
        for name in self._FLAGS:
            default = int(_QUEUES[name])
            text = os.getenv(f"FLAGS_communicator_{name}", str(default))
            setattr(self, name, int(text))

    def get_communicator_flags(self):
        """The settings by the names of the environment."""
        return {
            f"communicator_{name}": str(getattr(self, name)) for name in self._FLAGS
        }

    def display(self, configs=None):
        """The settings as a table."""
        rows = configs or self.get_communicator_flags()
        return "\n".join(f"{name:<45}{value:>12}" for name, value in rows.items())

    def __repr__(self):
        return self.display()


class ServerRuntimeConfig:
    """Accepted: servers set themselves up."""

    def __init__(self):
        self._rpc_send_thread_num = int(os.getenv("FLAGS_rpc_send_thread_num", "12"))
        self._rpc_get_thread_num = int(os.getenv("FLAGS_rpc_get_thread_num", "12"))
        self._rpc_prefetch_thread_num = int(
            os.getenv("FLAGS_rpc_prefetch_thread_num", "12")
        )


class DistributedStrategy:
    """A transpiler's config and what surrounds it."""

    def __init__(self, program_config=None):
        self._program_config = program_config or DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        self.debug_opt = None

    def get_program_config(self):
        return self._program_config

    def set_program_config(self, config):
        _take(self._program_config, config)

    def get_trainer_runtime_config(self):
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config):
        _take(self._trainer_runtime_config, config)

    def get_server_runtime_config(self):
        return self._server_runtime_config

    def set_server_runtime_config(self, config):
        _take(self._server_runtime_config, config)

    def get_execute_strategy(self):
        return self._execute_strategy

    def set_execute_strategy(self, config):
        self._execute_strategy = config

    def get_build_strategy(self):
        return self._build_strategy

    def set_build_strategy(self, config):
        self._build_strategy = config

    def get_debug_opt(self):
        return self.debug_opt

    def set_debug_opt(self, opt_info):
        self.debug_opt = opt_info

    def _mode(self):
        return self._program_config._mode()

    def _queue(self):
        """What differs from the defaults, for ServedTraining."""
        trainer, queue = self._trainer_runtime_config, {}
        if trainer.max_merge_var_num != _QUEUES["max_merge_var_num"]:
            queue["max_merge"] = trainer.max_merge_var_num
        if trainer.send_queue_size != _QUEUES["send_queue_size"]:
            queue["queue_size"] = trainer.send_queue_size
        return queue


def _config(**settings):
    config = DistributeTranspilerConfig()
    config.sync_mode = False
    for name, value in settings.items():
        setattr(config, name, value)
    return config


class SyncStrategy(DistributedStrategy):
    """All workers take a step together."""

    def __init__(self):
        super().__init__(_config(sync_mode=True))


class AsyncStrategy(DistributedStrategy):
    """Gradients are applied when they arrive."""

    def __init__(self):
        super().__init__(_config())


class HalfAsyncStrategy(DistributedStrategy):
    """A worker waits for its own step."""

    def __init__(self):
        super().__init__(_config(half_async=True))


class GeoStrategy(DistributedStrategy):
    """Workers train by themselves, and exchange what changed every so many steps."""

    def __init__(self, update_frequency=100):
        super().__init__(
            _config(geo_sgd_mode=True, geo_sgd_need_push_nums=update_frequency)
        )


class StrategyFactory:
    """Makes strategies by name."""

    @staticmethod
    def create_sync_strategy():
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy():
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy():
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency=100):
        return GeoStrategy(update_frequency)
