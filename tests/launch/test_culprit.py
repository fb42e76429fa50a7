# SPDX-License-Identifier: Apache-2.0
"""Of ranks that fail one after the other, the one that failed by itself is shown first,
with its message; the others failed because of it."""

import re

import pytest

# The culprit ends in one of these ways, the others are in a collective or come to one.
TRAIN = """\
import atexit, ctypes, os, signal, sys, time
import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank, x = dist.get_rank(), paddle.ones([1000])
dist.all_reduce(x)
if rank == int(sys.argv[1]):
    print("the culprit speaks", flush=True)
    {end}
while True:
    dist.all_reduce(x)
"""

ENDS = {
    "exception": ("raise ValueError('too warm')", 1, "ValueError: too warm"),
    # Its process stays for a while after it has failed.
    "slow": (
        "atexit.register(time.sleep, 1); raise ValueError('too warm')",
        1,
        "ValueError: too warm",
    ),
    "exit": ("sys.exit(5)", 5, "exit code 5"),
    "without good-bye": ("os._exit(6)", 6, "exit code 6"),
    "kill -9": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "SIGKILL"),
    "abort": ("os.abort()", 134, "SIGABRT"),
    "segfault": ("ctypes.string_at(0)", 139, "SIGSEGV"),
    "shapes": ("dist.all_reduce(paddle.ones([3]))", 1, "3 x float32"),
}


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize("way", ENDS)
def test_the_rank_that_failed_by_itself_is_shown_first(launcher, way, culprit):
    end, code, words = ENDS[way]
    launcher.write("t.py", TRAIN.format(end=end))
    done = launcher.run("--nproc_per_node=3", "t.py", str(culprit), OMP_NUM_THREADS="1")
    assert done.returncode == code, done.stderr
    shown = re.findall(r"^fleetrun: rank (\d) at .* failed: ", done.stderr, re.M)
    # All ranks fail by calls that do not fit together.
    assert way == "shapes" or shown[0] == str(culprit), done.stderr
    first = done.stderr[done.stderr.index("failed: ") :]
    assert words in first.partition("\nfleetrun: ")[0], done.stderr
    assert way == "shapes" or "the culprit speaks" in first
    launcher.assert_nothing_left()


def test_a_rank_that_leaves_early_is_named_by_those_that_need_it(launcher):
    """Nobody failed by itself, so the others' words are shown, and at once."""
    launcher.write("t.py", TRAIN.format(end="sys.exit(0)"))
    done = launcher.run("--nproc_per_node=3", "t.py", "1", OMP_NUM_THREADS="1")
    assert done.returncode == 1
    assert "rank 1 left before it" in done.stderr, done.stderr
    assert "join()" in done.stderr and "drop_last" in done.stderr


PLAIN = "import paddle\nprint(paddle.ones([2]).sum().item())\n"
MET = "import paddle.distributed as dist\ndist.init_parallel_env()\n"


def test_ranks_that_never_met_are_remarked(launcher):
    launcher.write("plain.py", PLAIN)
    launcher.write("met.py", MET)
    remark = "never met, so each ran the script for itself"
    assert remark in launcher.run("--nproc_per_node=2", "plain.py").stderr
    assert remark not in launcher.run("--nproc_per_node=2", "met.py").stderr
    assert remark not in launcher.run("--nproc_per_node=1", "plain.py").stderr
    assert remark not in launcher.run("--nproc_per_node=2", "true").stderr
