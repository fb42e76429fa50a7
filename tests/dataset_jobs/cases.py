# SPDX-License-Identifier: Apache-2.0
"""What the processes of the tests do: `cases.py CASE FOLDER ...`, under fleetrun."""

import sys
from pathlib import Path

import numpy as np
import paddle
from paddle import fluid, static
from paddle.distributed import InMemoryDataset, QueueDataset, fleet

EACH = 3000
KEYS = 100


def write_samples(path, begin, end):
    """Sample i: keys of which the first is i, and as many floats as keys."""
    with open(path, "w") as file:
        for i in range(begin, end):
            keys = " ".join(str(i + k * 7) for k in range(1 + i % 5))
            file.write(f"{1 + i % 5} {keys} 2 {i / 2} {-i}\n")


def read_samples(dataset):
    """The numbers of all samples, each checked."""
    numbers = []
    for feed in dataset._feeds(False):
        keys, lod = np.array(feed["keys"])[:, 0], feed["keys"].lod()[0]
        first = keys[np.array(lod[:-1])]
        floats = feed["floats"].numpy()
        assert (np.diff(lod) == 1 + first % 5).all()
        assert (floats[:, 0] == first / 2).all() and (floats[:, 1] == -first).all()
        numbers += first.tolist()
    return numbers


def shuffle(folder, is_collective):
    paddle.enable_static()
    fleet.init(is_collective=is_collective == "True")
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    if is_collective != "True":
        fleet.init_worker()
    me = fleet.worker_index()
    keys = static.data("keys", [None, 1], "int64", lod_level=1)
    floats = static.data("floats", [None, 2])
    path = Path(folder, f"samples-{me}")
    # Files have unequal numbers of samples: the first has none.
    write_samples(path, me * (me - 1) // 2 * EACH, me * (me + 1) // 2 * EACH)
    dataset = InMemoryDataset()
    dataset.init(batch_size=64, use_var=[keys, floats])
    dataset.set_filelist([path])
    dataset.load_into_memory()
    before = dataset.get_memory_data_size(fleet)
    for _ in range(2):  # what came is dealt again
        dataset.global_shuffle(fleet)
    assert dataset.get_memory_data_size(fleet) == before
    np.save(Path(folder, f"numbers-{me}.npy"), read_samples(dataset))
    if is_collective != "True":
        fleet.stop_worker()


def click_samples(path, seed, count=2000):
    rng = np.random.default_rng(seed)
    with open(path, "w") as file:
        for _ in range(count):
            ids = rng.integers(0, KEYS, rng.integers(1, 5))
            label = int(np.sum(ids % 2 * 2 - 1) > 0)
            file.write(f"{len(ids)} {' '.join(map(str, ids))} 1 {label}\n")


def train(folder, mode, thread):
    """A click model on servers, by threads."""
    paddle.enable_static()
    fleet.init()
    ids = static.data("ids", [None, 1], "int64", lod_level=1)
    label = static.data("label", [None, 1], "int64")
    rows = static.nn.sparse_embedding(ids, [KEYS, 8])
    pooled = fluid.layers.sequence_pool(rows, "sum")
    predicted = static.nn.fc(pooled, 2, activation="softmax")
    loss = paddle.mean(static.nn.cross_entropy(predicted, label))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != "sync"
    if mode == "geo":
        strategy.a_sync_configs = {"k_steps": 4}
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.2), strategy)
    optimizer.minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    fleet.init_worker()
    me = fleet.worker_index()
    path = Path(folder, f"clicks-{me}")
    click_samples(path, me, 2000 + 130 * me)  # some have more batches
    dataset = QueueDataset()
    dataset.init(batch_size=50, use_var=[ids, label])
    dataset.set_filelist([path])
    for _ in range(20 if mode == "sync" else 6):  # a step of sync joins the batches
        executor.train_from_dataset(
            static.default_main_program(), dataset, thread=int(thread)
        )
    fleet.barrier_worker()
    dense = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
    np.save(Path(folder, f"dense-{me}.npy"), dense)
    losses = []
    test = static.default_main_program().clone(for_test=True)
    for feed in dataset._feeds(False):
        losses += executor.run(test, feed=feed, fetch_list=[loss])
    executor.infer_from_dataset(dataset=dataset, fetch_list=[loss], print_period=10)
    after = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
    assert (after == dense).all()
    np.save(Path(folder, f"loss-{me}.npy"), np.mean(losses))
    fleet.barrier_worker()
    fleet.stop_worker()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
