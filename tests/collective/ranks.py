# SPDX-License-Identifier: Apache-2.0
"""Runs a script as the ranks of a job, without a launcher."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "python"

# Whatever launched the tests speaks of no rank of theirs.
_LAUNCHERS = ("PADDLE_", "FLEET_", "FLAGS_", "OMPI_", "PMI_", "SLURM_")


class Rank:
    """One process of a job."""

    def __init__(self, process, log):
        self._process, self._log = process, log
        self.pid = process.pid

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, deadline):
        """The exit code, negative for a signal; kills the rank at `deadline`, a time
        of time.monotonic(), and returns None."""
        try:
            return self._process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def wait_within(self, seconds):
        return self.wait(time.monotonic() + seconds)

    def output(self):
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


class Job:
    """The ranks of one run of a script. End it with `with`. The last `num_missing`
    ranks of the job are never started."""

    def __init__(self, num_ranks, script, *arguments, env=None, num_missing=0):
        sockets = [_listener() for _ in range(num_ranks + num_missing)]
        endpoints = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
        self.ranks = []
        for rank, listener in enumerate(sockets[:num_ranks]):
            log = tempfile.TemporaryFile()
            process = subprocess.Popen(
                [sys.executable, str(HERE / script), *map(str, arguments)],
                env={**_environment(rank, endpoints, listener), **(env or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[listener.fileno()],
            )
            self.ranks.append(Rank(process, log))
        for listener in sockets:
            listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.wait(0)

    def wait(self, timeout=300):
        """(exit codes, outputs) in the order of ranks."""
        deadline = time.monotonic() + timeout
        codes = [rank.wait(deadline) for rank in self.ranks]
        return codes, [rank.output() for rank in self.ranks]

    def wait_for_line(self, rank, line, timeout=60):
        """Until that rank has written `line`."""
        deadline = time.monotonic() + timeout
        while line not in self.ranks[rank].output():
            assert time.monotonic() < deadline, self.ranks[rank].output()
            time.sleep(0.02)


def run(num_ranks, script, *arguments, env=None, timeout=300):
    """Runs a job whose ranks must all end well; returns their outputs."""
    with Job(num_ranks, script, *arguments, env=env) as job:
        codes, outputs = job.wait(timeout)
    report = "\n".join(
        f"--- rank {i} ended with {code}:\n{text}"
        for i, (code, text) in enumerate(zip(codes, outputs))
    )
    assert codes == [0] * num_ranks, report
    return outputs


def kill(rank):
    rank.signal(signal.SIGKILL)


def _listener():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def clean_environment():
    """The environment of a process that no launcher has started, but that finds the
    package."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    return {**env, "PYTHONPATH": str(PACKAGE)}


def _environment(rank, endpoints, listener):
    env = clean_environment()
    env.update(
        PADDLE_TRAINER_ID=str(rank),
        PADDLE_TRAINERS_NUM=str(len(endpoints)),
        PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
        PADDLE_CURRENT_ENDPOINT=endpoints[rank],
        FLEET_LISTEN_FD=str(listener.fileno()),
        FLEET_SECRET="of the tests",
        FLEET_START_TIMEOUT="60",
        FLEET_TIMEOUT="60",
        OMP_NUM_THREADS="1",
        PYTHONUNBUFFERED="1",
    )
    return env
