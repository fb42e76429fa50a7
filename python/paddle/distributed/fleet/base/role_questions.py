# SPDX-License-Identifier: Apache-2.0
"""Who am I, and who is there? What a Fleet answers from its role."""

__all__ = ["RoleQuestions"]


class RoleQuestions:
    """The questions, for a class with a `_role()`, which is a role maker."""

    def is_first_worker(self):
        """Whether this is worker 0."""
        return self._role()._is_first_worker()

    def worker_index(self):
        """This worker's number, from 0 on."""
        return self._role()._worker_index()

    rank = worker_index

    def worker_num(self):
        """How many workers the job has."""
        return self._role()._worker_num()

    nranks = worker_num

    def is_worker(self):
        return self._role()._is_worker()

    def worker_endpoints(self, to_string=False):
        """The workers' "host:port", by number; joined by commas with `to_string`."""
        return _list_or_text(self._role()._get_trainer_endpoints(), to_string)

    def server_num(self):
        """How many servers the job has."""
        return self._role()._server_num()

    def server_index(self):
        """This server's number, from 0 on."""
        return self._role()._server_index()

    def server_endpoints(self, to_string=False):
        """The servers' "host:port", by number; joined by commas with `to_string`."""
        return _list_or_text(self._role()._get_pserver_endpoints(), to_string)

    def is_server(self, model_dir=None):
        """Whether this is a server. `model_dir` is accepted, as one document has it."""
        return self._role()._is_server()

    def node_num(self):
        """On how many hosts the workers are."""
        return self._role()._get_node_num()

    def local_rank(self):
        """This worker's number among those of its host."""
        return self._role()._get_local_rank()

    rank_in_node = local_rank

    def local_device_ids(self):
        """The devices that the launcher uses on this host."""
        return self._role()._get_local_device_ids()

    def world_device_ids(self):
        """The devices that the launchers use, for every host."""
        return self._role()._get_world_device_ids()


def _list_or_text(endpoints, to_string):
    return ",".join(endpoints) if to_string else endpoints
