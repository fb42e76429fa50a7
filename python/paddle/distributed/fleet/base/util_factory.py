# SPDX-License-Identifier: Apache-2.0
"""fleet.util: small things that the workers of a job do together."""

__all__ = ["UtilBase"]


class UtilBase:
    """Belongs to a Fleet, which gives it its role. Before fleet.init it raises."""

    def __init__(self):
        self.role_maker = None
        self.dist_strategy = None

    def _set_strategy(self, dist_strategy):
        self.dist_strategy = dist_strategy

    def _set_role_maker(self, role_maker):
        self.role_maker = role_maker

    def _role(self):
        if self.role_maker is None:
            raise RuntimeError("fleet.util needs a role: call fleet.init() first")
        return self.role_maker

    def all_reduce(self, input, mode="sum", comm_world="worker"):
        """An array of what `input` sums up to over the job.

        Args:
            input: an array, a list or a number; of the same shape everywhere.
            mode: "sum", "max" or "min".
            comm_world: "worker", "server" or "all".
        """
        return self._role()._all_reduce(input, mode, comm_world)

    def all_gather(self, input, comm_world="worker"):
        """The list of what every process of the job gave, by rank."""
        return self._role()._all_gather(input, comm_world)

    def barrier(self, comm_world="worker"):
        """Waits for all others."""
        self._role()._barrier(comm_world)

    def get_file_shard(self, files):
        """This worker's part of `files`: a block of neighbours. The blocks are of
        equal size, the first ones longer by one where it does not divide."""
        if not isinstance(files, list):
            raise TypeError("files should be a list of file need to be read.")
        rank, size = self._role()._worker_index(), self._role()._worker_num()
        length, longer = divmod(len(files), size)
        begin = rank * length + min(rank, longer)
        return files[begin : begin + length + (rank < longer)]

    def print_on_rank(self, message, rank_id):
        """Prints on one worker."""
        if self._role()._worker_index() == rank_id:
            print(message)

    def __getattr__(self, name):
        if name in _OF_PROGRAMS:
            raise NotImplementedError(f"fleet.util.{name} comes with static graphs")
        raise AttributeError(f"'UtilBase' object has no attribute '{name}'")


_OF_PROGRAMS = (
    "_load_program",
    "_params_check",
    "_program_type_trans",
    "_proto_check",
    "_save_program",
    "_visualize_graphviz",
)
