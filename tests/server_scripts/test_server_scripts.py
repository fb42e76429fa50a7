# SPDX-License-Identifier: Apache-2.0
"""Jobs with parameter servers through the Python API, as processes under fleetrun."""

import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.ports import free_row
from tests.server_scripts.jobs import HERE, Job, environment, run_alone


def assert_close(got, expected, tolerance):
    assert sorted(got) == sorted(expected)
    for name in expected:
        scale = np.abs(expected[name]).max()
        error = np.abs(got[name] - expected[name]).max()
        assert error <= tolerance * scale, (name, error, scale)


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / name for name in ("initial.npz", "together.npz", "alone.npz")]


@pytest.mark.parametrize(
    "kind, optimizer, tolerance",
    [
        ("dense", "SGD", 1e-6),
        ("sparse", "SGD", 1e-6),
        ("bounded", "Momentum", 1e-6),
        ("sparse", "Adam", 1e-5),
        ("sparse", "lazy Adam", 1e-5),
        ("bounded", "Adagrad", 1e-5),
        ("dense", "decayed", 1e-6),
        ("sparse", "scheduled", 1e-6),
        ("sparse", "cosine", 1e-6),
        ("sparse", "lambda", 1e-6),
    ],
)
def test_sync_workers_end_where_one_process_with_the_joined_batch_does(
    tmp_path, paths, kind, optimizer, tolerance
):
    initial, together, alone = paths
    Job(tmp_path).run("train", kind, optimizer, "sync", initial, together)
    run_alone("train", kind, optimizer, "sync", initial, alone)
    assert_close(np.load(together), np.load(alone), tolerance)


def test_a_worker_without_a_batch_holds_up_nobody(tmp_path, paths):
    initial, together, alone = paths
    Job(tmp_path).run("unequal", initial, together)
    run_alone("unequal", initial, alone)
    assert_close(np.load(together), np.load(alone), 1e-6)


def test_a_table_on_disk_gives_the_same(tmp_path, paths):
    initial, together, alone = paths
    job = Job(tmp_path, FLEET_PS_DISK=str(tmp_path / "disk"))
    job.run("train", "disk", "Adam", "sync", initial, together)
    run_alone("train", "disk", "Adam", "sync", initial, alone)
    assert_close(np.load(together), np.load(alone), 1e-5)


@pytest.mark.parametrize("mode", ["async", "geo"])
def test_other_modes_learn_too(tmp_path, paths, mode):
    initial, together, _ = paths
    job = Job(tmp_path).run("train", "sparse", "SGD", mode, initial, together, 200)
    lines = [s for s in job.log("workerlog*").splitlines() if s.startswith("LOSS")]
    assert len(lines) == 2
    for line in lines:
        first, last = map(float, line.split()[1:])
        assert np.isfinite(last) and last < first


@pytest.mark.parametrize("kind, optimizer", [("sparse", "Adam"), ("dense", "Momentum")])
def test_a_save_goes_on_with_another_number_of_servers(
    tmp_path, paths, kind, optimizer
):
    initial, together, again = paths
    saved = tmp_path / "saved"
    Job(tmp_path).run("save_then_go_on", kind, optimizer, initial, saved, together)
    Job(tmp_path, servers=3).run("go_on_from", kind, optimizer, saved, again)
    assert_close(np.load(again), np.load(together), 1e-6)


