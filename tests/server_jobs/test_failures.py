# SPDX-License-Identifier: Apache-2.0
"""What workers, servers and the launcher do when one of them fails, is limited, or
sends what it should not."""

import os
import pathlib
import re
import signal
import socket
import subprocess

import numpy as np
import pytest

from tests.launch.launcher import wait_until
from tests.server_jobs import reference
from tests.server_jobs.jobs import SERVER, assert_same

SCRIPT = pathlib.Path(__file__).parent / "api_worker.py"
# Rows of 64 that take a hundred megabytes, of all keys that ten steps name.
LARGE = {"keys": 2_000_003, "dim": 64, "batch": 20_000, "steps": 10}


def test_a_killed_server_is_named_by_the_workers(parts):
    made = parts()
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    made.kill("server1")
    made.go_on()
    for i in (0, 1):
        assert made.ends(f"worker{i}") == 7
        assert "server 1" in made.output(f"worker{i}")
    assert made.ends("server0") == 1
    assert "is lost" in made.output("server0")


def test_a_killed_server_fails_the_job(job):
    process = job.begin(steps=10, wait_at=5, wait_for="never")
    job.wait_until_ready()
    job.kill("server", 1)
    done = job.finish(process)
    assert done.returncode == 137
    assert re.search(r"fleetrun: server 1 at .* failed: SIGKILL", done.stderr)
    job.assert_nothing_left()


def test_a_server_comes_back_from_its_log(job):
    """With all that it acknowledged, though nothing was saved."""
    process = job.begin(
        "--max_restarts=2", "--job_id=my/job", steps=20, wait_at=10, wait_for="go"
    )
    job.wait_until_ready()
    assert (job.folder / "log/ps/my%2Fjob/server.0-of-2").is_dir()
    job.kill("server", 0)
    job.kill("server", 1)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    for i in (0, 1):
        assert f"starting server {i} again from its log (" in done.stderr
        assert "has its tables again" in job.log(f"serverlog.{i}")
    assert_same(job.result(), reference.train(20))
    assert not (job.folder / "log/ps").exists()


@pytest.mark.parametrize("named", [False, True])
def test_the_log_of_a_job_that_was_killed_is_not_that_of_the_next(job, named):
    left = job.folder / "log/ps/default/server.0-of-2"
    left.mkdir(parents=True)
    (left / "checkpoint").write_text("of a job that was killed")
    env = {"FLEET_PS_LOG_DIR": str(job.folder / "log/ps")} if named else {}
    done = job.train("--max_restarts=1", env=env.items(), steps=10)
    assert done.returncode == 0, done.stderr
    assert "durability log, in " in job.log("serverlog.0")
    assert_same(job.result(), reference.train(10))
    # The own folder is emptied; in one that the user names others may have logs.
    if named:
        assert [path.name for path in (job.folder / "log/ps").iterdir()] == ["default"]
    else:
        assert not (job.folder / "log/ps").exists()


NO_LOG = {"FLEET_PS_DURABILITY": "none"}.items()


def test_a_job_that_goes_on_without_what_was_lost_says_so_at_its_end(job):
    process = job.begin(
        "--max_restarts=1",
        env=[*NO_LOG, ("FLEET_PS_ON_DATA_LOSS", "go_on")],
        mode="async",
        steps=20,
        save="model",
        save_at=5,
        wait_at=10,
        wait_for="go",
    )
    job.wait_until_ready()
    job.kill("server", 0)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    said = re.findall(
        r"fleetrun: updates are lost that a server had acknowledged .*; (worker|server)"
        r" \d says which in its log, (\S+)",
        done.stderr,
    )
    assert said, done.stderr
    for _, log in said:
        assert "has lost " in open(job.folder / log).read()


def test_a_server_comes_back_from_its_last_save(job):
    process = job.begin(
        "--max_restarts=1",
        env=NO_LOG,
        steps=20,
        save="model",
        save_at=10,
        wait_at=10,
        wait_for="go",
    )
    job.wait_until_ready()
    job.kill("server", 0)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    assert "starting server 0 again from its last save (1 of 1)" in done.stderr
    # The save was taken where the server was killed, so nothing is lost.
    assert_same(job.result(), reference.train(20))


def test_a_server_that_has_not_saved_cannot_come_back(job):
    process = job.begin(
        "--max_restarts=1", env=NO_LOG, steps=10, wait_at=5, wait_for="go"
    )
    job.wait_until_ready()
    job.kill("server", 0)
    job.wait_until_ready()
    job.go_on()
    done = job.finish(process)
    assert "server 0 has not saved anything" in done.stderr
    # So the whole job begins again.
    assert "starting the job again (1 of 1)" in done.stderr
    assert done.returncode == 0, done.stderr
    assert_same(job.result(), reference.train(10))


