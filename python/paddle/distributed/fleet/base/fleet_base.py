# SPDX-License-Identifier: Apache-2.0
"""Fleet: the one object through which a script becomes a distributed one.

fleet.init(is_collective=True)
optimizer = fleet.distributed_optimizer(optimizer)
model = fleet.distributed_model(model)

What it does in a job with servers is in served_training.py and served_files.py.
"""

import copy
import functools
import os
import warnings

from .... import _core
from ....framework.mode import in_dynamic_mode
from ....framework.place import cuda_places
from . import program_training
from .distributed_strategy import DistributedStrategy
from .role_maker import PaddleCloudRoleMaker, RoleMakerBase, meet
from .role_questions import RoleQuestions
from .server_mode import check_fields, mode_of, queue_settings, table_extras
from .util_factory import UtilBase

__all__ = ["Fleet"]


def _life_of_servers(method):
    """For the methods that begin and end a job with parameter servers: alone and in
    collective jobs they warn and return."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        name, role = method.__name__, self._role()
        if role._is_non_distributed():
            warnings.warn(
                f"{name}() function doesn't work when use non_distributed fleet.",
                stacklevel=2,
            )
        elif self._is_collective:
            warnings.warn(
                f"You should not call '{name}' method for collective mode.",
                stacklevel=2,
            )
        else:
            return method(self, *args, **kwargs)

    return call


def _comes_with(what):
    """For a method that this version does not have."""

    def decorate(method):
        @functools.wraps(method)
        def call(self, *args, **kwargs):
            raise NotImplementedError(f"fleet.{method.__name__}() comes with {what}")

        return call

    return decorate


class Fleet(RoleQuestions):
    """Holds this process's role, the strategy, and the optimizer that was made
    distributed. paddle.distributed.fleet has one, and its functions are that one's
    methods. It is also what distributed_optimizer returns."""

    def __init__(self):
        self._role_maker = None
        self._is_collective = False
        self._user_defined_strategy = None
        self._util = UtilBase()
        self.user_defined_optimizer = None
        # What minimize did to a program; None before.
        self._rewrites, self._passes = [], None
        # In a job with servers: this process's part of it, and where a server begins.
        self._training, self._load_folder, self._load_only = None, "", []

    def init(self, role_maker=None, is_collective=False, strategy=None, log_level=None):
        """Finds out who this process is and, in a collective job of several workers,
        meets the others. Called again, it begins anew.

        Args:
            role_maker: a role maker; without it, what the launcher says counts.
            is_collective: without a role maker, whether the job has workers only,
                rather than workers and parameter servers.
            strategy: a DistributedStrategy, of which a copy is kept.
            log_level: accepted for scripts of later versions.

        Raises:
            ValueError: an argument is of another kind, or the launcher's variables
                make no sense.
        """
        role_maker = _check_role_maker(role_maker, is_collective)
        strategy = _check_strategy(strategy)
        role_maker._generate_role()
        if role_maker._is_non_distributed():
            _check_that_it_is_alone(role_maker)
        if role_maker._is_collective and role_maker._worker_num() > 1:
            meet(role_maker._get_role())
        self._role_maker = role_maker
        self._is_collective = role_maker._is_collective
        self._user_defined_strategy = strategy
        self.user_defined_optimizer = None
        self._rewrites, self._passes = [], None
        if self._training is not None:
            self._training.forget()
        self._training, self._load_folder, self._load_only = None, "", []
        if self._has_servers():
            role_maker._gloo.meet_by(self._served_training)
        self._util._set_role_maker(role_maker)
        self._util._set_strategy(strategy)

    def _role(self):
        if self._role_maker is None:
            raise RuntimeError("fleet does not know its role: call fleet.init() first")
        return self._role_maker

    # -- Together.

    @property
    def util(self):
        """Small things that workers do together: all_reduce, get_file_shard, ..."""
        return self._util

    def barrier_worker(self):
        """Waits for all workers."""
        self._role()._barrier("worker")

    # -- With servers.

    def _has_servers(self):
        return not (self._is_collective or self._role()._is_non_distributed())

    def _served_training(self, mode=None, **queue):
        """This process's part of a job with servers, made when it is first needed."""
        if self._training is None:
            from .served_training import ServedTraining  # with numpy

            self._training = ServedTraining(self._role()._get_role(), mode, **queue)
        return self._training

    def _needs_servers(self, name):
        """That part, or RuntimeError."""
        if not self._has_servers():
            raise RuntimeError(
                f"fleet.{name}() is for jobs with servers, and this is none: "
                "fleetrun --server_num=N --worker_num=N starts one"
            )
        return self._served_training()

    @_life_of_servers
    def init_worker(self, scopes=None):
        """Waits until the servers are there, and have the tables of this worker's
        programs. May be called before or after the startup program has run; without
        it, the first run of a program connects. `scopes` has no effect: tables are
        those of all programs."""
        self._served_training().connect()

    @_life_of_servers
    def init_server(self, dirname=None, var_names=None, **kwargs):
        """Says where the tables begin: with what a worker saved to `dirname`.

        Args:
            dirname: a folder of save_persistables, also of a process without servers;
                None: tables begin new.
            var_names: the parameters that are loaded; None: all.

        Raises:
            ValueError: there is no such folder.
        """
        dirname = kwargs.get("model_dir", dirname)
        names = [var_names] if isinstance(var_names, str) else list(var_names or [])
        self._load_only = names
        self._load_folder = ""
        if dirname is None:
            return
        folder = os.path.abspath(os.fsdecode(dirname))
        if not os.path.isdir(folder):
            raise ValueError(f"fleet.init_server: there is no folder '{folder}'")
        self._load_folder = folder

    @_life_of_servers
    def run_server(self):
        """Serves until the last worker has stopped. What survives when this server is
        killed: a_sync_configs["durability"] of the strategy that fleet.init or
        distributed_optimizer got before, where FLEET_PS_DURABILITY is not set.

        Raises:
            ConnectionError: workers were lost; the message names them.
            ValueError: the server shall keep a log, and FLEET_PS_LOG_DIR is not set
                (fleetrun sets it).
        """
        if not self.is_server():
            raise RuntimeError(
                f"fleet.run_server: this process is {self._role()._get_role()}"
            )
        role = self._role()._get_role()
        durability = self._user_defined_strategy.a_sync_configs["durability"]
        _core.run_server(role, self._load_folder, self._load_only, durability or None)

    @_life_of_servers
    def stop_worker(self):
        """What this worker computed reaches the servers, which end when the last
        worker has stopped. The end of a script that ends well does it too."""
        self._served_training().stop()

    def worker_stats(self):
        """What a worker of a job with servers counted: steps, staleness, max_staleness,
        queued, waits, server_restarts and lost_updates (by servers that were started
        again), ...; {} without servers, or before they were needed."""
        return {} if self._training is None else self._training.stats()

    # -- A model and its optimizer.

    def distributed_model(self, model):
        """`model` as a data-parallel one, whose gradients are means over all workers.
        Parameters stay the same objects.

        Raises:
            NotImplementedError: the strategy asks for something that changes results
                and is not built yet; the message names it.
        """
        from ....nn import Layer, SyncBatchNorm
        from ....nn.layer.data_parallel import DataParallel

        self._check_eager("distributed_model")
        if not isinstance(model, Layer):
            raise TypeError(
                "fleet.distributed_model takes a paddle.nn.Layer, but got a "
                f"{type(model).__name__}"
            )
        strategy = self._user_defined_strategy
        if strategy.sync_batch_norm or strategy.build_strategy.sync_batch_norm:
            model = SyncBatchNorm.convert_sync_batchnorm(model)
        return DataParallel(
            model,
            comm_buffer_size=strategy.fuse_grad_size_in_MB,
            last_comm_buffer_size=strategy.last_comm_group_size_MB,
            find_unused_parameters=strategy.find_unused_parameters,
        )

    def distributed_optimizer(self, optimizer, strategy=None):
        """Takes `optimizer` over and returns this Fleet, which has its methods.

        Args:
            strategy: takes the place of that of fleet.init.

        Raises:
            NotImplementedError: as distributed_model.
        """
        self._role()
        if strategy is not None:
            self._user_defined_strategy = _check_strategy(strategy)
            self._util._set_strategy(self._user_defined_strategy)
        # Whether it will be a program, only minimize knows.
        if in_dynamic_mode() and self._is_collective:
            self._check_strategy_is_built("distributed_optimizer")
        self.user_defined_optimizer = optimizer
        return self

    def _check_eager(self, name):
        role = self._role()
        if not in_dynamic_mode():
            raise NotImplementedError(
                f"fleet.{name} is for eager mode: call paddle.disable_static() first"
            )
        if not (self._is_collective or role._is_non_distributed()):
            raise NotImplementedError(
                f"fleet.{name}: jobs with servers train programs "
                "(paddle.enable_static()); eager training needs "
                "fleet.init(is_collective=True)"
            )
        self._check_strategy_is_built(name)

    def _check_strategy_is_built(self, name, eager=True):
        strategy, worker_num = self._user_defined_strategy, self.worker_num()
        if eager:
            what, unbuilt = "eager training", strategy.unbuilt(worker_num)
        else:
            what = "training of programs"
            unbuilt = program_training.unbuilt(
                strategy, worker_num, self._has_servers()
            )
        if unbuilt:
            raise NotImplementedError(
                f"fleet.{name}: the strategy has {', '.join(unbuilt)}, which {what} of "
                "this version does not have yet"
            )

    def _optimizer(self):
        if self.user_defined_optimizer is None:
            raise RuntimeError(
                "fleet has no optimizer: call fleet.distributed_optimizer() first"
            )
        return self.user_defined_optimizer

    def step(self):
        """Updates the parameters."""
        self._optimizer().step()

    def clear_grad(self, *args, **kwargs):
        """Releases the gradients of the parameters."""
        self._optimizer().clear_grad(*args, **kwargs)

    clear_gradients = clear_grad

    def set_lr(self, value):
        self._optimizer().set_lr(value)

    def get_lr(self):
        return self._optimizer().get_lr()

    def state_dict(self):
        """The optimizer's state, by name."""
        return self._optimizer().state_dict()

    def set_state_dict(self, state_dict):
        """Takes a state over. None and an empty dict change nothing."""
        self._optimizer().set_state_dict(state_dict)

    def minimize(
        self, loss, startup_program=None, parameter_list=None, no_grad_set=None
    ):
        """A step from the gradients of `loss`; see paddle.optimizer.Optimizer.

        If `loss` is a variable of a program, the operations of backward and of the
        updates are appended to it, and in a job of several workers those that average
        the gradients over them. The startup program then gives all workers the values
        of worker 0.

        Returns None, or the operations that update, and the pairs of parameter and
        gradient.
        """
        optimizer = self._optimizer()
        if not isinstance(loss, _core.Variable):
            return optimizer.minimize(
                loss, startup_program, parameter_list, no_grad_set
            )
        return self._minimize_program(
            optimizer, loss, startup_program, parameter_list, no_grad_set
        )

    def _minimize_program(self, optimizer, loss, startup_program, parameters, no_grad):
        from ....static import CompiledProgram, default_startup_program

        role, strategy = self._role(), self._user_defined_strategy
        self._check_strategy_is_built("minimize", eager=False)
        if self._has_servers():
            check_fields(strategy)
            program_training.check_served(optimizer)
        optimizer, self._rewrites = program_training.wished_optimizer(
            optimizer, strategy
        )
        optimizer, names = program_training.wrapped_optimizer(optimizer, strategy)
        self._rewrites += names
        self.user_defined_optimizer = optimizer
        made = optimizer.minimize(loss, startup_program, parameters, no_grad)
        main, startup = loss.block.program, startup_program or default_startup_program()
        if self._has_servers():
            self._passes = self._serve(optimizer, main, startup)
        else:
            self._passes = program_training.apply_plan(
                main, startup, role._get_role(), strategy
            )
            main._graph = CompiledProgram(main).with_data_parallel(
                loss.name, strategy.build_strategy, strategy.execution_strategy
            )
        return made

    def _serve(self, optimizer, main, startup):
        """Moves the parameters of the programs to servers; returns the passes."""
        strategy = self._user_defined_strategy
        training = self._training
        if training is None:
            mode = mode_of(strategy, optimizer, main)
            training = self._served_training(mode, **queue_settings(strategy))
        return training.serve(
            main,
            startup,
            extras=table_extras(strategy),
            lr_steps=strategy.a_sync_configs["lr_decay_steps"],
        )

    def _final_strategy(self):
        """The strategy that minimize settled on; {} before there was one."""
        return {} if self._passes is None else self._user_defined_strategy

    def _get_applied_meta_list(self):
        """The rewrites that minimize made on the optimizer, with Paddle's names."""
        return list(self._rewrites)

    def _get_applied_graph_list(self):
        """The rewrites that minimize made on the program as a whole."""
        if not self._passes:
            return []
        if self._has_servers():
            return ["ParameterServerOptimizer"]
        return ["GraphExecutionOptimizer"]

    # -- Files.

    def save_inference_model(
        self,
        executor,
        dirname,
        feeded_var_names,
        target_vars,
        main_program=None,
        export_for_deployment=True,
        mode=0,
    ):
        """Saves what computes `target_vars` from what is fed by name, for inference:
        a folder with the program in `__model__` and a file for each parameter. In a job
        one worker is enough: `if fleet.is_first_worker():`."""
        from ....fluid import model_io
        from . import served_files

        if self._has_servers():
            return served_files.save_inference_model(
                self._served_training(),
                executor,
                dirname,
                feeded_var_names,
                target_vars,
                _no_compiled("save_inference_model", main_program),
                mode,
            )
        return model_io.save_inference_model(
            dirname,
            feeded_var_names,
            target_vars,
            executor,
            main_program,
            export_for_deployment=export_for_deployment,
        )

    def save_persistables(
        self, executor, dirname, main_program=None, mode=0, text=False
    ):
        """Saves all variables of a program that live longer than a step, each to a file
        of its name. In a job one worker is enough: `if fleet.is_first_worker():`.

        In a job with servers these write their tables, sorted and with the state of the
        optimizer, and fleet.init_server(dirname) goes on from there.

        Args:
            mode: 0 or 1 saves all, 2 what changed since the last save.
            text: sparse tables also as text.
        """
        from ....fluid import model_io
        from . import served_files

        main_program = _no_compiled("save_persistables", main_program)
        if not self._has_servers():
            model_io.save_persistables(executor, dirname, main_program)
            return
        served_files.save_persistables(
            self._served_training(), executor, dirname, main_program, mode, text
        )

    save_persistable = save_persistables

    def save_dense_params(self, executor, dirname, scope, program, var_names=None):
        """Saves what is in no sparse table, as save_persistables does; of the names in
        `var_names`, if given."""
        from . import served_files

        training = self._needs_servers("save_dense_params")
        folder = served_files._folder("save_dense_params", dirname)
        if scope is None:
            from ....static import global_scope

            scope = global_scope()
        program = _no_compiled("save_dense_params", program)
        served_files.save_dense(training, folder, scope, program, var_names)

    def load_model(self, path, mode=0):
        """Has the servers take over what save_persistables saved to `path`. One worker
        is enough. `mode` has no effect: files say themselves what they hold."""
        from . import served_files

        served_files.load_model(self._needs_servers("load_model"), path)

    def save_cache_model(self, dirname, **configs):
        """Saves the sparse tables, for caches that hold what is used most; `mode` as
        save_persistables. Returns how many rows there are."""
        from . import served_files

        training = self._needs_servers("save_cache_model")
        folder = served_files._folder("save_cache_model", dirname)
        mode = int(configs.get("mode", 0))
        served_files._check_mode("save_cache_model", mode)
        training.worker.save(folder, mode == 2, False)
        tables = training.sparse_tables()
        if "table_id" in configs:
            tables = [t for t in tables if t.id == configs["table_id"]]
        return sum(training.worker.table_stats(t.parameter)["rows"] for t in tables)

    def shrink(self, threshold=None):
        """A day is over: drops rows that no worker asked for in `threshold` days, by
        default 30. Called by one worker. Returns how many rows went."""
        training = self._needs_servers("shrink")
        days = 30 if threshold is None else threshold
        if isinstance(days, bool) or not isinstance(days, int) or days < 0:
            raise ValueError(
                f"fleet.shrink: threshold must be a number of days: {days}"
            )
        return training.worker.shrink(None, days)

    def amp_init(self, place, scope=None, test_program=None, use_fp16_test=False):
        """After the startup program ran, of a training in mixed precision (strategy.amp,
        or paddle.static.amp.decorate): see static.amp."""
        optimizer = self._optimizer()
        if not hasattr(optimizer, "amp_init"):
            raise RuntimeError(
                "fleet.amp_init: the optimizer does not train in mixed precision: set "
                "strategy.amp and call minimize first"
            )
        return optimizer.amp_init(place, scope, test_program, use_fp16_test)

    def distributed_scaler(self, scaler):
        """The paddle.amp.GradScaler as one of several workers: when one of them finds a
        gradient that is not finite, all leave the step out."""
        from ....amp import GradScaler

        self._check_eager("distributed_scaler")
        if not isinstance(scaler, GradScaler):
            raise TypeError(
                "fleet.distributed_scaler takes a paddle.amp.GradScaler, but got a "
                f"{type(scaler).__name__}"
            )
        if self.worker_num() > 1:
            scaler._reduce_found = _found_by_any
        return scaler

    # -- What later versions bring.

    @_comes_with("hybrid parallel training")
    def get_hybrid_communicate_group(self):
        """The groups of hybrid parallel training."""


