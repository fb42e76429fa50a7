# SPDX-License-Identifier: Apache-2.0
"""The older Fleet for jobs with servers.

from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
"""

from ......distributed.fleet.base.served_training import ServedTraining
from .....transpiler.distribute_transpiler import (
    DistributeTranspilerConfig,
    ServerProgram,
)
from ...base.fleet_base import DistributedOptimizer, Fleet
from ...base.mode import Mode
from .distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
)

__all__ = [
    "AsyncStrategy",
    "DistributeTranspilerConfig",
    "DistributedStrategy",
    "FleetTranspiler",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "ParameterServerOptimizer",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "TranspilerOptimizer",
    "fleet",
]


class FleetTranspiler(Fleet):
    """The Fleet of a job with servers."""

    def __init__(self):
        super().__init__(Mode.TRANSPILER)

    def _default_role_maker(self):
        import os

        from ...base.role_maker import MPISymetricRoleMaker

        started_by_mpi = (
            "OMPI_COMM_WORLD_RANK" in os.environ or "PMI_RANK" in os.environ
        )
        if started_by_mpi and "PADDLE_PSERVERS_IP_PORT_LIST" not in os.environ:
            return MPISymetricRoleMaker()
        return super()._default_role_maker()

    def distributed_optimizer(self, optimizer, strategy=None):
        """An optimizer whose minimize() moves the parameters to servers.

        Args:
            strategy: a DistributeTranspilerConfig, or what StrategyFactory makes; sync
                without one.
        """
        self._optimizer = ParameterServerOptimizer(optimizer, _checked(strategy), self)
        return self._optimizer

    def _serve_by(self, strategy):
        """Has minimize() of the Fleet behind this follow `strategy`."""
        self._fleet._training = ServedTraining(
            self._role_maker._get_role(), strategy._mode(), **strategy._queue()
        )

    def shrink(self, threshold=None):
        return self._fleet.shrink(threshold)


def _checked(strategy):
    if strategy is None:
        return StrategyFactory.create_sync_strategy()
    if isinstance(strategy, DistributeTranspilerConfig):
        strategy._check()
        return DistributedStrategy(strategy)
    if isinstance(strategy, DistributedStrategy):
        return strategy
    raise TypeError(
        "fleet.distributed_optimizer: strategy must be a DistributeTranspilerConfig or "
        f"one of StrategyFactory's, but is a {type(strategy).__name__}"
    )


class ParameterServerOptimizer(DistributedOptimizer):
    """An optimizer whose updates are made by servers."""

    def __init__(self, optimizer, strategy, owner):
        super().__init__(optimizer, strategy)
        self._owner = owner

    def minimize(
        self,
        losses,
        scopes=None,
        startup_programs=None,
        parameter_list=None,
        no_grad_set=None,
    ):
        """Appends backward and updates to the program of the loss, and rewrites it for
        this process. Returns the operations that update, and the pairs of parameter
        and gradient."""
        loss = self._only("losses", losses)
        startup = self._only("startup_programs", startup_programs)
        owner = self._owner
        owner._keep(loss, startup)
        if owner._fleet._has_servers() and owner._fleet._training is None:
            owner._serve_by(self._strategy)
        owner._fleet.distributed_optimizer(self._optimizer)
        made = owner._fleet.minimize(loss, startup, parameter_list, no_grad_set)
        if owner.is_server():
            role = owner._role_maker._get_role()
            owner.main_program = ServerProgram(role, self._strategy._mode())
        return made


TranspilerOptimizer = ParameterServerOptimizer

fleet = FleetTranspiler()