def test_a_save_has_whole_steps_of_workers_that_train_on(tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    Job(tmp_path, workers=3).run("saves_meanwhile", "async", saved)


@pytest.mark.parametrize("kind", ["bounded", "sparse"])
def test_steps_go_on_while_a_worker_writes_files(tmp_path, kind):
    saved = tmp_path / "saved"
    saved.mkdir()
    Job(tmp_path).run("steps_while_files_are_written", kind, saved)


def test_a_save_of_what_changed_belongs_to_the_one_before(tmp_path):
    saved, out, again = (tmp_path / name for name in ("saved", "a.npz", "b.npz"))
    Job(tmp_path).run("delta", saved, out)
    Job(tmp_path, workers=1, servers=1).run("read_back", saved, again)
    assert_close(np.load(again), np.load(out), 0)


@pytest.mark.parametrize("kind, only", [("bounded", None), ("bounded", "table")])
def test_servers_begin_with_what_one_process_saved(tmp_path, kind, only):
    saved, out = tmp_path / "saved", tmp_path / "out.npz"
    run_alone("save_alone", kind, saved, out)
    arguments = [kind, saved, out] + ([only] if only else [])
    Job(tmp_path, workers=1).run("begin_with", *arguments)


def test_a_clone_made_before_minimize_evaluates(tmp_path):
    Job(tmp_path, workers=1).run("evaluate")


def test_a_bounded_model_runs_without_servers(tmp_path):
    saved, out = tmp_path / "saved", tmp_path / "out.npy"
    Job(tmp_path).run("save_model", "bounded", saved, out)
    run_alone("run_model", saved, out)


@pytest.mark.parametrize("kind", ["sparse", "bounded"])
def test_a_job_of_its_own_infers(tmp_path, kind):
    saved, out = tmp_path / "saved", tmp_path / "out.npy"
    Job(tmp_path).run("save_model", kind, saved, out)
    Job(tmp_path, servers=1).run("infer", kind, saved, out)


def test_keys_get_in_by_their_count(tmp_path):
    Job(tmp_path, workers=1).run("entry")


@pytest.mark.parametrize("mode, workers", [("async", 1), ("sync", 2)])
def test_rows_know_shows_and_clicks(tmp_path, mode, workers):
    Job(tmp_path, workers=workers).run("shows_and_clicks", mode)


def test_rows_that_nobody_asks_for_go(tmp_path):
    Job(tmp_path, workers=1).run("shrink")


@pytest.mark.parametrize("kind", ["sparse", "disk"])
def test_rows_whose_time_is_over_go(tmp_path, kind):
    job = Job(tmp_path, workers=1, FLEET_PS_DISK=str(tmp_path / "disk"))
    job.run("time_to_live", kind)
    counted = re.findall(r"; (\d+) rows were erased when", job.log("serverlog*"))
    assert len(counted) == 2 and min(map(int, counted)) > 0, counted


def test_files_of_a_model(tmp_path):
    Job(tmp_path, workers=1).run("files", tmp_path / "saved")


def test_an_id_outside_of_a_table_is_named(tmp_path):
    Job(tmp_path, workers=1).run("bad_ids")


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_speak_through_servers(tmp_path, workers):
    Job(tmp_path, workers=workers).run("together")


def test_workers_of_the_older_fleet_speak_through_servers(tmp_path):
    Job(tmp_path, workers=3).run("older_together")


def test_init_worker_comes_when_it_likes(tmp_path):
    job = Job(tmp_path).run("before_and_after")
    assert job.log("workerlog*").count("AFTER STOP") == 2
    assert "has stopped" in job.log("workerlog*")


def test_half_async_learns(tmp_path):
    Job(tmp_path).run("half_async")


def test_interrupts_end_a_server_and_a_worker_that_wait(tmp_path):
    """^C is KeyboardInterrupt in Python, also while the engine waits."""
    for role in ("PSERVER", "TRAINER"):
        process = start_lonely(role)
        try:
            time.sleep(3)
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode != 0 and "KeyboardInterrupt" in err, err


def start_lonely(role):
    """A process of a job whose others never come."""
    port = free_row(1)
    where = f"127.0.0.1:{port}"
    env = {
        "TRAINING_ROLE": role,
        "PADDLE_PSERVERS_IP_PORT_LIST": where,
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_TRAINER_ID": "0",
        "POD_IP": "127.0.0.1",
        "PADDLE_PORT": str(port),
    }
    return subprocess.Popen(
        [sys.executable, HERE / "cases.py", "together"],
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_programs_share_the_servers(tmp_path):
    Job(tmp_path).run("two_models")


@pytest.mark.parametrize("how", ["exception", "exit"])
def test_a_worker_that_fails_has_not_stopped(tmp_path, how):
    job = Job(tmp_path).fails("ends", how)
    assert "worker 1" in job.log("serverlog*")


def test_the_end_of_the_script_is_a_good_bye(tmp_path):
    Job(tmp_path).run("ends", "well")


def test_ranks_of_mpirun_are_servers_and_workers():
    mpirun = shutil.which("mpirun")
    assert mpirun, "no mpirun: tools/bootstrap installs Open MPI"
    done = subprocess.run(
        [mpirun, "-np", "4", sys.executable, HERE / "cases.py", "under_mpi"],
        # Open MPI asks root whether it is meant, and here are few cores.
        env=environment(
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            OMPI_MCA_rmaps_base_oversubscribe="1",
        ),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(re.findall(r"(SERVED \d|TRAINED \d 2\.0)", done.stdout))
    assert said == ["SERVED 0", "SERVED 1", "TRAINED 0 2.0", "TRAINED 1 2.0"]
