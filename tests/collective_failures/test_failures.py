# SPDX-License-Identifier: Apache-2.0
"""What ranks see when others fail: no hang, a message that names the rank, nothing
left behind."""

import os
import re
import signal
import socket
import subprocess
import time

import pytest

from tests.collective_failures.ranks import FLEETRUN, MEET, Ranks, clean_environment

FOR_EVER = MEET + "while True:\n    dist.all_reduce(x)\n"

CATCH = """
try:
    dist.all_reduce(x)
except (RuntimeError, OSError, ValueError) as e:
    print("ERROR", e, flush=True)
    sys.exit(7)
print("NO ERROR", flush=True)
"""


@pytest.fixture
def job(tmp_path):
    made = []

    def make(size=2, **env):
        made.append(Ranks(tmp_path, size, **env))
        return made[-1]

    yield make
    for ranks in made:
        ranks.close()


def error_of(ranks, rank):
    text = ranks.output(rank)
    lines = re.findall(r"(?:\w+Error: |ERROR )(.*)", text)
    assert lines, text
    return lines[-1]


def test_kill(job):
    ranks = job()
    ranks.start_all(FOR_EVER)
    for rank in (0, 1):
        ranks.wait_for(rank, "READY")
    ranks.processes[1].send_signal(signal.SIGKILL)
    assert ranks.ends(0) != 0
    assert "rank 1" in error_of(ranks, 0)
    ranks.leaves_nothing()


def test_kill_rank_0_of_three(job):
    ranks = job(3)
    ranks.start_all(FOR_EVER)
    for rank in range(3):
        ranks.wait_for(rank, "READY")
    ranks.processes[0].send_signal(signal.SIGKILL)
    for rank in (1, 2):
        assert ranks.ends(rank) != 0
        assert "rank 0" in error_of(ranks, rank)
    ranks.leaves_nothing()


def test_kill_a_rank_with_data_loader_workers(job):
    ranks = job()
    loader = """
class Numbers(paddle.io.Dataset):
    def __getitem__(self, i):
        time.sleep(0.01)
        return np.float32(i)
    def __len__(self):
        return 100000
batches = iter(paddle.io.DataLoader(Numbers(), batch_size=4, num_workers=2))
next(batches)
print("LOADING", flush=True)
for batch in batches:
    dist.all_reduce(x)
"""
    ranks.start_all(MEET + loader)
    for rank in (0, 1):
        ranks.wait_for(rank, "LOADING")
    ranks.processes[1].send_signal(signal.SIGKILL)
    assert ranks.ends(0) != 0
    assert "rank 1" in error_of(ranks, 0)
    ranks.leaves_nothing()


def test_stopped_rank_is_dead(job):
    """SIGSTOP: no heartbeats. Woken again, the rank is told that it was given up."""
    ranks = job(FLEET_HEARTBEAT_TIMEOUT="4")
    ranks.start_all(FOR_EVER)
    for rank in (0, 1):
        ranks.wait_for(rank, "READY")
    ranks.processes[1].send_signal(signal.SIGSTOP)
    assert ranks.ends(0) != 0
    assert "rank 1" in error_of(ranks, 0)
    ranks.processes[1].send_signal(signal.SIGCONT)
    assert ranks.ends(1) != 0
    ranks.leaves_nothing()


def test_exception_is_reported_to_the_others(job):
    ranks = job()
    ranks.start(0, MEET + CATCH)
    ranks.start(1, MEET + "raise ValueError('the data ended too soon')\n")
    assert ranks.ends(1) == 1
    assert ranks.ends(0) == 7
    assert "rank 1" in error_of(ranks, 0)
    ranks.leaves_nothing()


def test_rank_that_leaves_early(job):
    """It ended well, so nobody died; who still needs it is told."""
    ranks = job()
    ranks.start(0, MEET + "time.sleep(1)\n" + CATCH)
    ranks.start(1, MEET)
    assert ranks.ends(1) == 0
    assert ranks.ends(0) == 7
    assert "rank 1" in error_of(ranks, 0)
    assert "left" in error_of(ranks, 0)
    ranks.leaves_nothing()


