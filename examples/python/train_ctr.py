# SPDX-License-Identifier: Apache-2.0
"""Trains a model that tells which of the shown advertisements will be clicked. Its
table of ids lives on parameter servers; alone, in this process. Examples are made up
here, so nothing has to be fetched:

    fleetrun --server_num 2 --worker_num 2 examples/python/train_ctr.py
    fleetrun --server_num 2 --worker_num 2 examples/python/train_ctr.py --mode sync
    python examples/python/train_ctr.py
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import paddle
from paddle import static
from paddle.distributed import fleet
from progress import Progress

SLOTS, FEATURES = 26, 13
IDS = 1_000_000  # few of them common, most of them rare


def examples(count, seed):
    """Ids [count, 26], features [count, 13] and clicks [count, 1]. Every id has a taste
    of its own, and the sum of tastes and features makes a click more or less likely."""
    rng = np.random.default_rng(seed)
    share = np.cumsum(1.0 / np.arange(1, IDS + 1) ** 1.05)
    ids = np.searchsorted(share, rng.random((count, SLOTS)) * share[-1])
    features = rng.normal(size=(count, FEATURES)).astype("float32")
    taste = ((ids * 2654435761) % 4093 / 4093 - 0.5) * 1.6
    score = taste.sum(1) + features[:, :4].sum(1) * 0.4 - 0.5
    clicks = rng.random(count) < 1 / (1 + np.exp(-score))
    return ids, features, clicks.astype("int64").reshape(-1, 1)


def network():
    ids = static.data("ids", [None, SLOTS], "int64")
    features = static.data("features", [None, FEATURES], "float32")
    click = static.data("click", [None, 1], "int64")
    rows = static.nn.sparse_embedding(
        ids,
        [IDS, 16],
        param_attr=paddle.ParamAttr(
            name="rows_of_ids", initializer=paddle.nn.initializer.Uniform(-0.01, 0.01)
        ),
    )
    hidden = paddle.concat([paddle.reshape(rows, [-1, SLOTS * 16]), features], axis=1)
    for size in (128, 64):
        hidden = static.nn.fc(hidden, size, activation="relu")
    share = static.nn.fc(hidden, 2, activation="softmax")
    loss = paddle.mean(static.nn.cross_entropy(share, click))
    return share, loss


def area_under_curve(scores, clicks):
    """How often a clicked example scores above one that was not."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    clicked = clicks.astype(bool)
    hits, others = clicked.sum(), (~clicked).sum()
    return (ranks[clicked].sum() - hits * (hits + 1) / 2) / (hits * others)


def strategy_of(mode):
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != "sync"
    if mode == "geo":
        strategy.a_sync_configs = {"k_steps": 20}
    return strategy


def train(args, share, loss, test):
    place = paddle.CPUPlace()
    executor = static.Executor(place)
    executor.run(static.default_startup_program())
    in_job = fleet.server_num() > 0
    if in_job:
        fleet.init_worker()

    worker, workers = fleet.worker_index(), max(fleet.worker_num(), 1)
    mine = [part[worker::workers] for part in examples(args.examples, seed=1)]
    names = ("ids", "features", "click")
    batches = [
        dict(zip(names, (part[k : k + args.batch] for part in mine)))
        for k in range(0, len(mine[0]) - args.batch + 1, args.batch)
    ]
    steps = args.epochs * len(batches)
    bar = Progress(steps, (workers * args.batch, "examples")) if worker == 0 else None
    losses, scores, clicks, auc = [], [], [], 0.5
    if in_job:
        fleet.barrier_worker()
    start = time.perf_counter()
    for _ in range(args.epochs):
        for batch in batches:
            cost, shares = executor.run(feed=batch, fetch_list=[loss, share])
            losses.append(float(cost[0]))
            scores.append(shares[:, 1])
            clicks.append(batch["click"][:, 0])
            if len(losses) % 20 == 0:
                auc = area_under_curve(
                    *(np.concatenate(x[-20:]) for x in (scores, clicks))
                )
            if bar is not None:
                behind = fleet.worker_stats().get("staleness", 0)
                bar.step(loss=losses[-1], auc=auc, behind=behind)
    if in_job:
        fleet.barrier_worker()
    seconds = time.perf_counter() - start

    if worker == 0:
        unseen = examples(20_000, seed=2)
        (shares,) = executor.run(
            test, feed=dict(zip(names, unseen)), fetch_list=[share.name]
        )
        report = {
            "speed": workers * steps * args.batch / seconds,
            "auc": float(area_under_curve(shares[:, 1], unseen[2][:, 0])),
            "losses": losses,
            "stats": fleet.worker_stats(),
        }
        print(
            f"{report['speed']:.0f} examples/s, AUC {report['auc']:.3f} on examples "
            "never seen"
        )
        if args.report:
            args.report.write_text(json.dumps(report))
    if in_job:
        fleet.stop_worker()


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--mode", choices=("sync", "async", "geo"), default="async")
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--report", type=Path, help="a file for the figures, as JSON")
    args = parser.parse_args()

    paddle.enable_static()
    paddle.seed(1)
    fleet.init()
    share, loss = network()
    test = static.default_main_program().clone(for_test=True)
    optimizer = fleet.distributed_optimizer(
        paddle.optimizer.SGD(args.rate), strategy_of(args.mode)
    )
    optimizer.minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        train(args, share, loss, test)


if __name__ == "__main__":
    main()
