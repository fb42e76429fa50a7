# SPDX-License-Identifier: Apache-2.0
"""Jobs with servers that go well."""

import re
import subprocess

import pytest

from tests.launch.launcher import PATIENCE
from tests.ports import free_row
from tests.server_jobs import reference
from tests.server_jobs.jobs import SERVER, assert_same


def test_two_workers_and_two_servers_are_one_process(job):
    done = job.train(steps=20)
    assert done.returncode == 0, done.stderr
    assert_same(job.result(), reference.train(20))
    for i in (0, 1):
        log = job.log(f"serverlog.{i}")
        for worker in (0, 1):
            assert f"server {i}: worker {worker} is here, by shared memory" in log
        # What the server says of itself at its end.
        assert re.search(r"2 tables, \d+ rows, \d+\.\d MB; \d+ requests/s", log), log
    job.assert_nothing_left()


@pytest.mark.parametrize("channel", ["auto", "tcp"])
def test_every_gradient_arrives_once(job, channel):
    done = job.train(
        mode="async",
        gradient="ones",
        steps=30,
        env={"FLEET_PS_CHANNEL": channel}.items(),
    )
    assert done.returncode == 0, done.stderr
    assert_same(job.result(), reference.count(30))
    way = {"auto": "shared memory", "tcp": "tcp"}[channel]
    assert f"worker 1 is here, by {way}" in job.log("serverlog.0")


def test_a_slow_worker_changes_nothing(job):
    """Synchronous training waits for it, and computes the same."""
    done = job.train(steps=10, slow_worker=1, pause_ms=50)
    assert done.returncode == 0, done.stderr
    assert_same(job.result(), reference.train(10))


def test_places_by_list(job):
    first = free_row(3)
    ports = [first, first + 1, first + 2]
    done = job.train(
        f"--servers=127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}",
        f"--workers=127.0.0.1:{ports[2]}",
        steps=5,
    )
    assert done.returncode == 0, done.stderr
    assert f"listens at 127.0.0.1:{ports[1]}" in job.log("serverlog.1")
    assert_same(job.result(), reference.train(5, workers=1))


def test_another_number_of_servers_goes_on_where_a_save_stands(job):
    done = job.train(steps=8, save="model", save_at=8, servers=3)
    assert done.returncode == 0, done.stderr
    done = job.train(
        steps=16, first_step=8, servers=2, env={"FLEET_PS_LOAD": "model"}.items()
    )
    assert done.returncode == 0, done.stderr
    assert_same(job.result(), reference.train(16))


def test_a_server_alone_says_what_it_waits_for(parts):
    made = parts(servers=1, workers=2, FLEET_STALL_REPORT="0.2")
    made.start_server(0)
    made.wait_for("server0", "s for worker 0, worker 1. Do they run")
    made.start_worker(0, steps=1)
    made.wait_for("server0", "s for worker 1. Do they run")
    made.start_worker(1, steps=1)
    assert made.ends("worker0") == 0, made.output("worker0")
    assert made.ends("server0") == 0, made.output("server0")


def test_a_server_reports_while_it_serves(parts):
    made = parts(servers=1, workers=1, FLEET_PS_REPORT="0.1")
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    made.wait_for("server0", "2 tables, 320 rows")
    made.go_on()
    assert made.ends("server0") == 0, made.output("server0")


def serve(*arguments):
    return subprocess.run(
        [SERVER, *arguments], capture_output=True, text=True, timeout=PATIENCE
    )


def test_the_server_explains_itself():
    done = serve("--help")
    assert done.returncode == 0
    assert "--server_program fleet_server" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "which server this is"),
        (["--speed", "9"], "unknown option --speed"),
        (["--endpoint", "127.0.0.1:0"], "--workers"),
        (["--servers", "127.0.0.1:1", "--rank", "1", "--workers", "1"], "--rank 1"),
        (["--servers", "2", "--workers", "1"], "--endpoint"),
        (
            ["--endpoint", "127.0.0.1:0", "--workers", "1", "--load", "nowhere"],
            "nowhere",
        ),
    ],
)
def test_the_server_says_what_it_lacks(arguments, text):
    done = serve(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
