# SPDX-License-Identifier: Apache-2.0
"""The C++ example with parameters on servers, under fleetrun."""

import pathlib
import re
import subprocess
import sys

import pytest

from tests.server_jobs import jobs

FLEETRUN = pathlib.Path(sys.executable).parent / "fleetrun"
# `make` leaves fleetrun in .venv as a link to the build.
TRAIN_CTR = FLEETRUN.resolve().parent / "train_ctr"
PATIENCE = 120  # a job that takes longer hangs


def run(command, folder):
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def train(folder, *flags, program=("--server_program", "fleet_server")):
    job = [FLEETRUN, "--server_num", "2", "--worker_num", "2", *program]
    return run([*job, TRAIN_CTR, "--steps", "200", "--keys", "5001", *flags], folder)


@pytest.mark.parametrize("mode", ["sync", "async", "geo"])
def test_it_learns_who_clicks(mode, tmp_path):
    done = train(tmp_path, "--mode", mode)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(x) for x in re.findall(r"step \d+ loss ([\d.]+)", done.stdout)]
    assert len(losses) == 4 and losses[-1] < 0.66, done.stdout
    (auc,) = re.findall(r"never seen: ([\d.]+)", done.stdout)
    assert float(auc) > 0.7
    for i in (0, 1):
        log = (tmp_path / "log" / f"serverlog.{i}").read_text()
        assert "worker 1 is here, by shared memory" in log


def test_it_serves_and_saves_itself(tmp_path):
    """Without a program for them, servers run the example."""
    done = train(tmp_path, "--save", "model", program=())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "saved to model" in done.stdout
    assert list((tmp_path / "model").iterdir())


@pytest.fixture
def job(tmp_path):
    made = jobs.Job(tmp_path)
    yield made
    made.end()


def test_a_killed_server_loses_nothing_that_it_logged(job):
    flags = ("--steps", "800", "--keys", "5001", "--durability", "log-sync")
    places = ("--server_num=2", "--worker_num=2", "--max_restarts=2")
    process = job.start(*places, str(TRAIN_CTR), *flags)
    job.wait_for_text("workerlog.0", "step 50 ")
    job.kill("server", 0)
    job.kill("server", 1)
    done = job.finish(process)
    assert done.returncode == 0, done.stdout + done.stderr
    for i in (0, 1):
        log = job.log(f"serverlog.{i}")
        assert log.count("; durability log-sync, in ") == 2, log
        assert "has its tables again" in log and "has lost" not in log
    (auc,) = re.findall(r"never seen: ([\d.]+)", done.stdout)
    assert float(auc) > 0.7


def test_it_says_that_it_needs_servers(tmp_path):
    done = run([TRAIN_CTR], tmp_path)
    assert done.returncode == 1
    assert "fleetrun --server_num 2 --worker_num 2" in done.stderr


def test_wrong_flags_are_explained(tmp_path):
    done = run([TRAIN_CTR, "--mode", "perhaps"], tmp_path)
    assert done.returncode == 2
    assert "usage: train_ctr" in done.stderr
