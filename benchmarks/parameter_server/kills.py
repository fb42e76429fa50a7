# SPDX-License-Identifier: Apache-2.0
"""A job in Python under fleetrun whose worker kills its servers, one after the other:
`kills.py FOLDER KILLS`. Writes how long after each kill the next push to both servers
was acknowledged, in seconds, to FOLDER/kills."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed import fleet

ROWS, BATCH = 100_000, 500
folder, kills = Path(sys.argv[1]), int(sys.argv[2])

paddle.enable_static()
fleet.init()
ids = paddle.static.data("ids", [None, 1], "int64")
rows = paddle.static.nn.sparse_embedding(ids, size=[ROWS, 16])
loss = paddle.mean(paddle.static.nn.fc(rows, 1, activation="sigmoid"))
strategy = fleet.DistributedStrategy()
strategy.a_sync_configs = {"durability": "log"}
fleet.distributed_optimizer(paddle.optimizer.Adam(1e-3), strategy).minimize(loss)

if fleet.is_server():
    (folder / f"pid.{fleet.server_index()}").write_text(str(os.getpid()))
    fleet.init_server()
    fleet.run_server()
    sys.exit()

exe = paddle.static.Executor()
exe.run(paddle.static.default_startup_program())
fleet.init_worker()
random = np.random.default_rng(1)


def push(chosen):
    """A step, and the acknowledgements of what it sent."""
    exe.run(feed={"ids": chosen.reshape(-1, 1)}, fetch_list=[loss])
    fleet.fleet._training.worker.flush()


for begin in range(0, ROWS, 10_000):
    push(np.arange(begin, begin + 10_000))
seconds = []
for number in range(kills):
    for _ in range(20):
        push(random.integers(0, ROWS, BATCH))
    pid = int((folder / f"pid.{number % fleet.server_num()}").read_text())
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    push(random.integers(0, ROWS, BATCH))
    seconds.append(time.monotonic() - killed)
(folder / "kills").write_text(json.dumps(seconds))
fleet.stop_worker()
