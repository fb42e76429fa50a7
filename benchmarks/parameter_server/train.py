# SPDX-License-Identifier: Apache-2.0
"""Trains a model for some steps and writes when they began and ended, as JSON: alone, or
as a worker of a job with servers.

    python train.py MODEL MODE STEPS FOLDER [INDEX COUNT]

MODEL is ctr or mlp, MODE local, async, sync or geo. Alone, COUNT processes begin
together. Times are those of the machine's monotonic clock, which all processes share. A
worker whose steps fail writes when that was, and why.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import paddle
from paddle import static

SLOTS, FEATURES, IDS, DIM, BATCH = 26, 13, 1_000_001, 16, 1000
WARM_UP = 10


def ctr():
    """26 ids, most of them rare, and 13 numbers; 400-400-400-2."""
    ids = static.data("ids", [None, SLOTS], "int64")
    features = static.data("features", [None, FEATURES], "float32")
    click = static.data("click", [None, 1], "int64")
    rows = static.nn.embedding(ids, [IDS, DIM], is_sparse=True)
    hidden = paddle.concat([paddle.reshape(rows, [-1, SLOTS * DIM]), features], axis=1)
    for _ in range(3):
        hidden = static.nn.fc(hidden, 400, activation="relu")
    share = static.nn.fc(hidden, 2, activation="softmax")
    return paddle.mean(static.nn.cross_entropy(share, click))


def ctr_batches(count, seed):
    rng = np.random.default_rng(seed)
    share = np.cumsum(1.0 / np.arange(1, IDS + 1) ** 1.05)
    for _ in range(count):
        drawn = rng.random((BATCH, SLOTS)) * share[-1]
        yield {
            "ids": np.searchsorted(share, drawn).astype("int64"),
            "features": rng.normal(size=(BATCH, FEATURES)).astype("float32"),
            "click": rng.integers(0, 2, (BATCH, 1)),
        }


def mlp():
    """MLP 32-128-128-2, tanh."""
    x = static.data("x", [None, 32], "float32")
    y = static.data("y", [None, 1], "int64")
    hidden = static.nn.fc(x, 128, activation="tanh")
    hidden = static.nn.fc(hidden, 128, activation="tanh")
    share = static.nn.fc(hidden, 2, activation="softmax")
    return paddle.mean(static.nn.cross_entropy(share, y))


def mlp_batches(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.random((128, 32)).astype("float32")
        yield {"x": x, "y": rng.integers(0, 2, (128, 1))}


MODELS = {"ctr": (ctr, ctr_batches), "mlp": (mlp, mlp_batches)}


def wait_for_others(folder, index, count):
    Path(folder, f"ready.{index}").touch()
    deadline = time.monotonic() + 120
    while len(list(Path(folder).glob("ready.*"))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError("the other processes did not come")
        time.sleep(0.001)


def time_steps(executor, loss, batches, steps, begin):
    """When the first step began and when each ended."""

    def run(i):
        executor.run(feed=batches[i % len(batches)], fetch_list=[loss])

    for i in range(WARM_UP):
        run(i)
    begin()
    times = [time.monotonic()]
    for i in range(steps):
        run(i)
        times.append(time.monotonic())
    return times


def main(model, mode, steps, folder, index=0, count=1):
    paddle.enable_static()
    build, make_batches = MODELS[model]
    optimizer = paddle.optimizer.SGD(learning_rate=0.01)
    fleet = None
    if mode != "local":
        from paddle.distributed import fleet

        fleet.init()
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = mode != "sync"
        if mode == "geo":
            strategy.a_sync_configs = {"k_steps": 100}
        optimizer = fleet.distributed_optimizer(optimizer, strategy)
    loss = build()
    optimizer.minimize(loss)
    if fleet is not None and fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())

    def begin():
        if fleet is None:
            wait_for_others(folder, index, count)
        else:
            fleet.barrier_worker()
            Path(folder, f"ready.{index}").touch()

    if fleet is not None:
        fleet.init_worker()
        index = fleet.worker_index()
    batches = list(make_batches(20, seed=index))
    try:
        times = time_steps(executor, loss, batches, int(steps), begin)
    except Exception as error:
        failure = [time.monotonic(), str(error)]
        Path(folder, f"failed.{index}").write_text(json.dumps(failure))
        raise
    Path(folder, f"times.{index}").write_text(json.dumps(times))
    if fleet is not None:
        fleet.stop_worker()


if __name__ == "__main__":
    main(*sys.argv[1:5], *map(int, sys.argv[5:7]))
