# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job as processes that a test starts one by one, without a launcher,
so that it can kill, stop or delay each of them and see what the others say."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from tests.launch.launcher import own_shared_memory

PYTHON = sys.executable
FLEETRUN = Path(PYTHON).parent / "fleetrun"

# Every script begins so: the ranks have met and exchanged something.
MEET = """
import os, sys, time
import numpy as np
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
rank = dist.get_rank()
x = paddle.ones([1000])
dist.all_reduce(x)
assert float(x[0]) == dist.get_world_size()
print("READY", flush=True)
"""


def clean_environment():
    drop = ("PADDLE_", "FLEET_", "FLAGS_", "TRAINING_ROLE", "POD_IP")
    return {k: v for k, v in os.environ.items() if not k.startswith(drop)}


class Ranks:
    """A job of `size` ranks that run `script`. Each rank's listening socket is bound
    here and inherited, as a launcher would do it."""

    def __init__(self, folder, size=2, **env):
        self.folder, self.size = Path(folder), size
        self.tag = uuid.uuid4().hex  # in the environment of all that belongs to the job
        self.env = {
            **clean_environment(),
            "FLEET_TEST_TAG": self.tag,
            "OMP_NUM_THREADS": "1",
            **env,
        }
        self.sockets = []
        for _ in range(size):
            s = socket.socket()
            s.bind(("127.0.0.1", 0))
            s.listen(64)
            self.sockets.append(s)
        self.endpoints = [f"127.0.0.1:{s.getsockname()[1]}" for s in self.sockets]
        self.processes = {}
        self.shared_memory = self.folder / "shm"
        self.shared_memory.mkdir(exist_ok=True)

    def start(self, rank, script, **env):
        file = self.folder / f"rank{rank}.py"
        file.write_text(script)
        fd = self.sockets[rank].fileno()
        process = subprocess.Popen(
            [*own_shared_memory(self.shared_memory), PYTHON, "-u", file],
            cwd=self.folder,
            env={
                **self.env,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINERS_NUM": str(self.size),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(self.endpoints),
                "PADDLE_CURRENT_ENDPOINT": self.endpoints[rank],
                "FLAGS_selected_gpus": str(rank),
                "FLEET_LISTEN_FD": str(fd),
                **env,
            },
            pass_fds=[fd],
            stdout=(self.folder / f"out{rank}").open("w"),
            stderr=subprocess.STDOUT,
        )
        self.sockets[rank].close()
        self.processes[rank] = process
        return process

    def start_all(self, script):
        for rank in range(self.size):
            self.start(rank, script)

    def output(self, rank):
        return (self.folder / f"out{rank}").read_text(errors="replace")

    def wait_for(self, rank, text, seconds=60):
        """Until `rank` has printed `text`."""
        end = time.monotonic() + seconds
        while text not in self.output(rank):
            process = self.processes[rank]
            if process.poll() is not None and text not in self.output(rank):
                raise AssertionError(
                    f"rank {rank} ended ({process.returncode}) without {text!r}:\n"
                    + self.output(rank)
                )
            if time.monotonic() > end:
                raise AssertionError(
                    f"rank {rank} did not say {text!r} in {seconds} s:\n"
                    + self.output(rank)
                )
            time.sleep(0.02)

    def ends(self, rank, seconds=60):
        """The exit status of `rank`, which must end by itself."""
        try:
            return self.processes[rank].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"rank {rank} still runs after {seconds} s:\n" + self.output(rank)
            ) from None

    def leftovers(self):
        """Command lines of processes of this job that still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ = (entry / "environ").read_bytes()
                if (
                    self.tag.encode() in environ
                    and "Z"
                    not in ((entry / "stat").read_text().rsplit(")", 1)[1].split()[0])
                ):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found

    def leaves_nothing(self, seconds=60):
        end = time.monotonic() + seconds
        while self.leftovers() and time.monotonic() < end:
            time.sleep(0.05)
        assert self.leftovers() == []
        assert os.listdir(self.shared_memory) == []

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        for s in self.sockets:
            s.close()
