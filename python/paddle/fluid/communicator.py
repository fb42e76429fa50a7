# SPDX-License-Identifier: Apache-2.0
"""What carries gradients to servers and parameters back. The engine does that by itself
for every program of a job with servers; a Communicator shows its state."""


class Communicator:
    """Belongs to the worker of this process.

    Args:
        mode, kwargs, envs: accepted; fleet's strategy says how.
    """

    def __init__(self, mode=None, kwargs=None, envs=None):
        self.mode = mode
        self.envs = dict(envs or {})

    def _worker(self):
        from .. import _core

        worker = _core.served_job()
        if worker is None:
            raise RuntimeError(
                "this process is no worker of a job with servers: call "
                "fleet.minimize() or DistributeTranspiler.transpile() first"
            )
        return worker

    def init_with_ctx(self, send_ctx, recv_ctx, *others):
        """Accepted: programs say what is sent where."""

    def start(self):
        """Connects, if nothing did yet."""
        self._worker().connect()

    def stop(self):
        """Everything that was computed is on the servers when it returns. The worker
        goes on; its end is fleet.stop_worker()."""
        if self.is_running():
            self._worker().flush()

    def is_running(self):
        worker = self._worker()
        return worker.connected and not worker.finished

    def recv(self):
        """Parameters come back with every step."""

    def barrier(self):
        """All workers wait for each other."""
        self._worker().barrier("communicator")
