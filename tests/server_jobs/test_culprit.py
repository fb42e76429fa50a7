# SPDX-License-Identifier: Apache-2.0
"""Workers that fail because a server did, and servers that end because a worker did, are
never shown first: the process that failed by itself is, with its message."""

import re

import pytest

from tests.launch.launcher import Launcher

# The culprit ends after some steps, in one of the ways below; the others go on.
TRAIN = """\
import os, pathlib, signal, sys, threading, time
import numpy as np
import paddle
from paddle.distributed import fleet

culprit, number = sys.argv[2], int(sys.argv[3])
paddle.enable_static()
fleet.init()
ids = paddle.static.data("ids", [None, 1], "int64")
label = paddle.static.data("label", [None, 1], "float32")
rows = paddle.static.nn.sparse_embedding(ids, [1000, 4])
out = paddle.static.nn.fc(paddle.reshape(rows, [-1, 4]), 1)
loss = paddle.mean(paddle.nn.functional.square_error_cost(out, label))
strategy = fleet.DistributedStrategy()
strategy.a_sync = sys.argv[1] == "async"
fleet.distributed_optimizer(paddle.optimizer.SGD(0.01), strategy).minimize(loss)


def fail():
    print("the culprit speaks", flush=True)
    {end}


def fail_later():
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    fail()


if fleet.is_server():
    if (culprit, number) == ("server", fleet.server_index()):
        threading.Thread(target=fail_later, daemon=True).start()
    fleet.init_server()
    fleet.run_server()
else:
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    for step in range(1_000_000):
        keys = np.arange(step, step + 8)[:, None] % 1000
        exe.run(feed={{"ids": keys, "label": np.ones((8, 1), "float32")}})
        if step == 5:
            pathlib.Path("go").touch()
        if step == 8 and (culprit, number) == ("worker", fleet.worker_index()):
            fail()
"""

SERVER_ENDS = {
    "kill -9": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "SIGKILL"),
    "abort": ("os.abort()", 134, "SIGABRT"),
    "without good-bye": ("os._exit(6)", 6, "exit code 6"),
}
WORKER_ENDS = {
    "exception": ("raise ValueError('too warm')", 1, "ValueError: too warm"),
    **SERVER_ENDS,
}


@pytest.fixture
def launcher(tmp_path):
    made = Launcher(tmp_path)
    yield made
    made.end()


def check_first(launcher, mode, culprit, number, end, code, words):
    launcher.write("t.py", TRAIN.format(end=end))
    done = launcher.run(
        *("--server_num=2", "--worker_num=2", "t.py", mode, culprit, str(number)),
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == code, done.stderr
    shown = re.findall(r"^fleetrun: (\w+) (\d) at .* failed: ", done.stderr, re.M)
    assert shown[0] == (culprit, str(number)), done.stderr
    first = done.stderr[done.stderr.index("failed: ") :].partition("\nfleetrun: ")[0]
    assert words in first and "the culprit speaks" in first, done.stderr
    launcher.assert_nothing_left()


@pytest.mark.parametrize("mode, number", [("sync", 0), ("async", 1)])
@pytest.mark.parametrize("way", SERVER_ENDS)
def test_workers_that_lost_a_server_are_not_shown_first(launcher, way, mode, number):
    check_first(launcher, mode, "server", number, *SERVER_ENDS[way])


@pytest.mark.parametrize("mode, number", [("sync", 0), ("async", 1)])
@pytest.mark.parametrize("way", WORKER_ENDS)
def test_servers_that_lost_a_worker_are_not_shown_first(launcher, way, mode, number):
    check_first(launcher, mode, "worker", number, *WORKER_ENDS[way])