def _found_by_any(found):
    """Whether `found` is so on one of all workers."""
    from ....tensor.creation import computed_tensor
    from ...collective import ReduceOp, all_reduce

    flag = computed_tensor([int(found)], "int32")
    all_reduce(flag, ReduceOp.MAX)
    return bool(flag.item())


def _check_role_maker(role_maker, is_collective):
    if role_maker is None:
        if not isinstance(is_collective, bool):
            raise ValueError(
                "`is_collective` should be instance of `bool`, but got "
                f"{type(is_collective)}"
            )
        return PaddleCloudRoleMaker(is_collective=is_collective)
    if not isinstance(role_maker, RoleMakerBase):
        raise ValueError(
            "`role_maker` should be subclass of `RoleMakerBase`, but got "
            f"{type(role_maker)}"
        )
    return role_maker


def _check_that_it_is_alone(role_maker):
    """For a process that nothing speaks of as one of several: it may still be one, or
    mean to be."""
    if role_maker._is_collective:
        if len(cuda_places()) > 1:
            raise ValueError(
                "CUDA_VISIBLE_DEVICES should be set only 1 card if you use `python` to "
                "launch fleet program."
            )
        return
    try:
        role = _core.role_from_environment(True)
    except ValueError:  # of no job that this script asks for
        return
    if role.worker_num > 1:
        warnings.warn(
            f"the launcher says that this is {role}, but fleet.init() without "
            "is_collective=True asks for a job with servers, of which there are none; "
            "this process will train alone",
            stacklevel=3,
        )


def _check_strategy(strategy):
    """A copy of it, or a new one."""
    if strategy is None:
        return DistributedStrategy()
    if not isinstance(strategy, DistributedStrategy):
        raise ValueError(
            f"`strategy` should be a DistributedStrategy, but got {type(strategy)}"
        )
    return copy.deepcopy(strategy)


def _no_compiled(function, program):
    """`program`, which must be a Program or None."""
    from ....static import CompiledProgram

    if isinstance(program, CompiledProgram):
        raise TypeError(f"{function}: main_program must be a Program")
    return program
