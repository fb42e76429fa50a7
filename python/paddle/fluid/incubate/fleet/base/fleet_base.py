# SPDX-License-Identifier: Apache-2.0
"""What the older Fleets share: questions about the role, and the life of a job. Behind
them is a Fleet of paddle.distributed."""

from .....distributed.fleet.base.fleet_base import Fleet as _NewFleet
from . import role_maker as _role_makers
from .mode import Mode


class Fleet:
    """One of paddle.fluid.incubate.fleet: of servers, or collective."""

    def __init__(self, mode):
        self._mode = mode
        self._fleet = _NewFleet()
        self._optimizer = None
        self._executor = None
        self.main_program = None
        self.startup_program = None
        self._origin_program = None
        self._origin_main_program = None

    # ---- who am I?

    def init(self, role_maker=None):
        """Finds out who this process is. Without a role maker, the launcher's variables
        say it."""
        if role_maker is None:
            role_maker = self._default_role_maker()
        if not isinstance(role_maker, _role_makers._new.RoleMakerBase):
            raise TypeError("role_maker must be an instance of RoleMakerBase")
        self._fleet.init(role_maker)

    def _default_role_maker(self):
        collective = self._mode == Mode.COLLECTIVE
        return _role_makers.PaddleCloudRoleMaker(is_collective=collective)

    @property
    def _role_maker(self):
        return self._fleet._role()

    def is_first_worker(self):
        return self._fleet.is_first_worker()

    def worker_index(self):
        return self._fleet.worker_index()

    def worker_num(self):
        return self._fleet.worker_num()

    def is_worker(self):
        return self._fleet.is_worker()

    def worker_endpoints(self, to_string=False):
        return self._fleet.worker_endpoints(to_string)

    def server_num(self):
        return self._fleet.server_num()

    def server_index(self):
        return self._fleet.server_index()

    def server_endpoints(self, to_string=False):
        return self._fleet.server_endpoints(to_string)

    def is_server(self):
        return self._fleet.is_server()

    def split_files(self, files):
        """This worker's part of a list of files."""
        return self._fleet.util.get_file_shard(files)

    # ---- together

    def barrier_worker(self):
        self._fleet.barrier_worker()

    def all_reduce_worker(self, input, output):
        """Puts the sum over all workers into the array `output`."""
        output[...] = self._role_maker._all_reduce(input, "sum")

    # ---- life

    def init_worker(self):
        """See paddle.distributed.fleet."""
        self._fleet.init_worker()

    def init_server(self, model_dir=None, **kwargs):
        """Tables begin with what was saved to `model_dir`. Other arguments have no
        effect, as in Paddle."""
        self._fleet.init_server(model_dir)

    def run_server(self):
        """Serves until the last worker has stopped."""
        self._fleet.run_server()

    def stop_worker(self):
        self._fleet.stop_worker()

    def distributed_optimizer(self, optimizer, strategy=None):
        """An optimizer whose minimize() makes the program one of this job."""
        raise NotImplementedError(f"{type(self).__name__} makes no optimizer")

    # ---- files

    def save_inference_model(
        self,
        executor,
        dirname,
        feeded_var_names=None,
        target_vars=None,
        main_program=None,
        export_for_deployment=True,
    ):
        """Saves what computes `target_vars`, for inference."""
        return self._fleet.save_inference_model(
            executor,
            dirname,
            feeded_var_names,
            target_vars,
            main_program,
            export_for_deployment,
        )

    def save_persistables(self, executor, dirname, main_program=None, **kwargs):
        """Saves all variables that live longer than a step."""
        if main_program is None:
            main_program = self.main_program
        self._fleet.save_persistables(executor, dirname, main_program, **kwargs)

    save_persistable = save_persistables

    # ---- programs

    def _keep(self, loss, startup_program):
        """Remembers the programs before they are rewritten."""
        from .....static import default_startup_program

        self.main_program = loss.block.program
        self.startup_program = startup_program or default_startup_program()
        self._origin_program = self._origin_main_program = self.main_program.clone()


class DistributedOptimizer:
    """An optimizer of one process, and what the job asks of it."""

    def __init__(self, optimizer, strategy=None):
        self._optimizer = optimizer
        self._strategy = strategy

    def backward(
        self,
        loss,
        startup_program=None,
        parameter_list=None,
        no_grad_set=None,
        callbacks=None,
    ):
        return self._optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads):
        return self._optimizer.apply_gradients(params_grads)

    def minimize(
        self,
        losses,
        scopes=None,
        startup_programs=None,
        parameter_list=None,
        no_grad_set=None,
    ):
        raise NotImplementedError(f"{type(self).__name__} does not minimize")

    @staticmethod
    def _only(what, value):
        """The one of a list of one."""
        if isinstance(value, (list, tuple)):
            if len(value) != 1:
                raise ValueError(f"minimize: one of {what}, not {len(value)}")
            return value[0]
        return value
