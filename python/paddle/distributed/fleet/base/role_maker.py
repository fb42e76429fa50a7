# SPDX-License-Identifier: Apache-2.0
"""Who this process is in its job, as Paddle spells it.

A role maker holds a role of the engine (fleet/cluster/role.h), which reads the
launcher's variables and checks them, and answers questions about it.
"""

import os
import warnings

from .... import _core
from ....framework.mode import in_dynamic_mode

__all__ = ["Gloo", "PaddleCloudRoleMaker", "Role", "RoleMakerBase"]
__all__ += ["UserDefinedRoleMaker"]


class Role:
    """Kinds of processes."""

    WORKER = 1
    SERVER = 2
    HETER_WORKER = 3
    ALL = 4


def meet(role):
    """Meets the other workers of a collective job, once. ValueError when this process
    met others before, in another role."""
    from ...parallel import init_parallel_env

    init_parallel_env(role)
    now = _core.job_role() or role
    if (now.index, now.worker_num) != (role.index, role.worker_num):
        raise ValueError(f"this process is {now} already, and cannot become {role}")


class Gloo:
    """Collectives over the processes of a role, on numbers and arrays.

    The name is Paddle's; they run over the communicator of paddle.distributed, and in a
    job with servers through these. Alone they warn and return what they were given.
    """

    _err_init = "gloo is not initialized, will not communicator with other nodes"
    _err_type = "gloo initialized error, please check arguments"
    _err_world = "argument error, comm_world must in [worker, server, all]"

    # What Paddle's rendezvous by HDFS, by files and over HTTP has to be told.
    _REQUIRED = {
        "1": ("PADDLE_GLOO_FS_NAME", "PADDLE_GLOO_FS_UGI", "PADDLE_GLOO_FS_PATH"),
        "2": ("PADDLE_GLOO_FS_PATH",),
        "3": (),
    }

    def __init__(self, role=None):
        self._role = role
        self._training_of = None

    def meet_by(self, training_of):
        """Workers of a job with servers speak through these; `training_of()` is this
        process's part of it (ServedTraining)."""
        self._training_of = training_of

    def check_environment(self):
        """Refuses the settings that Paddle refuses. Ours needs none of them."""
        if os.getenv("PADDLE_WITH_GLOO", "0") not in ("1", "2"):
            return
        names = self._REQUIRED.get(os.getenv("PADDLE_GLOO_RENDEZVOUS", "0"))
        if names is None:
            raise ValueError(
                f"{self._err_type}: PADDLE_GLOO_RENDEZVOUS must be 1, 2 or 3"
            )
        missing = [name for name in names if not os.getenv(name)]
        if missing:
            raise ValueError(f"{self._err_type}: {', '.join(missing)} is not set")

    def barrier(self, comm_world="worker"):
        """Waits for the processes of `comm_world`: worker, server or all."""
        if not self._connect(comm_world):
            return
        if self._through_servers():
            self._training_of().worker.barrier("worker")
            return
        from ... import barrier

        barrier()

    def all_reduce(self, input, mode="sum", comm_world="worker"):
        """The sum, maximum or minimum over all processes, as an array of the same
        shape."""
        if mode not in ("sum", "max", "min"):
            raise ValueError(f"mode must be sum, max or min, but is {mode!r}")
        if not self._connect(comm_world):
            return input
        import numpy as np  # here, since it takes long to load

        from ....tensor.creation import computed_tensor
        from ... import ReduceOp, all_reduce

        array = np.asarray(input)
        if self._through_servers():
            combine = {"sum": np.sum, "max": np.max, "min": np.min}[mode]
            arrays = np.stack(self._gather(array))
            return combine(arrays, axis=0).astype(array.dtype).reshape(array.shape)
        tensor = computed_tensor(array.reshape(-1))
        all_reduce(tensor, op=getattr(ReduceOp, mode.upper()))
        return tensor.numpy().reshape(array.shape)

    def all_gather(self, input, comm_world="worker"):
        """What every process gave, as a list by rank."""
        if not self._connect(comm_world):
            return input
        if self._through_servers():
            return self._gather(input)
        from ... import all_gather_object

        gathered = []
        all_gather_object(gathered, input)
        return gathered

    def _connect(self, comm_world):
        """Whether there are others to speak to; meets them."""
        if comm_world not in ("worker", "server", "all"):
            raise ValueError(self._err_world)
        if self._role is None or self._role.non_distributed:
            warnings.warn(self._err_init, stacklevel=5)
            return False
        if self._through_servers():
            if comm_world != "worker":
                raise ValueError(
                    f"comm_world={comm_world!r}: servers wait for nobody; workers meet "
                    'with comm_world="worker"'
                )
            if self._training_of is None:
                raise RuntimeError("call fleet.init() with this role maker first")
            return True
        if comm_world == "server":
            raise ValueError("a collective job has no servers")
        meet(self._role)
        return True

    def _through_servers(self):
        return not self._role.is_collective

    def _gather(self, value):
        """What every worker gave, by index."""
        from ... import object_bytes

        parts = self._training_of().worker.all_gather(object_bytes.encode(value))
        return [
            object_bytes.decode(part, f"the object of worker {i}")
            for i, part in enumerate(parts)
        ]


