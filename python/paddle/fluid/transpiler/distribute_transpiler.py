# SPDX-License-Identifier: Apache-2.0
"""DistributeTranspiler: the programs of a job with servers, asked for one by one.

t = fluid.DistributeTranspiler()
t.transpile(trainer_id, pservers="10.0.0.1:6170,10.0.0.2:6170", trainers=4)
if role == "PSERVER":
    program = t.get_pserver_program(current_endpoint)
    exe.run(t.get_startup_program(current_endpoint, program))
    exe.run(program)  # until the trainers have ended
else:
    train(t.get_trainer_program())
"""

from ... import _core
from ...distributed.fleet.base.server_mode import Mode
from ...static.program import (
    Program,
    default_main_program,
    default_startup_program,
)
from .ps_dispatcher import PSDispatcher, RoundRobin


class DistributedMode:
    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


class DistributeTranspilerConfig:
    """How programs are made distributed.

    sync_mode, half_async, geo_sgd_mode with geo_sgd_need_push_nums: when gradients and
        parameters travel; without any of them, asynchronously.
    mode: "pserver", or for jobs without servers "nccl2" or "collective".
    The others are accepted: parameters are split evenly, and nothing waits for ports.
    """

    def __init__(self):
        self.slice_var_up = True
        self.split_method = None
        self.min_block_size = 8192
        self.enable_dc_asgd = False
        self.mode = "pserver"
        self.print_log = False
        self.wait_port = True
        self.sync_mode = True
        self.half_async = False
        self.completely_not_async = False
        self.runtime_split_send_recv = False
        self.geo_sgd_mode = False
        self.geo_sgd_need_push_nums = 100
        self.nccl_comm_num = 1
        self.use_hierarchical_allreduce = False
        self.hierarchical_allreduce_inter_nranks = 0
        self.collective_mode = None

    def _mode(self):
        """When gradients and parameters travel."""
        if self.geo_sgd_mode:
            steps = self.geo_sgd_need_push_nums
            if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
                raise ValueError(
                    f"geo_sgd_need_push_nums must be a number of steps, but is {steps!r}"
                )
            return Mode("geo", steps)
        if self.half_async:
            return Mode("half_async")
        return Mode("sync" if self.sync_mode else "async")

    def _check(self):
        if self.enable_dc_asgd:
            raise NotImplementedError(
                "DistributeTranspilerConfig: enable_dc_asgd, the correction of delayed "
                "gradients, is not supported"
            )
        method = self.split_method
        if method is not None and not issubclass(method, PSDispatcher):
            raise ValueError(f"split_method must be a PSDispatcher, but is {method!r}")


class ServerProgram(Program):
    """What a server runs. Executor.run of it serves until all workers have ended."""

    def __init__(self, role, mode, load_folder=""):
        super().__init__()
        self._server_role = role
        self._load_folder = load_folder
        self.global_block().append_op(
            "listen_and_serv",
            {},
            {},
            {
                "endpoint": role.current_endpoint or "",
                "Fanin": role.worker_num,
                "distributed_mode": getattr(DistributedMode, mode.name.upper()),
                "sync_mode": mode.name == "sync",
                "pserver_id": role.index,
            },
        )

    def _run_instead(self):
        _core.run_server(self._server_role, self._load_folder, [])
        return []


def _endpoints(pservers):
    names = pservers.split(",") if isinstance(pservers, str) else list(pservers)
    return [name.strip() for name in names if name.strip()]


class DistributeTranspiler:
    """Makes the programs of a job from that of one process; see the module."""

    def __init__(self, config=None):
        self.config = DistributeTranspilerConfig() if config is None else config
        self.config._check()
        if self.config.split_method is None:
            self.config.split_method = RoundRobin
        self._training = None
        self._program = None

    def transpile(
        self,
        trainer_id,
        program=None,
        pservers="127.0.0.1:6174",
        trainers=1,
        sync_mode=True,
        startup_program=None,
        current_endpoint="127.0.0.1:6174",
    ):
        """Rewrites the program, which has its backward and updates, and its startup
        program, both in place.

        Args:
            trainer_id: which trainer this is, from 0 on; without a meaning on servers.
            pservers: the servers' "host:port", joined by commas.
            trainers: how many trainers there are; in mode "nccl2" their endpoints,
                joined by commas.
            sync_mode: takes the place of the config's where that is true too.
            current_endpoint: accepted; in mode "nccl2" it is the one of trainer_id.
        """
        main = default_main_program() if program is None else program
        startup = startup_program or default_startup_program()
        self._program = main
        if self.config.mode in ("nccl2", "collective"):
            self._transpile_collective(trainer_id, main, startup, trainers)
            return
        if self.config.mode != "pserver":
            raise ValueError(
                "DistributeTranspilerConfig.mode must be pserver, nccl2 or collective, "
                f"but is {self.config.mode!r}"
            )
        self._servers = _endpoints(pservers)
        self._trainers = int(trainers)
        self.config.sync_mode = bool(sync_mode and self.config.sync_mode)
        self._mode = self.config._mode()
        self._serve(int(trainer_id), main, startup)

    def _serve(self, trainer_id, main, startup):
        from ...distributed.fleet.base.served_training import ServedTraining

        role = self._role(kind=1, current_id=trainer_id)
        self._training = ServedTraining(role, self._mode)
        self._training.ends_with_executor = True
        self._training.serve(main, startup)

    def _transpile_collective(self, trainer_id, main, startup, trainers):
        from ...distributed.fleet.base import program_training
        from ...distributed.fleet.base.distributed_strategy import DistributedStrategy
        from ...distributed.fleet.base.role_maker import meet

        role = _core.make_user_role(
            is_collective=True,
            kind=1,
            current_id=int(trainer_id),
            worker_num=None,
            worker_endpoints=_endpoints(trainers),
            server_endpoints=[],
            heter_worker_endpoints=[],
        )
        if role.worker_num > 1:
            meet(role)
        program_training.apply_plan(main, startup, role, DistributedStrategy())

    def _role(self, kind, current_id):
        return _core.make_user_role(
            is_collective=False,
            kind=kind,
            current_id=current_id,
            worker_num=self._trainers,
            worker_endpoints=[],
            server_endpoints=self._servers,
            heter_worker_endpoints=[],
        )

    def _transpiled(self):
        if self._program is None:
            raise RuntimeError("DistributeTranspiler: call transpile() first")
        return self._program

    def get_trainer_program(self, wait_port=True):
        """What a trainer runs in place of the program. Its first run connects; the end
        of the script, or Executor.close(), tells the servers."""
        return self._transpiled()

    def get_pserver_program(self, endpoint):
        """What the server at `endpoint` runs."""
        self._transpiled()
        if endpoint not in self._servers:
            raise ValueError(
                f"get_pserver_program: {endpoint!r} is none of the servers "
                f"{', '.join(self._servers)}"
            )
        role = self._role(kind=2, current_id=self._servers.index(endpoint))
        return ServerProgram(role, self._mode)

    def get_pserver_programs(self, endpoint):
        """That, and the program which is run before."""
        program = self.get_pserver_program(endpoint)
        return program, self.get_startup_program(endpoint, program)

    def get_startup_program(self, endpoint, pserver_program=None, startup_program=None):
        """What the server runs before: nothing, since workers say what tables are."""
        return Program()