def test_late_start(job):
    ranks = job()
    ranks.start(0, MEET)
    time.sleep(20)
    assert ranks.processes[0].poll() is None, ranks.output(0)
    ranks.start(1, MEET)
    assert [ranks.ends(rank) for rank in (0, 1)] == [0, 0]
    ranks.leaves_nothing()


def test_rank_0_is_busy(job):
    """20 s without a word from rank 0's program: late, not dead."""
    ranks = job()
    busy = MEET + "end = time.time() + 20\nwhile time.time() < end:\n    pass\n"
    last = "dist.all_reduce(x)\nassert float(x[0]) == 4\nprint('DONE')\n"
    ranks.start(0, busy + last)
    ranks.start(1, MEET + last)
    assert [ranks.ends(rank) for rank in (0, 1)] == [0, 0]
    assert "DONE" in ranks.output(1)
    ranks.leaves_nothing()


# Until the test has seen what it waits for.
UNTIL_TOLD = """
end = time.monotonic() + 60
while not os.path.exists("go"):
    assert time.monotonic() < end, "nobody let it go on"
    time.sleep(0.01)
"""


def test_late_rank_is_named_in_the_end(job):
    ranks = job(FLEET_TIMEOUT="10", FLEET_STALL_REPORT="1")
    ranks.start(0, MEET + CATCH)
    ranks.start(1, MEET + UNTIL_TOLD + CATCH)
    assert ranks.ends(0) == 7
    assert "rank 1" in error_of(ranks, 0)
    assert "all_reduce" in error_of(ranks, 0)
    (ranks.folder / "go").touch()
    ranks.ends(1)
    ranks.leaves_nothing()


def test_late_rank_is_named_when_the_call_did_not_wait(job):
    ranks = job(FLEET_TIMEOUT="10")
    later = CATCH.replace("(x)", "(x, sync_op=False).wait()")
    ranks.start(0, MEET + later)
    ranks.start(1, MEET + UNTIL_TOLD + later)
    assert ranks.ends(0) == 7
    assert "rank 1" in error_of(ranks, 0)
    assert "all_reduce" in error_of(ranks, 0)
    (ranks.folder / "go").touch()
    ranks.ends(1)
    ranks.leaves_nothing()


def test_missing_rank_is_named(job):
    ranks = job(3, FLEET_START_TIMEOUT="10")
    ranks.start(0, MEET)
    ranks.start(1, MEET)
    for rank in (0, 1):
        assert ranks.ends(rank) != 0
        assert re.search(r"for rank (\d, )*2 of 3", ranks.output(rank))
    ranks.leaves_nothing()


@pytest.mark.parametrize(
    "mine, theirs, words",
    [
        ("dist.all_reduce(x)", "dist.broadcast(x, 0)", ["all_reduce", "broadcast"]),
        (
            "dist.all_reduce(x)",
            "dist.all_reduce(paddle.ones([8]))",
            ["1000 x float32", "8 x float32"],
        ),
        (
            "dist.all_reduce(x)",
            "dist.all_reduce(paddle.ones([1000], 'float64'))",
            ["float32", "float64"],
        ),
    ],
)
def test_mismatch_shows_both_calls(job, mine, theirs, words):
    ranks = job()
    catch = """
try:
    {}
except (RuntimeError, OSError, ValueError) as e:
    print("ERROR", e, flush=True)
    sys.exit(7)
"""
    ranks.start(0, MEET + catch.format(mine))
    ranks.start(1, MEET + catch.format(theirs))
    for rank in (0, 1):
        assert ranks.ends(rank) == 7, ranks.output(rank)
        for word in words:
            assert word in error_of(ranks, rank)
    ranks.leaves_nothing()


