# SPDX-License-Identifier: Apache-2.0
"""Jobs with servers in Python that are killed: what a script says of durability."""

import re
import subprocess
import sys

import numpy as np
import pytest

from tests.ports import free_row
from tests.server_jobs import jobs
from tests.server_scripts.jobs import HERE, environment, run_alone
from tests.server_scripts.test_server_scripts import assert_close


@pytest.fixture
def job(tmp_path):
    made = ScriptJob(tmp_path)
    yield made
    made.end()


class ScriptJob(jobs.Job):
    """cases.py under fleetrun, with two workers and two servers."""

    def begin_case(self, *flags, env=(), case):
        places = ["--server_num=2", "--worker_num=2"]
        command = [*places, *flags, HERE / "cases.py", *case]
        return self.start(*map(str, command), **environment(**dict(env)))


def train_and_kill(job, kind, *flags, servers=(0, 1), **env):
    """Kills servers in the middle; returns how the job ended."""
    names = [job.folder / name for name in ("initial.npz", "out.npz", "go")]
    case = ["train_past_kills", kind, *names]
    process = job.begin_case(*flags, env=env, case=case)
    job.wait_until_ready()
    for index in servers:
        job.kill("server", index)
    job.go_on()
    return job.finish(process)


def assert_nothing_is_lost(job):
    """They end where one process does that nobody killed."""
    alone = job.folder / "alone.npz"
    run_alone("train", "sparse", "Adam", "sync", job.folder / "initial.npz", alone)
    assert_close(np.load(job.folder / "out.npz"), np.load(alone), 1e-5)


@pytest.mark.parametrize("kind", ["log", "log-sync"])
def test_killed_servers_lose_nothing_where_the_strategy_says_so(job, kind):
    done = train_and_kill(job, kind, "--max_restarts=2", "--job_id=night")
    assert done.returncode == 0, done.stderr
    for i in (0, 1):
        log = job.log(f"serverlog.{i}")
        folder = re.escape(str(job.folder / f"log/ps/night/server.{i}-of-2"))
        assert len(re.findall(f"; durability {kind}, in {folder}\n", log)) == 2, log
        assert "has its tables again" in log
        assert "asks for durability" not in log
        assert f"starting server {i} again from its log (" in done.stderr
    assert_nothing_is_lost(job)


def test_without_a_log_by_the_strategy_the_job_begins_again(job):
    # With the first one all others end.
    done = train_and_kill(job, "none", "--max_restarts=1", servers=[0])
    assert "server 0 has not saved anything" in done.stderr, done.stderr
    assert "starting the job again (1 of 1)" in done.stderr
    assert done.returncode == 0, done.stderr
    assert "; durability none" in job.log("serverlog.0")
    assert_nothing_is_lost(job)


def test_the_environment_goes_before_the_strategy(job):
    env = {"FLEET_PS_DURABILITY": "log"}
    done = train_and_kill(job, "none", "--max_restarts=2", **env)
    assert done.returncode == 0, done.stderr
    said = (
        "this program asks for durability none, but FLEET_PS_DURABILITY=log is set, "
        "and counts"
    )
    for i in (0, 1):
        log = job.log(f"serverlog.{i}")
        assert log.count(said) == 2 and log.count("; durability log, in ") == 2, log
    assert_nothing_is_lost(job)


def test_a_worker_that_goes_on_counts_what_is_lost(job):
    env = {"FLEET_PS_DURABILITY": "none", "FLEET_PS_ON_DATA_LOSS": "go_on"}
    case = ["lose_updates", job.folder / "saved", job.folder / "go"]
    process = job.begin_case("--max_restarts=1", env=env, case=case)
    job.wait_until_ready()
    job.kill("server", 1)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    for i in (0, 1):
        log = job.log(f"workerlog.{i}")
        assert "server 1 was started again and has lost" in log
        ends = rf"worker {i} ends; servers that were started again lost (.*) that"
        said = re.search(ends, log)[1]
        assert "updates of table" in said
        counted = sum(map(int, re.findall(r"(\d+) (?:updates )?of ", said)))
        # Keys of every step are on both servers.
        assert counted >= 5 and counted == int(re.search(r"LOST (\d+)", log)[1]), log


@pytest.mark.parametrize("kind", ["sparse", "bounded"])
def test_a_save_is_made_anew_where_a_server_is_killed_in_it(job, kind):
    go = job.folder / "go"
    case = ["save_past_a_kill", kind, job.folder, go]
    process = job.begin_case("--max_restarts=2", case=case)
    for at in ("persistables", "inference"):
        job.wait_for_text("workerlog.0", f"READY {at}\n")
        job.kill("server", 1)
        (job.folder / f"go-{at}").touch()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    log = job.log("workerlog.0")
    assert "fleet.save_persistables saves again: " in log, log
    assert "server 1 knows nothing of this save: it was started again" in log


def test_a_log_needs_a_folder(tmp_path):
    port = free_row(1)
    env = {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{port}",
        "PADDLE_TRAINERS_NUM": "1",
        "POD_IP": "127.0.0.1",
        "PADDLE_PORT": str(port),
    }
    names = [tmp_path / name for name in ("initial.npz", "out.npz", "go")]
    done = subprocess.run(
        [sys.executable, HERE / "cases.py", "train_past_kills", "log", *names],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    wanted = "ValueError: durability log needs a folder for the log: FLEET_PS_LOG_DIR"
    assert wanted in done.stderr
