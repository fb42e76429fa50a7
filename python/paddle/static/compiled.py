# SPDX-License-Identifier: Apache-2.0
"""Names by which scripts once chose how a program is executed. The executor does what
they ask for by itself; the settings are kept and can be read."""

import enum

from .program import Program, default_main_program

__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "ParallelExecutor",
]


class _Settings:
    """Attributes with defaults; one that does not exist cannot be set by mistake."""

    _DEFAULTS = {}

    def __init_subclass__(cls):
        for name, value in cls._DEFAULTS.items():
            setattr(cls, name, value)

    def __init__(self):
        for name, value in self._DEFAULTS.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        if name not in self._DEFAULTS:
            raise AttributeError(f"{type(self).__name__} has no setting '{name}'")
        object.__setattr__(self, name, value)

    def __repr__(self):
        values = ", ".join(f"{k}={v}" for k, v in vars(self).items())
        return f"{type(self).__name__}({values})"


class ReduceStrategy(enum.IntEnum):
    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(enum.IntEnum):
    CoeffNumDevice = 0
    One = 1
    Customized = 2


class BuildStrategy(_Settings):
    """Wishes for how a program is put together."""

    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy
    _DEFAULTS = {
        "async_mode": False,
        "build_cinn_pass": False,
        "cache_runtime_context": False,
        "debug_graphviz_path": "",
        "enable_addto": False,
        "enable_auto_fusion": False,
        "enable_backward_optimizer_op_deps": True,
        "enable_inplace": True,
        "enable_sequential_execution": False,
        "fix_op_run_order": False,
        "fuse_all_optimizer_ops": True,
        "fuse_all_reduce_ops": True,
        "fuse_bn_act_ops": False,
        "fuse_bn_add_act_ops": True,
        "fuse_broadcast_ops": False,
        "fuse_elewise_add_act_ops": False,
        "fuse_gemm_epilogue": False,
        "fuse_relu_depthwise_conv": False,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "hierarchical_allreduce_inter_nranks": 0,
        "is_distribution": False,
        "memory_optimize": None,
        "mkldnn_enabled_op_types": set(),
        "nccl_comm_num": 1,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
        "trainers_endpoints": [],
        "use_hierarchical_allreduce": False,
    }

    def __init__(self):
        super().__init__()
        self.mkldnn_enabled_op_types = set()
        self.trainers_endpoints = []


class ExecutionStrategy(_Settings):
    """Wishes for how a program is run."""

    _DEFAULTS = {
        "allow_op_delay": False,
        "dry_run": False,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "num_threads": 0,
        "use_cuda": False,
        "use_thread_barrier": False,
    }


class CompiledProgram:
    """A program with settings for its execution. Executor.run takes it as the program
    itself."""

    def __init__(self, program_or_graph, build_strategy=None):
        if not isinstance(program_or_graph, Program):
            raise TypeError(
                "CompiledProgram takes a Program, but got "
                f"{type(program_or_graph).__name__}"
            )
        self._program = program_or_graph
        self._build_strategy = build_strategy
        self._exec_strategy = None
        self._is_data_parallel = False

    def with_data_parallel(
        self,
        loss_name=None,
        build_strategy=None,
        exec_strategy=None,
        share_vars_from=None,
        places=None,
    ):
        """Keeps the settings. One process runs on one device: fleetrun starts several
        processes."""
        self._is_data_parallel = True
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy
        self._loss_name = loss_name
        self._places = places
        return self

    def with_inference_optimize(self, config):
        """The program itself: the executor optimizes what it runs."""
        return self


class ParallelExecutor:
    """An Executor for one program.

    share_vars_from: a ParallelExecutor whose scope is used, unless `scope` names one.
    loss_name, exec_strategy, build_strategy: for several devices of one process; one
        process runs on one device here.
    num_trainers, trainer_id: must be those of one process; several are started by
        fleetrun and exchange gradients through fleet.distributed_optimizer.
    """

    def __init__(
        self,
        use_cuda,
        loss_name=None,
        main_program=None,
        share_vars_from=None,
        exec_strategy=None,
        build_strategy=None,
        num_trainers=1,
        trainer_id=0,
        scope=None,
    ):
        from ..framework.place import CPUPlace, CUDAPlace
        from .executor import Executor, global_scope

        if num_trainers != 1:
            raise NotImplementedError(
                f"ParallelExecutor: num_trainers={num_trainers}: use "
                "fleet.distributed_optimizer(...) for the optimizer and start the "
                "processes with fleetrun"
            )
        if scope is None:
            scope = (
                global_scope() if share_vars_from is None else share_vars_from._scope
            )
        self._program = main_program or default_main_program()
        self._scope = scope
        self._executor = Executor(CUDAPlace(0) if use_cuda else CPUPlace())

    @property
    def device_count(self):
        return 1

    def run(self, fetch_list, feed=None, feed_dict=None, return_numpy=True):
        """As Executor.run()."""
        return self._executor.run(
            self._program,
            feed if feed is not None else feed_dict,
            fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )

    def drop_local_exe_scopes(self):
        """There are none."""
