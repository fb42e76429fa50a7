# SPDX-License-Identifier: Apache-2.0
"""This process among the others of its job: who it is, and how they meet."""

import os
import warnings

from .. import _core, _names
from ..framework.place import usable_device
from .point_to_point import run_put_off

# What Paddle's own launchers set for every process of a job.
_REQUIRED = (
    "PADDLE_TRAINER_ID",
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ENDPOINTS",
)

_gloo = None


def init_parallel_env(role=None):
    """Meets the other processes of the job; collectives work afterwards.

    Who they are follows from the environment that the launcher made (fleetrun,
    torchrun, mpirun, srun), or from `role`. Called again it changes nothing. Without
    other processes it warns and does nothing: collectives of one are identities.

    Returns the group of all ranks, or None when there is one only.
    """
    if _core.is_parallel():
        return _core.get_group(0)
    if role is None:
        _check_environment()
        role = _role()
    if role.worker_num < 2:
        warnings.warn(
            "Currently not a parallel execution environment, "
            "`paddle.distributed.init_parallel_env` will not do anything.",
            stacklevel=2,
        )
        return None
    _use_own_gpu()
    return _core.init_parallel(role)


def _use_own_gpu():
    """Where GPUs are used, new tensors live on the one that the launcher chose."""
    chosen = os.environ.get("FLAGS_selected_gpus")
    if chosen and _core.get_device() != "cpu":
        _core.set_device(usable_device(f"cuda:{int(chosen.split(',')[0])}"))


def _role():
    return _core.job_role() or _core.role_from_environment(True)


def _launched_by_paddle():
    """Whether Paddle's own variables say who this process is, though perhaps not all
    of them."""
    if "PADDLE_TRAINER_ENDPOINTS" in os.environ:
        return True
    return "PADDLE_TRAINERS_NUM" in os.environ and "RANK" not in os.environ


def _place():
    """(rank, number of ranks): of the job, or as the environment has it, where
    Paddle's two numbers are believed also without endpoints."""
    if not _core.is_parallel() and "PADDLE_TRAINER_ENDPOINTS" not in os.environ:
        if _launched_by_paddle():
            rank = int(os.environ.get("PADDLE_TRAINER_ID") or 0)
            return rank, int(os.environ["PADDLE_TRAINERS_NUM"])
    role = _role()
    return role.index, role.worker_num


def _check_environment():
    """Where Paddle's variables speak of several ranks, they must be all there."""
    if not _launched_by_paddle():
        return
    endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "")
    number = os.environ.get("PADDLE_TRAINERS_NUM") or 1
    if "," not in endpoints and int(number) < 2:
        return
    for name in _REQUIRED:
        if not os.environ.get(name):
            raise ValueError(
                "paddle.distributed initialize error, environment variable "
                f"{name} is needed, but not set."
            )


def is_available():
    """Whether this build can train with several processes: always."""
    return True


def is_initialized():
    """Whether init_parallel_env has met the other processes."""
    return _core.is_parallel()


def destroy_process_group(group=None):
    """Leaves the job, or forgets one group of it.

    After the job all of its groups raise, and init_parallel_env begins another job
    when all ranks call it. A model in DataParallel belongs to the job that it was made
    in.
    """
    if group is None or group == 0:
        run_put_off()
        _core.leave_parallel()
    else:
        _core.destroy_group(group)


def get_rank(group=None):
    """This process's number in its job, or in `group`; -1 outside of the group."""
    if group is not None and group != 0:
        return group.rank
    return _place()[0]


def get_world_size(group=None):
    """How many processes the job, or `group`, has."""
    if group is not None and group != 0:
        return group.nranks
    return _place()[1]


class ParallelEnv:
    """What the environment says of this process, read when the object is made."""

    def __init__(self):
        self._rank, self._world_size = _place()
        devices = os.environ.get("FLAGS_selected_gpus") or "0"
        self._device_id = int(devices.split(",")[0])
        self._current_endpoint = os.environ.get("PADDLE_CURRENT_ENDPOINT", "")
        endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "")
        self._trainer_endpoints = endpoints.split(",")
        self._nrings = int(os.environ.get("FLAGS_nccl_nrings", "1"))

    @property
    def rank(self):
        """This process's number in the job."""
        return self._rank

    @property
    def world_size(self):
        """How many processes the job has."""
        return self._world_size

    @property
    def device_id(self):
        """The GPU that the launcher gave this process."""
        return self._device_id

    @property
    def current_endpoint(self):
        """Where this process is reached, as ip:port."""
        return self._current_endpoint

    @property
    def trainer_endpoints(self):
        """Where all processes are reached, in the order of ranks."""
        return self._trainer_endpoints

    @property
    def nrings(self):
        """How many communicators Paddle would use; a hint without effect here."""
        return self._nrings

    # The names of Paddle 1.x; its local rank is the rank in the whole job.
    local_rank = rank
    nranks = world_size
    dev_id = device_id


def gloo_init_parallel_env(rank_id, rank_num, server_endpoint):
    """Meets `rank_num` processes at `server_endpoint`, where rank 0 listens, for
    gloo_barrier only. Needs no launcher."""
    global _gloo
    if rank_num < 2:
        raise ValueError(
            "gloo_init_parallel_env: rank_num should be greater than or equal to 2, "
            f"but is {rank_num}"
        )
    if _gloo is not None:
        raise RuntimeError(
            "gloo_init_parallel_env was called before; call gloo_release first"
        )
    # A launcher's socket listens elsewhere, and is for the job.
    listen_fd = os.environ.pop("FLEET_LISTEN_FD", None)
    try:
        _gloo = _core.Job.meet(rank_id, rank_num, server_endpoint)
    finally:
        if listen_fd is not None:
            os.environ["FLEET_LISTEN_FD"] = listen_fd


def gloo_barrier():
    """Waits until all processes of gloo_init_parallel_env are here."""
    if _gloo is None:
        raise RuntimeError(
            "gloo_barrier: gloo is not initialized, call "
            "paddle.distributed.gloo_init_parallel_env first"
        )
    _gloo.barrier()


def gloo_release():
    """Ends what gloo_init_parallel_env began."""
    global _gloo
    if _gloo is not None:
        _gloo.finish()
        _gloo = None


__all__ = _names.own(globals())
