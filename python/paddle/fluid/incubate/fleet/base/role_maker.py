# SPDX-License-Identifier: Apache-2.0
"""Role makers with public names for their questions."""

from ..... import _core
from .....distributed.fleet.base import role_maker as _new
from .....distributed.fleet.base.role_maker import Role


class RoleMakerBase(_new.RoleMakerBase):
    """Answers questions about a role; what it is, a subclass says."""

    def generate_role(self):
        """Reads the role, once."""
        self._generate_role()

    def is_worker(self):
        return self._is_worker()

    def is_server(self):
        return self._is_server()

    def is_first_worker(self):
        return self._is_first_worker()

    def worker_num(self):
        return self._worker_num()

    def server_num(self):
        return self._server_num()

    def role_id(self):
        return self._role_id()

    def worker_index(self):
        return self._worker_index()

    def server_index(self):
        return self._server_index()

    def get_trainer_endpoints(self):
        return self._get_trainer_endpoints()

    def get_pserver_endpoints(self):
        return self._get_pserver_endpoints()

    def barrier_worker(self):
        """All workers wait for each other."""
        self._barrier("worker")

    def barrier_all(self):
        """All workers wait for each other; servers wait for nobody."""
        if self.is_worker():
            self._barrier("worker")

    def all_gather(self, input):
        """What every worker gave, as a list."""
        return self._all_gather(input)

    def all_reduce_worker(self, input, output, mode="sum"):
        """Puts the sum over all workers into the array `output`."""
        output[...] = self._all_reduce(input, mode)


class PaddleCloudRoleMaker(RoleMakerBase, _new.PaddleCloudRoleMaker):
    """Reads the launcher's variables; see paddle.distributed.fleet."""

    def __init__(self, is_collective=False, **kwargs):
        super().__init__(is_collective=is_collective, **kwargs)


class GeneralRoleMaker(PaddleCloudRoleMaker):
    """A PaddleCloudRoleMaker. How Paddle's processes would meet (`path`, `hdfs_name`, `iface`, ...) is
    accepted, and not needed."""

    def __init__(self, is_collective=False, **kwargs):
        super().__init__(is_collective=is_collective)


class UserDefinedRoleMaker(RoleMakerBase, _new.UserDefinedRoleMaker):
    """A role that the script says itself.

    Raises:
        TypeError, ValueError: what was said makes no sense.
    """

    def __init__(
        self, current_id=0, role=Role.WORKER, worker_num=0, server_endpoints=None
    ):
        if not isinstance(server_endpoints, list) or not server_endpoints:
            raise TypeError("server_endpoints must be as string list")
        if len(set(server_endpoints)) != len(server_endpoints):
            raise ValueError("server_endpoints can't have duplicate elements")
        if not isinstance(worker_num, int) or worker_num <= 0:
            raise ValueError(
                f"worker_num must be greater than 0, but is {worker_num!r}"
            )
        super().__init__(
            is_collective=False,
            current_id=current_id,
            role=role,
            worker_num=worker_num,
            server_endpoints=server_endpoints,
        )
        self._generate_role()


class UserDefinedCollectiveRoleMaker(RoleMakerBase, _new.UserDefinedRoleMaker):
    """A worker of a job without servers."""

    def __init__(self, current_id=0, worker_endpoints=None):
        if not isinstance(worker_endpoints, list) or not worker_endpoints:
            raise TypeError("worker_endpoints must be as string list")
        super().__init__(
            is_collective=True,
            current_id=current_id,
            worker_endpoints=worker_endpoints,
        )


class MPISymetricRoleMaker(RoleMakerBase):
    """For jobs that mpirun started, two processes on each node: those of even rank are
    servers, those of odd rank workers. (The spelling is Paddle's.)

    Raises (when the role is first asked for):
        ValueError: nothing speaks of MPI, or the number of processes is odd.
    """

    _PROCESSES_PER_NODE = 2

    def __init__(self):
        super().__init__(is_collective=False)

    def _make_role(self):
        everybody = _core.role_from_environment(True)
        if everybody.worker_num % self._PROCESSES_PER_NODE:
            raise ValueError(
                "MPISymetricRoleMaker needs as many servers as workers, but mpirun "
                f"started {everybody.worker_num} process"
                f"{'' if everybody.worker_num == 1 else 'es'}"
            )
        server = everybody.index % self._PROCESSES_PER_NODE == 0
        index = everybody.index // self._PROCESSES_PER_NODE
        endpoints = _server_endpoints(everybody, server)
        return _core.make_user_role(
            is_collective=False,
            kind=Role.SERVER if server else Role.WORKER,
            current_id=index,
            worker_num=everybody.worker_num // self._PROCESSES_PER_NODE,
            worker_endpoints=[],
            server_endpoints=endpoints,
            heter_worker_endpoints=[],
        )


def _server_endpoints(role, server):
    """Where the servers will listen: all processes meet once and say it."""
    import socket

    from .....distributed import all_gather_object

    _new.meet(role)
    own, holder = None, None
    if server:
        # Held until everybody has heard of it, so that no two servers choose the same.
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        host = "127.0.0.1" if role.node_num == 1 else _own_address()
        holder.bind((host, 0))
        own = f"{host}:{holder.getsockname()[1]}"
    said = []
    all_gather_object(said, own)
    if holder is not None:
        holder.close()
    _core.leave_parallel()
    return [endpoint for endpoint in said if endpoint is not None]


def _own_address():
    """This host's address as others see it."""
    import socket

    return socket.gethostbyname(socket.gethostname())