def test_a_killed_worker_is_named_to_the_others(parts):
    made = parts()
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    made.kill("worker1")
    made.go_on()
    assert made.ends("worker0") == 7
    assert "worker 1 is lost" in made.output("worker0")
    for i in (0, 1):
        assert made.ends(f"server{i}") == 1
        assert "fleet_server: server" in made.output(f"server{i}")
        assert "worker 1 is lost" in made.output(f"server{i}")


def test_a_killed_worker_fails_the_job(job):
    process = job.begin(steps=10, wait_at=5, wait_for="never")
    job.wait_until_ready()
    job.kill("worker", 1)
    done = job.finish(process)
    assert done.returncode == 137
    assert re.search(r"fleetrun: worker 1 at .* failed: SIGKILL", done.stderr)
    job.assert_nothing_left()


def test_by_configuration_the_others_go_on(job):
    process = job.begin(
        steps=10, wait_at=5, wait_for="go", env={"FLEET_PS_GO_ON": "1"}.items()
    )
    job.wait_until_ready()
    job.kill("worker", 1)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    assert "the job goes on without worker 1" in done.stderr
    rows, _ = job.result()
    assert np.isfinite(rows).all()


def test_the_others_go_on_also_where_a_server_is_started_again(job):
    """It knows who was there, and that worker 1 has not come back."""
    process = job.begin(
        "--max_restarts=1",
        steps=10,
        wait_at=5,
        wait_for="go",
        env={"FLEET_PS_GO_ON": "1"}.items(),
    )
    job.wait_until_ready()
    job.kill("worker", 1)
    job.kill("server", 1)
    job.go_on()
    done = job.finish(process)
    assert done.returncode == 0, done.stderr
    assert "the job goes on without worker 1" in done.stderr
    rows, _ = job.result()
    assert np.isfinite(rows).all()


def test_a_worker_that_is_started_again_alone_joins(parts):
    made = parts(FLEET_PS_GO_ON="1")
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    made.kill("worker1")
    made.start_worker(1, steps=10, first_step=6)
    wait_until(
        lambda: made.output("server0").count("worker 1 is here") == 2,
        "the new worker 1",
    )
    # The sixth step is under way and ends without it: it has those after it.
    made.go_on()
    for process in ("worker0", "worker1", "server0", "server1"):
        assert made.ends(process) == 0, made.output(process)


@pytest.mark.parametrize("mode", ["sync", "half_async", "async", "geo"])
def test_a_stopped_process_is_named_and_waited_for(parts, mode):
    made = parts()
    for i in (0, 1):
        made.start_server(i)
        if mode in ("sync", "async"):
            made.start_worker(i, steps=10, wait_at=5, mode=mode)
        else:
            made.start_script(i, SCRIPT, steps=10, wait_at=5, mode=mode)
    made.wait_until_ready()
    host = socket.gethostname()
    for stopped, others in (
        ("worker1", ["server0", "server1"]),
        ("server1", ["worker0", "worker1"]),
    ):
        pid = made.processes[stopped].pid
        name = f"{stopped[:-1]} {stopped[-1]} (process {pid} on {host})"
        os.kill(pid, signal.SIGSTOP)
        for other in others:
            made.wait_for(other, f"{name} has given no sign of life for")
        os.kill(pid, signal.SIGCONT)
        for other in others:
            made.wait_for(other, f"{name} is back after")
    made.go_on()
    for process in ("worker0", "worker1", "server0", "server1"):
        assert made.ends(process) == 0, made.output(process)
        assert not re.search("dead|(is|has) lost", made.output(process))


def test_a_worker_that_is_silent_for_the_timeout_is_dead(parts):
    made = parts(FLEET_HEARTBEAT_TIMEOUT="3")
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    os.kill(made.processes["worker1"].pid, signal.SIGSTOP)
    for server in ("server0", "server1"):
        made.wait_for(server, "FLEET_HEARTBEAT_TIMEOUT")
        made.wait_for(server, "counts as dead")
    made.go_on()
    assert made.ends("worker0") == 7
    assert "worker 1 is lost" in made.output("worker0")


def test_a_worker_that_is_dead_is_left_out_by_configuration(parts):
    made = parts(FLEET_HEARTBEAT_TIMEOUT="3", FLEET_PS_GO_ON="1")
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    os.kill(made.processes["worker1"].pid, signal.SIGSTOP)
    for server in ("server0", "server1"):
        made.wait_for(server, "counts as dead")
    made.go_on()
    assert made.ends("worker0") == 0, made.output("worker0")


