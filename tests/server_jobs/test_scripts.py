# SPDX-License-Identifier: Apache-2.0
"""Failures as scripts see them: api_worker.py under fleetrun."""

import json
import pathlib
import re

import pytest

from tests.server_jobs.jobs import PROGRAMS

SCRIPT = pathlib.Path(__file__).parent / "api_worker.py"
SLOW_DISK = PROGRAMS.parent / "lib" / "tests" / "libslow_disk.so"


def begin(job, *flags, env=(), **told):
    words = [f"{name}={value}" for name, value in told.items()]
    return job.start(
        "--server_num=2", "--worker_num=2", *flags, str(SCRIPT), *words, **dict(env)
    )


def run(job, *flags, **told):
    return job.finish(begin(job, *flags, **told))


def losses(job):
    return [
        float(re.search(r"LOSS (\S+)", job.log(f"workerlog.{i}"))[1]) for i in (0, 1)
    ]


def test_behind_a_slow_server_a_worker_goes_on_until_its_queue_is_full(job):
    queue, merge = 8, 2
    done = run(
        job,
        steps=30,
        look_at=queue - 2,
        send_queue_size=queue,
        max_merge_var_num=merge,
        # Pushes wait for a slow disk, and nothing else does.
        env={"FLEET_PS_DURABILITY": "log-sync", "LD_PRELOAD": str(SLOW_DISK)}.items(),
    )
    assert done.returncode == 0, done.stderr
    early, late = (
        json.loads(re.search(f"{word} (.*)", done.stdout)[1])
        for word in ("EARLY", "LATE")
    )
    assert early["steps"] == queue - 2
    assert early["waits"] == 0
    assert late["waits"] > 0
    assert late["waited_seconds"] > 0
    assert late["max_queued"] <= queue
    # Parameters are behind by what waits, what is on its way, and the step that ends.
    assert late["max_staleness"] <= queue + merge + 1


@pytest.mark.parametrize("bad", [1000, -3])
def test_an_id_that_the_table_does_not_have_is_named(job, bad):
    done = run(job, steps=10, bad_id=bad)
    assert done.returncode == 1
    assert f"table table: id {bad} at place 0 of 32 is not in [0, 1000)" in done.stderr
    job.assert_nothing_left()


def test_a_script_that_raises_fails_the_job(job):
    done = run(job, steps=10, raise_at=3)
    assert done.returncode == 1
    assert "fleetrun: worker 1 at" in done.stderr
    assert "RuntimeError: what a user's script does wrong" in done.stderr
    job.assert_nothing_left()


def test_a_server_comes_back_under_a_script(job):
    told = {"mode": "sync", "steps": 20}
    done = run(job, **told)
    assert done.returncode == 0, done.stderr
    undisturbed = losses(job)
    process = begin(job, "--max_restarts=1", wait_at=10, **told)
    job.wait_until_ready()
    job.kill("server", 1)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    assert "starting server 1 again from its log (1 of 1)" in done.stderr
    assert losses(job) == pytest.approx(undisturbed, rel=1e-5)


def test_a_script_that_hides_its_failed_end_does_not_end_well(parts):
    """The servers are gone, and with them what the worker learned."""
    made = parts(servers=1, workers=1)
    made.start_server(0)
    made.start_script(0, SCRIPT, steps=3, catch_stop=1)
    made.wait_until_ready()
    made.kill("server0")
    made.go_on()
    assert made.ends("worker0") == 1
    assert "CAUGHT" in made.output("worker0")
    assert "worker 0 could not end well" in made.output("worker0")