class RoleMakerBase:
    """Answers questions about a role; what it is, a subclass says."""

    def __init__(self, is_collective=False):
        self._is_collective = is_collective
        self._engine_role = None
        self._gloo = Gloo()

    def _make_role(self):
        """The engine's role."""
        raise NotImplementedError(f"{type(self).__name__} does not say who it is")

    def _generate_role(self):
        """Reads the role, once."""
        if self._engine_role is None:
            role = self._make_role()
            self._gloo = Gloo(role)
            self._engine_role = role

    def _get_role(self):
        self._generate_role()
        return self._engine_role

    # Who am I?

    def _is_worker(self):
        return self._get_role().kind == Role.WORKER

    def _is_server(self):
        return self._get_role().kind == Role.SERVER

    def _is_heter_worker(self):
        return self._get_role().kind == Role.HETER_WORKER

    def _is_first_worker(self):
        return self._is_worker() and self._role_id() == 0

    def _is_non_distributed(self):
        return self._get_role().non_distributed

    def _is_heter_parameter_server_mode(self):
        return self._get_role().heter_worker_num > 0

    def _role_id(self):
        """The index among the processes of this kind."""
        return self._get_role().index

    _worker_index = _server_index = _role_id

    def _get_local_rank(self):
        """The position among the workers of this host."""
        rank = self._get_role().local_rank
        return 0 if rank is None else rank

    # Who is there?

    def _worker_num(self):
        return self._get_role().worker_num

    def _server_num(self):
        return self._get_role().server_num

    def _heter_worker_num(self):
        return self._get_role().heter_worker_num

    def _node_num(self):
        return self._get_role().node_num

    _get_node_num = _node_num

    def _get_trainer_endpoints(self):
        return self._get_role().worker_endpoints

    def _get_pserver_endpoints(self):
        return self._get_role().server_endpoints

    def _get_heter_worker_endpoints(self):
        return self._get_role().heter_worker_endpoints

    def _get_heter_worker_endpoint(self):
        """The heter worker to which this process sends."""
        endpoints = self._get_heter_worker_endpoints()
        assert endpoints, "Heter Worker Endpoints Not initialized"
        return endpoints[self._role_id() % len(endpoints)]

    # Which devices?

    def _get_local_device_ids(self):
        """Those of this host."""
        text = os.getenv("PADDLE_LOCAL_DEVICE_IDS", "")
        return [int(number) for number in text.split(",") if number]

    def _get_world_device_ids(self):
        """A list for every host."""
        text = os.getenv("PADDLE_WORLD_DEVICE_IDS", "")
        return [
            [int(number) for number in host.split(",") if number]
            for host in text.split(":")
            if host
        ]

    # Together with the others.

    def _barrier(self, comm_world="worker"):
        self._generate_role()
        self._gloo.barrier(comm_world)

    def _all_reduce(self, input, mode="sum", comm_world="worker"):
        self._generate_role()
        return self._gloo.all_reduce(input, mode, comm_world)

    def _all_gather(self, input, comm_world="worker"):
        self._generate_role()
        return self._gloo.all_gather(input, comm_world)

    def to_string(self):
        role = self._get_role()
        return (
            f"role: {role.kind}, current_id: {role.index}, "
            f"worker_endpoints: {role.worker_endpoints}, "
            f"server_endpoints: {role.server_endpoints}"
        )


def _warn_of_unknown(owner, kwargs, known):
    for name in sorted(set(kwargs) - set(known)):
        warnings.warn(f"{owner} does not know {name}, and ignores it", stacklevel=4)


class PaddleCloudRoleMaker(RoleMakerBase):
    """Reads the variables that a launcher set: fleetrun, paddle.distributed.launch
    and, for collective jobs, also torchrun, mpirun, srun and Kubernetes. Without any,
    this process is alone.

    Args:
        is_collective: a job of workers only, rather than of workers and servers.

    Raises (when the role is first asked for):
        ValueError: a variable is missing or makes no sense; the message names it.
    """

    def __init__(self, is_collective=False, **kwargs):
        super().__init__(is_collective)
        _warn_of_unknown("PaddleCloudRoleMaker", kwargs, ("init_gloo", "path"))

    def _make_role(self):
        try:
            role = _core.role_from_environment(bool(self._is_collective))
        except ValueError as error:
            # This is the only variable that Paddle asserts.
            if str(error).startswith("PADDLE_TRAINING_ROLE="):
                raise AssertionError(str(error)) from None
            raise
        if not in_dynamic_mode():
            Gloo(role).check_environment()
        return role


class UserDefinedRoleMaker(RoleMakerBase):
    """A role that the script says itself.

    Args:
        is_collective: a job of workers only; `role` and the servers are then not
            looked at.
        init_gloo: accepted; collectives connect when they are first used.
        current_id: the index among the processes of `role`.
        role: Role.WORKER (as without it), Role.SERVER or Role.HETER_WORKER.
        worker_num: needed where `worker_endpoints` is not given.
        worker_endpoints, server_endpoints, heter_worker_endpoints: lists of
            "host:port".

    Raises (when the role is first asked for):
        ValueError: what was said makes no sense.
    """

    _KNOWN = (
        "current_id",
        "heter_worker_endpoints",
        "path",
        "role",
        "server_endpoints",
        "worker_endpoints",
        "worker_num",
    )

    def __init__(self, is_collective=False, init_gloo=False, **kwargs):
        super().__init__(is_collective)
        _warn_of_unknown("UserDefinedRoleMaker", kwargs, self._KNOWN)
        self._kwargs = kwargs

    def _make_role(self):
        get = self._kwargs.get
        if get("current_id") is None:
            raise ValueError("UserDefinedRoleMaker: current_id is missing")
        return _core.make_user_role(
            is_collective=bool(self._is_collective),
            kind=get("role", Role.WORKER),
            current_id=get("current_id"),
            worker_num=get("worker_num") or None,
            worker_endpoints=list(get("worker_endpoints") or []),
            server_endpoints=list(get("server_endpoints") or []),
            heter_worker_endpoints=list(get("heter_worker_endpoints") or []),
        )
