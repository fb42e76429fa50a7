# SPDX-License-Identifier: Apache-2.0
"""Jobs with servers over several hosts, which are network namespaces."""

import os
import pathlib
import re
import signal
import time

import pytest

from tests.collective_hosts.hosts import FLEETRUN, Hosts
from tests.launch.launcher import wait_until
from tests.server_jobs import reference
from tests.server_jobs.jobs import SERVER, TRAINER, assert_same, flags_of, read_result

SECRET = {"FLEET_SECRET": "in every host's environment"}


@pytest.fixture
def hosts(tmp_path):
    made = []

    def make(count):
        made.append(Hosts(tmp_path, count))
        return made[-1]

    yield make
    for each in made:
        each.close()


def launch(made, host, *flags, env=SECRET, **train):
    program = [f"--server_program={SERVER}", TRAINER]
    train = flags_of({"out": "result", "steps": 10, **train})
    return made.start(host, FLEETRUN, *flags, *program, *train, **{**SECRET, **env})


def finish(processes):
    outputs = [p.communicate(timeout=120)[0] for p in processes]
    assert [p.returncode for p in processes] == [0] * len(processes), outputs
    return outputs


def log(made, host, name):
    return (made.folder / made.names[host] / "log" / name).read_text()


def pids_of(program, host):
    """Processes that run `program` in the folder of a host."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (path / "exe").resolve() != program or host not in os.readlink(
                path / "cwd"
            ):
                continue
        except OSError:
            continue
        found.append(int(path.name))
    return found


def result(made, host):
    return read_result(made.folder / made.names[host] / "result")


@pytest.mark.parametrize("channel", ["tcp", "ucx"])
def test_a_worker_and_a_server_on_each_host(hosts, channel):
    made = hosts(2)
    a, b = made.address(0), made.address(1)
    flags = [f"--servers={a}:6170,{b}:6170", f"--workers={a}:6172,{b}:6172"]
    env = {"FLEET_CHANNEL": channel}
    finish([launch(made, i, *flags, env=env) for i in (0, 1)])
    assert_same(result(made, 0), reference.train(10))
    for host in (0, 1):
        text = log(made, host, "serverlog.0")
        assert f"worker {host} is here, by shared memory" in text
        assert f"worker {1 - host} is here, by {channel}" in text


def test_servers_and_workers_have_hosts_of_their_own(hosts):
    made = hosts(3)
    a, b, c = (made.address(i) for i in range(3))
    flags = [f"--servers={a}:6170,{a}:6171", f"--workers={b}:6172,{c}:6172"]
    finish([launch(made, i, *flags) for i in range(3)])
    assert_same(result(made, 1), reference.train(10))
    for server in (0, 1):
        text = log(made, 0, f"serverlog.{server}")
        assert "by shared memory" not in text
        for worker in (0, 1):
            assert f"worker {worker} is here, by tcp" in text


def test_they_find_each_other_at_a_master(hosts):
    """The host of servers has the address that all are told."""
    made = hosts(2)
    meet = [f"--master={made.address(0)}:7100", "--nnodes=2"]
    finish(
        [
            launch(made, 0, *meet, "--server_num=2", "--worker_num=0"),
            launch(made, 1, *meet, "--server_num=0", "--worker_num=2"),
        ]
    )
    assert_same(result(made, 1), reference.train(10))
    assert "worker 1 is here, by tcp" in log(made, 0, "serverlog.1")


def test_a_server_comes_back_for_workers_of_another_host(hosts):
    made = hosts(2)
    a, b = made.address(0), made.address(1)
    flags = [f"--servers={a}:6170", f"--workers={b}:6172", "--max_restarts=1"]
    wait = {"wait_at": 5, "wait_for": "go"}
    started = [launch(made, i, *flags, **wait) for i in (0, 1)]
    wait_until(lambda: "READY" in "".join(made.logs(1)), "the worker's READY")
    for pid in pids_of(SERVER, made.names[0]):
        os.kill(pid, signal.SIGKILL)
    (made.folder / made.names[1] / "go").touch()
    outputs = finish(started)
    assert "starting server 0 again from its log" in outputs[0]
    assert_same(result(made, 1), reference.train(10, workers=1))


def test_a_server_whose_network_is_gone_ends(hosts):
    """Also where it was in the middle of answers, which the kernel would repeat for a
    quarter of an hour."""
    made = hosts(2)
    a, b = made.address(0), made.address(1)
    job = {
        **SECRET,
        "PADDLE_PSERVERS_IP_PORT_LIST": f"{a}:6170",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": f"{b}:6171,{b}:6172",
    }
    env = {**job, "TRAINING_ROLE": "PSERVER", "POD_IP": a, "PADDLE_PORT": "6170"}
    server = made.start(0, "sh", "-c", f"exec {SERVER} > said 2>&1", **env)
    train = flags_of({"steps": 10**9, "mode": "async", "keys": 100_000, "batch": 5000})
    workers = [
        made.start(
            1, TRAINER, *train, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID=i, **job
        )
        for i in ("0", "1")
    ]
    said = made.folder / made.names[0] / "said"
    for i in (0, 1):
        here = f"worker {i} is here, by tcp"
        wait_until(lambda h=here: said.exists() and h in said.read_text(), here)
    time.sleep(1)  # they are at work
    made.cut(0)
    for worker in workers:
        output = worker.communicate(timeout=120)[0]
        assert worker.returncode == 7 and "server 0" in output
    assert server.wait(timeout=120) == 1
    assert re.search(r"worker [01].* is lost", said.read_text())


def test_a_job_without_servers_is_refused(hosts):
    made = hosts(2)
    meet = [f"--master={made.address(0)}:7100", "--nnodes=2"]
    flags = ["--server_num=0", "--worker_num=1"]
    started = [launch(made, i, *meet, *flags) for i in (0, 1)]
    for process in started:
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 2
        assert "no host of the job has a server" in output
