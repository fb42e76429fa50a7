# SPDX-License-Identifier: Apache-2.0
"""Jobs of ps_trainer and fleet_server: under fleetrun, or as processes that a test
starts one by one, so that it can kill or limit each of them."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import numpy as np

from tests.launch.launcher import FLEETRUN, PATIENCE, Launcher, wait_until
from tests.server_jobs import reference

# `make` leaves fleetrun in .venv as a link to the build.
PROGRAMS = FLEETRUN.resolve().parent
SERVER, TRAINER = PROGRAMS / "fleet_server", PROGRAMS / "ps_trainer"


def flags_of(train):
    return [text for name, value in train.items() for text in (f"--{name}", str(value))]


def read_result(path, keys=1000, dim=4):
    """Rows and weights as worker 0 left them."""
    values = np.fromfile(path, np.float32)
    assert values.size == keys * dim + reference.NUM_WEIGHTS
    return values[: keys * dim].reshape(keys, dim), values[keys * dim :]


def assert_same(result, wanted):
    for ours, theirs in zip(result, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class Job(Launcher):
    """A job under fleetrun. Words of the form name=value are ps_trainer's."""

    def begin(self, *flags, servers=2, workers=2, env=(), command=(), **train):
        places = [f"--server_num={servers}", f"--worker_num={workers}"]
        if any(flag.startswith("--servers") for flag in flags):
            places = []
        if not any(flag.startswith("--server_program") for flag in flags):
            places.append(f"--server_program={SERVER}")
        train = {"out": "result", **train}
        program = [*command, TRAINER]
        return self.start(
            *places, *flags, *map(str, program), *flags_of(train), **dict(env)
        )

    def train(self, *flags, **more):
        return self.finish(self.begin(*flags, **more))

    def result(self, **shape):
        return read_result(self.folder / "result", **shape)

    def go_on(self):
        """Lets workers go on that wait for this file."""
        (self.folder / "go").touch()

    def wait_until_ready(self, workers=2):
        for i in range(workers):
            self.wait_for_text(f"workerlog.{i}", "READY")

    def pid_of(self, kind, index):
        """A process of the job: kind is "server" or "worker"."""
        for pid in self.processes():
            try:
                raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            env = dict(
                pair.split("=", 1) for pair in raw.decode().split("\0") if "=" in pair
            )
            if kind == "worker" and env.get("TRAINING_ROLE") == "TRAINER":
                found = int(env["PADDLE_TRAINER_ID"])
            elif kind == "server" and env.get("TRAINING_ROLE") == "PSERVER":
                own = f"{env['POD_IP']}:{env['PADDLE_PORT']}"
                found = env["PADDLE_PSERVERS_IP_PORT_LIST"].split(",").index(own)
            else:
                continue
            if found == index:
                return pid
        raise AssertionError(f"no {kind} {index} runs")

    def kill(self, kind, index):
        os.kill(self.pid_of(kind, index), signal.SIGKILL)


class Parts:
    """Servers and workers without a launcher."""

    def __init__(self, folder, servers=2, workers=2, **env):
        self.folder, self.workers = pathlib.Path(folder), workers
        self.sockets = []
        for _ in range(servers):
            s = socket.socket()
            s.bind(("127.0.0.1", 0))
            s.listen(64)
            self.sockets.append(s)
        self.servers = [f"127.0.0.1:{s.getsockname()[1]}" for s in self.sockets]
        drop = ("PADDLE_", "FLEET_", "FLAGS_", "TRAINING_ROLE", "POD_IP")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(drop)},
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.servers),
            "PADDLE_TRAINERS_NUM": str(workers),
            **env,
        }
        self.processes = {}

    def _start(self, name, command, env, **more):
        self.processes[name] = subprocess.Popen(
            [*map(str, command)],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / name).open("w"),
            stderr=subprocess.STDOUT,
            **more,
        )

    def start_server(self, index, command=(SERVER,), **env):
        ip, port = self.servers[index].split(":")
        fd = self.sockets[index].fileno()
        own = {"POD_IP": ip, "PADDLE_PORT": port, "FLEET_LISTEN_FD": str(fd)}
        own["TRAINING_ROLE"] = "PSERVER"
        self._start(f"server{index}", command, {**own, **env}, pass_fds=[fd])
        # The socket is the server's: when that dies, nobody listens there.
        self.sockets[index].close()

    def start_worker(self, index, command=(), **train):
        env = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(index)}
        train = {"out": "result", "wait_for": "go", **train}
        self._start(f"worker{index}", [*command, TRAINER, *flags_of(train)], env)

    def start_script(self, index, script, **told):
        """A worker in Python; its words are name=value."""
        env = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(index)}
        words = [f"{name}={value}" for name, value in told.items()]
        self._start(f"worker{index}", [sys.executable, script, *words], env)

    def start_all(self, **train):
        for i in range(len(self.servers)):
            self.start_server(i)
        for i in range(self.workers):
            self.start_worker(i, **train)

    def output(self, name):
        return (self.folder / name).read_text(errors="replace")

    def wait_for(self, name, text):
        wait_until(lambda: text in self.output(name), f"{text!r} of {name}")

    def wait_until_ready(self):
        for i in range(self.workers):
            self.wait_for(f"worker{i}", "READY")

    def go_on(self):
        (self.folder / "go").touch()

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def ends(self, name):
        """The exit code of a process that has to end by itself."""
        try:
            return self.processes[name].wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{name} still runs after {PATIENCE} s:\n{self.output(name)}"
            ) from None

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        for s in self.sockets:
            s.close()
