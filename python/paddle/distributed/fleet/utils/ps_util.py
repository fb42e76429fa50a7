# SPDX-License-Identifier: Apache-2.0
"""Inference with tables that are on servers."""

import os

__all__ = ["DistributedInfer"]


class DistributedInfer:
    """Runs a program for inference whose embeddings are on servers, in a job of their
    own or in the one that trains.

        infer = DistributedInfer(main_program=test_program)
        infer.init_distributed_infer_env(exe, loss, dirname="saved")
        if fleet.is_worker():
            program = infer.get_dist_infer_program()
            exe.run(program, feed=..., fetch_list=[...])

    Args:
        main_program, startup_program: the default ones if not given.
    """

    def __init__(self, main_program=None, startup_program=None):
        from ....static import default_main_program, default_startup_program

        main = default_main_program() if main_program is None else main_program
        self.origin_main_program = main.clone()
        self._main = main
        self._startup = startup_program or default_startup_program()
        self._served = None

    def init_distributed_infer_env(self, exe, loss, role_maker=None, dirname=None):
        """Makes this process one of the job, unless it is one that trains. A server
        serves, and returns when the workers have stopped.

        Args:
            loss: what the program computes; shows which parameters it has.
            dirname: a folder of fleet.save_persistables.

        Raises:
            RuntimeError: `dirname` in a process without servers, which could not read
                the tables.
        """
        from ....optimizer import SGD
        from .. import fleet
        from ..base import served_files
        from ..base.distributed_strategy import DistributedStrategy

        if fleet._role_maker is None:
            fleet.init(role_maker)
        if dirname is not None and not fleet._has_servers():
            raise RuntimeError(
                f"init_distributed_infer_env: the tables in '{dirname}' are for servers, "
                "and this job has none: start it with fleetrun --server_num=N "
                "--worker_num=N, or save a model that needs none "
                "(fleet.save_inference_model)"
            )
        if not fleet._has_servers() or (fleet._training and fleet._training.tables):
            return
        strategy = DistributedStrategy()
        strategy.a_sync = True
        # Never steps: it is there to say which parameters servers have.
        optimizer = fleet.distributed_optimizer(SGD(learning_rate=0.0), strategy)
        optimizer.minimize(loss, startup_program=self._startup)
        if fleet.is_server():
            fleet.init_server(dirname)
            fleet.run_server()
            return
        exe.run(self._startup)
        fleet.init_worker()
        if dirname is not None:
            folder = os.path.abspath(os.fsdecode(dirname))
            training = fleet._training
            served_files.load_others(training, exe, folder, self.origin_main_program)

    def get_dist_infer_program(self):
        """The program that is run: it asks servers for rows, and changes nothing."""
        from .. import fleet

        if fleet._role_maker is None or not fleet._has_servers():
            return self.origin_main_program
        if self._served is None:
            test = self.origin_main_program.clone(for_test=True)
            self._served = fleet._served_training().program_to_run(test)
        return self._served