def test_no_memory_for_the_segment(job):
    ranks = job(FLEET_START_TIMEOUT="10")
    limit = """
import os, resource, sys
import paddle
import paddle.distributed as dist
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used, used))
dist.init_parallel_env()
"""
    ranks.start_all(limit)
    for rank in (0, 1):
        assert ranks.ends(rank) == 1, ranks.output(rank)
    assert "memory" in ranks.output(0) + ranks.output(1)
    ranks.leaves_nothing()


def test_wrong_secret(job):
    ranks = job(FLEET_START_TIMEOUT="15")
    ranks.start(0, MEET, FLEET_SECRET="one")
    ranks.start(1, MEET, FLEET_SECRET="another")
    assert ranks.ends(1) == 1
    assert "secret" in ranks.output(1)
    assert ranks.ends(0) == 1
    assert "rank 1" in ranks.output(0)
    ranks.leaves_nothing()


def test_missing_secret(job):
    ranks = job(FLEET_START_TIMEOUT="15")
    ranks.start(0, MEET, FLEET_SECRET="one")
    ranks.start(1, MEET)
    assert ranks.ends(1) == 1
    assert "secret" in ranks.output(1)
    assert ranks.ends(0) == 1
    ranks.leaves_nothing()


@pytest.mark.parametrize("words", [b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096, b""])
def test_strangers_at_the_port(job, words):
    """Garbage, and somebody who connects and says nothing: nobody else notices."""
    ranks = job()
    host, port = ranks.endpoints[0].split(":")
    ranks.start(0, MEET)
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(words)
        ranks.start(1, MEET)
        assert [ranks.ends(rank) for rank in (0, 1)] == [0, 0]
    ranks.leaves_nothing()


# ---- under the launcher
def fleetrun(tmp_path, script, *flags, **env):
    (tmp_path / "train.py").write_text(script)
    return subprocess.run(
        [FLEETRUN, "--nproc_per_node=2", *flags, "train.py"],
        cwd=tmp_path,
        env={**clean_environment(), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_launcher_passes_an_exit_status_on(tmp_path):
    done = fleetrun(tmp_path, MEET + "if rank == 1: os._exit(3)\n" + CATCH)
    assert done.returncode == 3, done.stderr
    assert "rank 1" in done.stderr.replace("=", " ").replace("[", "")


def test_launcher_passes_the_status_of_sys_exit_on(tmp_path):
    """Also with a message that nobody waits for and nobody takes."""
    leave = "if rank == 1:\n    dist.irecv(x, 0)\n    sys.exit(3)\n"
    done = fleetrun(tmp_path, MEET + leave + CATCH, FLEET_TIMEOUT="600")
    assert done.returncode == 3, done.stderr
    assert "rank 1" in done.stderr.replace("=", " ").replace("[", "")


def test_launcher_shows_the_traceback(tmp_path):
    script = MEET + "if rank == 1: raise ValueError('bad row 17')\n" + FOR_EVER
    done = fleetrun(tmp_path, script)
    assert done.returncode == 1
    assert "bad row 17" in done.stderr and "Traceback" in done.stderr


def test_launcher_reports_a_signal(tmp_path):
    script = MEET + "if rank == 1: os.kill(os.getpid(), 9)\n" + FOR_EVER
    done = fleetrun(tmp_path, script)
    assert done.returncode == 128 + signal.SIGKILL
    assert "SIGKILL" in done.stderr


def test_interrupt_ends_a_waiting_rank(job):
    """^C reaches a rank that waits inside a collective."""
    ranks = job()
    ranks.start(0, MEET + CATCH)
    ranks.start(1, MEET + "time.sleep(60)\n")
    for rank in (0, 1):
        ranks.wait_for(rank, "READY")
    time.sleep(1)
    os.kill(ranks.processes[0].pid, signal.SIGINT)
    assert ranks.ends(0) != 0
    assert "KeyboardInterrupt" in ranks.output(0)
    ranks.processes[1].kill()
    ranks.ends(1)
    ranks.leaves_nothing()