def test_a_server_that_is_silent_for_the_timeout_is_dead(parts):
    made = parts(FLEET_HEARTBEAT_TIMEOUT="3")
    made.start_all(steps=10, wait_at=5)
    made.wait_until_ready()
    os.kill(made.processes["server1"].pid, signal.SIGSTOP)
    made.go_on()
    for worker in ("worker0", "worker1"):
        assert made.ends(worker) == 7
        assert "server 1" in made.output(worker)
        assert "counts as dead" in made.output(worker)


def with_limit(folder, name, kilobytes, command=""):
    """A script that runs `command`, or its arguments, with so much memory at most."""
    script = folder / name
    # Threads have small stacks, which count as well.
    limits = f"ulimit -s 512\nulimit -d {kilobytes}"
    script.write_text(f'#!/bin/sh\n{limits}\nexec {command} "$@"\n')
    script.chmod(0o755)
    return script


def test_a_worker_needs_no_memory_for_the_table(job):
    megabytes = 25
    limited = with_limit(job.folder, "limited", megabytes << 10)
    done = job.train(mode="async", command=[limited], **{**LARGE, "out": ""})
    assert done.returncode == 0, done.stderr
    bytes_of_table = int(re.search(r"bytes=(\d+)", done.stdout)[1])
    assert bytes_of_table > 4 * megabytes << 20


def test_rows_on_disk_are_the_rows(job):
    """A server with memory for a quarter of its rows computes what one with memory
    for all computes."""
    shape = {"keys": 20_000, "dim": 16, "batch": 4_000}
    quarter = 20_000 * 16 * 4 // 4 // 2  # of two servers
    done = job.train(steps=10, disk="rows", disk_memory=quarter, **shape)
    assert done.returncode == 0, done.stderr
    rows, in_memory = map(
        int, re.search(r"rows=(\d+) in_memory=(\d+)", done.stdout).groups()
    )
    assert rows == 20_000
    assert in_memory < rows / 2
    assert_same(
        job.result(keys=20_000, dim=16), reference.train(10, workers=2, **shape)
    )


def test_a_table_at_its_limit_refuses_new_rows(job):
    done = job.train(
        mode="async", env={"FLEET_PS_MEMORY_MB": "8"}.items(), **{**LARGE, "out": ""}
    )
    assert done.returncode == 7
    assert re.search(
        r"worker \d: pull rows \(20000 keys\).* server \d.* may take 8388608",
        done.stderr,
    ), done.stderr


def test_a_server_without_memory_says_so(job):
    """It is the worker that fails, and its message names server and table."""
    limited = with_limit(job.folder, "limited", 60 << 10, SERVER)
    done = job.train(
        f"--server_program={limited}",
        mode="async",
        servers=1,
        **{**LARGE, "out": ""},
    )
    assert done.returncode == 7, done.stderr
    assert re.search(r"worker \d: pull rows .* server 0", done.stderr), done.stderr


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    size = ["-o", "size=700k"]
    subprocess.run(["mount", "-t", "tmpfs", *size, "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_the_last_good_save(job, small_disk):
    """There is room for one save and not for two."""
    shape = {"keys": 20_000, "dim": 4, "batch": 10_000}
    done = job.train(steps=8, save="disk", save_at="4,8", **shape)
    assert done.returncode == 0, done.stderr
    saved = re.findall(r"SAVED (.*)", done.stdout)
    assert saved[0] == "OK", saved
    assert "disk" in saved[1] and "space" in saved[1], saved
    done = job.train(
        steps=8, first_step=4, env={"FLEET_PS_LOAD": "disk"}.items(), **shape
    )
    assert done.returncode == 0, done.stderr
    assert_same(job.result(keys=20_000, dim=4), reference.train(8, workers=2, **shape))


@pytest.mark.parametrize("drop", [0, 1])
def test_gradients_that_are_no_numbers_are_counted(job, drop):
    done = job.train(
        mode="async", workers=1, gradient="ones", steps=6, nan_at=3, drop_nonfinite=drop
    )
    assert done.returncode == 0, done.stderr
    assert "nonfinite=1" in done.stdout
    rows, weights = job.result()
    bad = reference.keys_at(3, 0, 64, 1000)[0]
    wanted, wanted_weights = reference.count(6, workers=1)
    if drop:  # the row did not get what the bad gradient would have been
        wanted[bad] += reference.RATE
    else:
        assert np.isnan(rows[bad, 0])
        rows[bad, 0] = wanted[bad, 0]
    assert_same((rows, weights), (wanted, wanted_weights))
