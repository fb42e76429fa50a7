# SPDX-License-Identifier: Apache-2.0
"""paddle.distributed.spawn."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import paddle.distributed as dist
import pytest
from paddle.distributed import multiprocess

from tests.collective import spawn_cases
from tests.collective.ranks import HERE, PACKAGE


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_the_processes_are_ranks_of_one_job(method):
    context = dist.spawn(spawn_cases.add, args=(10,), nprocs=2, start_method=method)
    results = [queue.get() for queue in context.return_queues]
    assert [rank for rank, _ in results] == [0, 1]
    for _, value in results:
        np.testing.assert_array_equal(value, [21, 21, 21])
    assert all(process.exitcode == 0 for process in context.processes)


def test_a_port_of_the_kernels_choice_has_one_owner():
    """Two sockets that allow reuse may get the same one."""
    with multiprocess._listen("127.0.0.1", 0) as any_port:
        assert not any_port.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        port = any_port.getsockname()[1]
    with multiprocess._listen("127.0.0.1", port) as by_number:
        assert by_number.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{port}"):
            multiprocess._listen("127.0.0.1", port)


def test_without_join_the_context_is_waited_for():
    context = dist.spawn(spawn_cases.large, nprocs=2, join=False, start_method="fork")
    assert len(context.processes) == 2
    while not context.join(timeout=30):
        pass
    assert context.return_queues[0].get().shape == (1 << 20,)


def test_a_failure_comes_with_its_traceback():
    with pytest.raises(Exception) as caught:
        dist.spawn(spawn_cases.fail, args=(1,), nprocs=2, start_method="fork")
    text = str(caught.value)
    assert text.startswith("\n\n-----")
    assert "Process 1 terminated with the following error:" in text
    assert "ValueError: rank 1 does not like it" in text and "in fail" in text


def test_exit_codes_and_signals_are_told():
    with pytest.raises(Exception, match="Process 1 terminated with exit code 3"):
        dist.spawn(spawn_cases.leave, args=(3,), nprocs=2, start_method="fork")
    dist.spawn(spawn_cases.leave, args=(0,), nprocs=2, start_method="fork")
    with pytest.raises(Exception, match="Process 1 terminated with signal SIGKILL"):
        dist.spawn(spawn_cases.kill, nprocs=2, start_method="fork")


def test_the_environment_is_that_of_a_launcher(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("RANK", "17")
    with pytest.warns(UserWarning, match="selected_gpus"):
        context = dist.spawn(
            spawn_cases.variables, nprocs=2, start_method="fork", selected_gpus="4,5"
        )
    first, second = (queue.get() for queue in context.return_queues)
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert (first["PADDLE_TRAINER_ID"], second["PADDLE_TRAINER_ID"]) == ("0", "1")
    assert first["WORLD_SIZE"] == first["PADDLE_TRAINERS_NUM"] == "2"
    assert second["FLAGS_selected_gpus"] == "5"
    assert int(first["OMP_NUM_THREADS"]) >= 1
    # The secret itself is in no environment.
    assert first["FLEET_SECRET"] is None
    assert first["FLEET_SECRET_FILE"] == second["FLEET_SECRET_FILE"]
    assert len(Path(first["FLEET_SECRET_FILE"]).read_text()) == 64
    assert os.environ["RANK"] == "17" and "PADDLE_TRAINER_ID" not in os.environ


def test_wrong_options_are_errors():
    with pytest.raises(ValueError, match=r"\(wrong\) of .* is not supported\."):
        dist.spawn(spawn_cases.large, nprocs=1, wrong=1)
    with pytest.raises(ValueError, match="not equal to the number of spawn"):
        dist.spawn(spawn_cases.large, nprocs=2, gpus="0")
    for nprocs in (0, -2, True, "2"):
        with pytest.raises(ValueError, match="nprocs"):
            dist.spawn(spawn_cases.large, nprocs=nprocs)
    with pytest.raises(ValueError, match="start_method"):
        dist.spawn(spawn_cases.large, nprocs=1, start_method="thread")
    with pytest.raises(ValueError, match="none of the addresses"):
        dist.spawn(spawn_cases.large, nprocs=1, ips="203.0.113.7,203.0.113.8")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_no_process_outlives_a_killed_parent(tmp_path, method):
    code = (
        "import sys, paddle.distributed as dist, spawn_cases\n"
        "if __name__ == '__main__':\n"
        "    dist.spawn(spawn_cases.wait_forever, args=sys.argv[1:2], nprocs=2,"
        " start_method=sys.argv[2])\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    folder = tmp_path / "pids"
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, str(script), str(folder), method],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{HERE}"},
    )
    try:
        deadline = time.monotonic() + 60
        while len(os.listdir(folder)) < 2:
            assert time.monotonic() < deadline and parent.poll() is None
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
    pids = [int(name) for name in os.listdir(folder)]
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)
