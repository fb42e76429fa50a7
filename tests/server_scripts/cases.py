# SPDX-License-Identifier: Apache-2.0
"""What the processes of the tests do: `cases.py CASE ...`, under fleetrun or alone."""

import os
import sys
import time

import numpy as np
import paddle
from paddle import static
from paddle.distributed import fleet
from programs import (
    BATCH,
    KEYS,
    batch,
    build,
    dense_parameters,
    make_optimizer,
    share,
)

STEPS = 20


def strategy_of(mode, durability=""):
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode in ("async", "geo")
    configs = {"lr_decay_steps": 1, "durability": durability}
    if mode == "geo":
        configs["k_steps"] = 4
    strategy.a_sync_configs = configs
    return strategy


class Model:
    """A program of the job, and an executor that is ready to run it. On a server it
    serves, and the process ends."""

    def __init__(
        self,
        kind,
        optimizer="SGD",
        mode="sync",
        load=None,
        only=None,
        durability="",
        **options,
    ):
        # Each worker starts elsewhere; worker 0's start counts.
        paddle.seed(7 + max(fleet.worker_index(), 0))
        self.loss, self.prediction = build(kind, **options)
        self.test = static.default_main_program().clone(for_test=True)
        self.kind, self.optimizer = kind, make_optimizer(optimizer)
        strategy = strategy_of(mode, durability)
        fleet.distributed_optimizer(self.optimizer, strategy)
        fleet.minimize(self.loss)
        if fleet.is_server():
            fleet.init_server(load, only and [only])
            fleet.run_server()
            sys.exit(0)
        self.exe = static.Executor(paddle.CPUPlace())
        self.exe.run(static.default_startup_program())

    def step(self, number):
        feed = share(batch(number), fleet.worker_index(), fleet.worker_num())
        (loss,) = self.exe.run(feed=feed, fetch_list=[self.loss])
        rate = self.optimizer._learning_rate
        # Servers follow what they cannot work out.
        followed = isinstance(rate, paddle.optimizer.lr.LambdaDecay)
        if hasattr(rate, "step") and (followed or fleet.server_num() == 0):
            rate.step()
        return loss.item()

    def evaluate(self, number=99):
        """The loss of the test program, and what it predicts, of a whole batch."""
        fetches = [self.loss, self.prediction]
        loss, out = self.exe.run(self.test, feed=batch(number), fetch_list=fetches)
        return loss.item(), out

    def values(self):
        """All parameters; the table as the servers have it."""
        values = dense_parameters()
        if self.kind == "dense":
            return values
        if fleet.server_num() == 0:
            table = static.global_scope().find_var("table").get_tensor()
            values["table"] = np.array(table)
        else:
            rows = fleet.fleet._training.worker.pull_rows("table", 0, KEYS)
            values["table"] = rows.numpy()
        return values


def set_dense(values):
    scope = static.global_scope()
    for name, value in values.items():
        if name != "table":
            scope.find_var(name).get_tensor().set(value)


# ---- training


def train(kind, optimizer, mode, initial, out, steps=STEPS):
    """Alone it begins where the workers began."""
    model = Model(kind, optimizer, mode)
    if fleet.server_num() == 0:
        set_dense(np.load(initial))
    elif fleet.is_first_worker():
        np.savez(initial, **dense_parameters())
    losses = [model.step(number % 4) for number in range(int(steps))]
    print("LOSS", np.mean(losses[:4]), np.mean(losses[-4:]), flush=True)
    if fleet.server_num():
        fleet.barrier_worker()
    if fleet.is_first_worker():
        np.savez(out, **model.values())
    stats = fleet.worker_stats()
    assert stats.get("steps", int(steps)) == int(steps), stats


def train_past_kills(durability, initial, out, go):
    """As train, with a pause in which servers are killed."""
    model = Model("sparse", "Adam", "sync", durability=durability)
    if fleet.is_first_worker():
        np.savez(initial, **dense_parameters())
    for number in range(STEPS):
        if number == STEPS // 2:
            print("READY", flush=True)
            wait_for_file(go)
        model.step(number % 4)
    fleet.barrier_worker()
    if fleet.is_first_worker():
        np.savez(out, **model.values())


def lose_updates(folder, go):
    """Five steps that are saved and five that are not, then a pause, and two more."""
    model = Model("sparse", "SGD", "async")
    worker = fleet.fleet._training.worker
    for number in range(10):
        if number == 5:
            worker.flush()
            fleet.barrier_worker()
            if fleet.is_first_worker():
                fleet.save_persistables(model.exe, folder)
            fleet.barrier_worker()
        model.step(number % 4)
    worker.flush()
    assert fleet.worker_stats()["lost_updates"] == 0
    print("READY", flush=True)
    wait_for_file(go)
    for number in range(2):
        model.step(number)
    worker.flush()
    print("LOST", fleet.worker_stats()["lost_updates"], flush=True)


def save_past_a_kill(kind, folder, go):
    """A server is killed in the middle of each of two saves."""
    model = Model(kind)
    for number in range(4):
        model.step(number)
    if fleet.is_first_worker():
        at = None

        class InTheCut:
            """The worker, which waits once for the test inside of a cut."""

            def __getattr__(self, name):
                nonlocal at
                if name == "pull_dense" and at is not None:
                    print(f"READY {at}", flush=True)
                    wait_for_file(f"{go}-{at}")
                    at = None
                return getattr(worker, name)

        training = fleet.fleet._training
        worker, training._worker = training._worker, InTheCut()
        before = model.values()
        at = "persistables"
        fleet.save_persistables(model.exe, os.path.join(folder, at))
        at = "inference"
        feeds, target = ["ids", "dense"], [model.prediction]
        fleet.save_inference_model(
            model.exe, os.path.join(folder, at), feeds, target, model.test
        )
        assert fleet.worker_stats()["server_restarts"] == 2
        training._worker = worker
        fleet.load_model(os.path.join(folder, "persistables"))
        for name, value in model.values().items():
            np.testing.assert_array_equal(value, before[name])
    fleet.barrier_worker()
    model.step(4)


def wait_for_file(path):
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def unequal(initial, out):
    """Worker 0 has 4 batches and then worker 1 has 3; nobody waits in vain."""
    model = Model("sparse", "Momentum")
    alone, me = fleet.server_num() == 0, fleet.worker_index()
    if alone:
        set_dense(np.load(initial))
    elif fleet.is_first_worker():
        np.savez(initial, **dense_parameters())
    for number in range(12):
        lacks = 0 if number in (4, 5) else 1 if number in (9, 10) else None
        if alone and lacks is not None:
            feed = share(batch(number), 1 - lacks, 2)
            model.exe.run(feed=feed, fetch_list=[model.loss])
        elif alone or lacks != me:
            model.step(number)
        if number == 5 and not alone:
            fleet.barrier_worker()
        if number == 10 and not alone:
            assert fleet.util.all_reduce(me) == 1
    if fleet.is_first_worker():
        np.savez(out, **model.values())


def save_then_go_on(kind, optimizer, initial, folder, out):
    """Ten steps, a save, and where ten more lead."""
    model = Model(kind, optimizer)
    if fleet.server_num() == 0:
        set_dense(np.load(initial))
    elif fleet.is_first_worker():
        np.savez(initial, **dense_parameters())
    for number in range(10):
        model.step(number)
    if fleet.server_num() and fleet.is_first_worker():
        fleet.save_persistables(model.exe, folder)
    for number in range(10, 20):
        model.step(number)
    if fleet.is_first_worker():
        np.savez(out, **model.values())


def go_on_from(kind, optimizer, folder, out):
    """The second ten steps, from a save."""
    model = Model(kind, optimizer, load=folder)
    for number in range(10, 20):
        model.step(number)
    if fleet.is_first_worker():
        np.savez(out, **model.values())


def delta(folder, out):
    """A base save, a step, a save of what changed, and what a server makes of both."""
    model = Model("sparse")
    model.step(0)
    if fleet.is_first_worker():
        fleet.save_persistables(model.exe, folder, mode=1)
    fleet.barrier_worker()
    model.step(1)
    if fleet.is_first_worker():
        fleet.save_persistables(model.exe, folder, mode=2)
        np.savez(out, **model.values())


def saves_meanwhile(mode, folder):
    """Each step of a worker takes 1 from its row of the table and from its weight; the
    last worker saves while the others train, and every save has them alike."""
    workers, me = fleet.worker_num(), fleet.worker_index()
    ids = static.data("ids", [None, 1], "int64")
    hot = static.data("hot", [None, workers], "float32")
    zero = paddle.nn.initializer.Constant(0.0)
    table, weight = (paddle.ParamAttr(n, initializer=zero) for n in ("table", "w"))
    rows = static.nn.sparse_embedding(ids, [KEYS, 1], param_attr=table)
    out = static.nn.fc(hot, 1, weight_attr=weight, bias_attr=False)
    loss = paddle.mean(paddle.reshape(rows, [-1, 1]) + out)
    fleet.distributed_optimizer(paddle.optimizer.SGD(1.0), strategy_of(mode))
    fleet.minimize(loss)
    if fleet.is_server():
        fleet.run_server()
        return
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    feed = {"ids": np.array([[me]]), "hot": np.eye(workers, dtype="float32")[[me]]}
    last, done = me == workers - 1, os.path.join(folder, "done")
    for number in range(8 if last else 1_000_000):
        exe.run(feed=feed, fetch_list=[loss])
        if not last and os.path.exists(done):
            break
        if not last:
            continue
        saved = os.path.join(folder, str(number))
        fleet.save_persistables(exe, saved, text=True)
        found = np.zeros(workers, "float32")
        texts = os.path.join(saved, "table_txt")
        for name in os.listdir(texts):
            for line in open(os.path.join(texts, name), encoding="utf8"):
                key, value = line.split()
                found[int(key)] = float(value)
        with open(os.path.join(saved, "w"), "rb") as file:
            weights = np.frombuffer(file.read()[-4 * workers :], "float32")
        np.testing.assert_array_equal(weights, found)
        assert found[me] < 0, found
    if last:
        open(done, "w").close()


def steps_while_files_are_written(kind, folder):
    """A step of worker 1 is acknowledged while worker 0 writes a file."""
    from paddle.distributed.fleet.base import served_files

    model = Model(kind, mode="async")
    fleet.barrier_worker()
    writing, stepped = (os.path.join(folder, name) for name in ("writing", "stepped"))
    if fleet.worker_index() == 1:
        for save in ("persistables", "dense", "inference"):
            wait_for_file(f"{writing}-{save}")
            model.step(0)
            fleet.fleet._training.worker.flush()
            open(f"{stepped}-{save}", "w").close()
        return

    class SlowWriter:
        """The core, in which the first file of each save waits for that step."""

        save = None

        def __getattr__(self, name):
            if name in ("save_tensors", "save_model") and self.save is not None:
                open(f"{writing}-{self.save}", "w").close()
                wait_for_file(f"{stepped}-{self.save}")
                self.save = None
            return getattr(core, name)

    core, slow = served_files._core, SlowWriter()
    served_files._core = slow
    slow.save = "persistables"
    fleet.save_persistables(model.exe, os.path.join(folder, "persistables"))
    slow.save = "dense"
    scope, program = static.global_scope(), static.default_main_program()
    fleet.save_dense_params(model.exe, os.path.join(folder, "d"), scope, program)
    slow.save = "inference"
    feeds = ["ids", "dense"]
    target = [model.prediction]
    fleet.save_inference_model(
        model.exe, os.path.join(folder, "i"), feeds, target, model.test
    )
    assert slow.save is None


def read_back(folder, out):
    model = Model("sparse", load=folder)
    np.savez(out, **model.values())


def save_alone(kind, folder, out):
    """One process without servers."""
    model = Model(kind)
    for number in range(5):
        model.step(number)
    paddle.fluid.io.save_persistables(model.exe, folder)
    np.savez(out, **model.values())


def begin_with(kind, folder, out, only=None):
    """Servers that begin with what one process saved, or with the table of it."""
    model = Model(kind, load=folder, only=only)
    expected = np.load(out)
    for name, value in model.values().items():
        same = np.array_equal(value, expected[name])
        assert same == (only is None or name == only), name


# ---- evaluation and inference


def evaluate():
    """A clone made before minimize sees what training does, and makes no rows."""
    model = Model("sparse")
    worker = fleet.fleet._training.worker
    assert worker.table_stats("table")["rows"] == 0
    first, _ = model.evaluate(0)
    assert worker.table_stats("table")["rows"] == 0
    for number in range(80):
        model.step(number % 2)
    seen = len(set(np.concatenate([batch(n)["ids"].ravel() for n in range(2)])))
    assert worker.table_stats("table")["rows"] == seen
    last, out = model.evaluate(0)
    assert last < first and out.shape == (BATCH, 1)
    after = static.default_main_program().clone(for_test=True)
    (again,) = model.exe.run(after, feed=batch(0), fetch_list=[model.prediction])
    np.testing.assert_allclose(again, out, rtol=1e-6)


def save_model(kind, folder, out):
    model = Model(kind)
    for number in range(10):
        model.step(number)
    fleet.barrier_worker()
    if fleet.is_first_worker():
        feeds = ["ids", "dense"]
        made = fleet.save_inference_model(
            model.exe, folder, feeds, [model.prediction], model.test
        )
        assert made == [model.prediction.name]
        fleet.save_persistables(model.exe, folder)
        np.save(out, model.evaluate()[1])


def run_model(folder, out):
    """A bounded model runs alone."""
    exe = static.Executor(paddle.CPUPlace())
    program, feeds, fetches = paddle.fluid.io.load_inference_model(folder, exe)
    feed = {name: batch(99)[name] for name in feeds}
    (predicted,) = exe.run(program, feed=feed, fetch_list=fetches)
    np.testing.assert_allclose(predicted, np.load(out), rtol=1e-6, atol=1e-7)


def infer(kind, folder, out):
    """Another job that only infers."""
    from paddle.distributed.fleet.utils.ps_util import DistributedInfer

    loss, prediction = build(kind)
    exe = static.Executor(paddle.CPUPlace())
    distributed = DistributedInfer()
    distributed.init_distributed_infer_env(exe, loss, dirname=folder)
    if fleet.is_server():
        return
    program = distributed.get_dist_infer_program()
    (predicted,) = exe.run(program, feed=batch(99), fetch_list=[prediction])
    np.testing.assert_allclose(predicted, np.load(out), rtol=1e-6, atol=1e-7)
    fleet.stop_worker()


# ---- tables


def entry():
    """A key that was asked for once has no row."""
    model = Model("sparse", entry=paddle.distributed.CountFilterEntry(2))
    worker = fleet.fleet._training.worker
    ids = np.array([[1, 1, 1], [2, 3, 4]])
    feed = {"ids": ids, "dense": batch(0)["dense"][:2], "label": batch(0)["label"][:2]}
    model.exe.run(feed=feed, fetch_list=[model.loss])
    rows = worker.pull_rows("table", 0, 5).numpy()
    assert rows[1].any() and not rows[[0, 2, 3, 4]].any(), rows
    model.exe.run(feed=feed, fetch_list=[model.loss])
    rows = worker.pull_rows("table", 0, 5).numpy()
    assert rows[1:].any(1).all() and not rows[0].any(), rows


def shows_and_clicks(mode):
    """Rows whose keys were shown seldom have no more than their first column."""
    ids = static.data("ids", [None, 3], "int64")
    label = static.data("label", [None, 1], "float32")
    static.data("show", [None, 1], "float32")
    entry = paddle.distributed.ShowClickEntry("show", "label")
    fill = paddle.nn.initializer.Constant(0.02)
    attr = paddle.ParamAttr(name="table", initializer=fill)
    rows = static.nn.sparse_embedding(ids, [KEYS, 4], entry=entry, param_attr=attr)
    out = static.nn.fc(paddle.reshape(rows, [-1, 12]), 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(out, label))
    fleet.distributed_optimizer(make_optimizer("SGD"), strategy_of(mode))
    fleet.minimize(loss)
    if fleet.is_server():
        fleet.run_server()
        return
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    worker = fleet.fleet._training.worker
    feed = {"ids": [[1, 2, 3], [1, 2, 3]], "label": [[1.0], [1.0]]}
    feed["show"] = [[1.0], [1.0]]
    feed = {name: np.array(value) for name, value in feed.items()}
    feed = {n: a if n == "ids" else a.astype("float32") for n, a in feed.items()}
    exe.run(feed=feed, fetch_list=[loss])
    worker.flush()
    rows = worker.pull_rows("table", 1, 4).numpy()
    assert rows[:, 0].all() and not rows[:, 1:].any(), rows
    for _ in range(10):
        exe.run(feed=feed, fetch_list=[loss])
    worker.flush()
    rows = worker.pull_rows("table", 1, 4).numpy()
    assert rows.all(), rows


def shrink():
    """Rows that nobody asks for go."""
    model = Model("sparse")
    worker = fleet.fleet._training.worker
    model.step(0)
    seen = len(set(batch(0)["ids"].ravel()))
    assert worker.table_stats("table")["rows"] == seen
    assert fleet.shrink(2) == 0
    assert fleet.shrink(2) == seen
    assert worker.table_stats("table")["rows"] == 0


def time_to_live(kind):
    """Rows that training no longer touches go, and those that it does stay."""
    model = Model(kind, mode="async", time_to_live=1)
    worker = fleet.fleet._training.worker
    model.step(0)
    worker.flush()
    seen = set(batch(0)["ids"].ravel())
    assert worker.table_stats("table")["rows"] == len(seen)
    kept = sorted(seen)[:12]  # of both servers
    feed = batch(0)
    feed["ids"] = np.resize(kept, feed["ids"].shape)
    deadline = time.monotonic() + 100
    while worker.table_stats("table")["rows"] > len(kept):
        assert time.monotonic() < deadline, worker.table_stats("table")
        model.exe.run(feed=feed, fetch_list=[model.loss])
        time.sleep(0.05)
    worker.flush()
    stats = worker.table_stats("table")
    assert stats["rows"] == len(kept)
    assert stats["expired"] == len(seen) - len(kept)
    learned = worker.pull_rows("table", 0, KEYS).numpy() != np.float32(0.02)
    assert sorted(np.flatnonzero(learned.any(1))) == kept
    fleet.stop_worker()


def files(folder):
    """What a save leaves, and load_model takes back."""
    model = Model("sparse")
    for number in range(5):
        model.step(number)
    fleet.save_persistables(model.exe, folder, text=True)
    saved = model.values()
    names = sorted(os.listdir(folder))
    for name in dense_parameters():
        assert name in names, names
    assert not any("table@" in name for name in names), names
    model.step(5)
    assert any((model.values()[n] != saved[n]).any() for n in saved)
    fleet.load_model(folder)
    for name, value in model.values().items():
        np.testing.assert_array_equal(value, saved[name])
    rows = fleet.save_cache_model(os.path.join(folder, "cache"))
    assert rows == worker_rows()
    target = os.path.join(folder, "dense")
    scope, program = static.global_scope(), static.default_main_program()
    one = next(iter(dense_parameters()))
    fleet.save_dense_params(model.exe, target, scope, program, [one])
    assert os.listdir(target) == [one]


def worker_rows():
    return fleet.fleet._training.worker.table_stats("table")["rows"]


def bad_ids():
    """An id outside of a bounded table is named, and harms nobody."""
    model = Model("bounded")
    feed = batch(0)
    feed["ids"][3, 1] = KEYS + 5
    try:
        model.exe.run(feed=feed, fetch_list=[model.loss])
    except ValueError as error:
        assert str(KEYS + 5) in str(error) and "table" in str(error), error
    else:
        raise AssertionError("the id was taken")
    model.step(1)


# ---- together


def together():
    me, count = fleet.worker_index(), fleet.worker_num()
    if fleet.is_server():
        fleet.run_server()
        return
    fleet.barrier_worker()
    util = fleet.util
    total = util.all_reduce(np.array([[me + 1, 10.5]]))
    np.testing.assert_array_equal(total, [[sum(range(1, count + 1)), 10.5 * count]])
    assert util.all_reduce(me, "max") == count - 1
    assert util.all_reduce([me + 1], "min").tolist() == [1]
    assert util.all_gather({"me": me}) == [{"me": i} for i in range(count)]
    util.barrier()
    np.testing.assert_array_equal(fleet.metrics.sum(np.ones(3)), np.full(3, count))
    big = util.all_gather(np.full(300_000, me))
    assert [array[0] for array in big] == list(range(count))


def older_together():
    """The older Fleet's workers wait for each other and add up."""
    from paddle.fluid.incubate.fleet.base import role_maker
    from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
        fleet as older,
    )

    role = role_maker.PaddleCloudRoleMaker()
    older.init(role)
    role.barrier_all()  # servers do not wait
    if older.is_server():
        older.run_server()
        return
    me, count = older.worker_index(), older.worker_num()
    total = np.zeros((2, 2))
    older.all_reduce_worker(np.full((2, 2), me + 1), total)
    np.testing.assert_array_equal(total, np.full((2, 2), sum(range(1, count + 1))))
    role.all_reduce_worker(np.full((2, 2), me + 1), total, mode="max")
    np.testing.assert_array_equal(total, np.full((2, 2), count))
    assert role.all_gather(me) == list(range(count))
    older.barrier_worker()
    older.stop_worker()


def before_and_after():
    """init_worker may come before or after the startup program, or twice."""
    loss, _ = build("dense")
    fleet.distributed_optimizer(make_optimizer("SGD"), strategy_of("async"))
    fleet.minimize(loss)
    if fleet.is_server():
        fleet.run_server()
        return
    exe = static.Executor(paddle.CPUPlace())
    if fleet.worker_index() == 0:
        fleet.init_worker()
    exe.run(static.default_startup_program())
    fleet.init_worker()
    losses = [exe.run(feed=batch(n), fetch_list=[loss])[0].item() for n in range(5)]
    assert losses[0] > 0
    fleet.stop_worker()
    fleet.stop_worker()
    try:
        exe.run(feed=batch(0), fetch_list=[loss])
    except Exception as error:
        print("AFTER STOP", error)
    else:
        raise AssertionError("a worker that stopped went on")


def two_models():
    """Two programs, minimized one after the other, over the same servers."""
    found = []
    for number in (0, 1):
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            x = static.data("x", [None, 2], "float32")
            loss = paddle.mean(static.nn.fc(x, 1) ** 2)
            fleet.distributed_optimizer(make_optimizer("SGD"), strategy_of("sync"))
            fleet.minimize(loss, startup)
        found.append((main, startup, loss))
    if fleet.is_server():
        fleet.run_server()
        return
    ids = [table.id for table in fleet.fleet._training.tables]
    assert len(set(ids)) == 4, ids
    exe = static.Executor(paddle.CPUPlace())
    for main, startup, loss in found:
        exe.run(startup)
        feed = {"x": np.ones((4, 2), "float32")}
        losses = [exe.run(main, feed, [loss])[0].item() for _ in range(5)]
        assert losses[-1] < losses[0], losses


def half_async():
    """By the older Fleet, which is where this mode has a name."""
    import paddle.fluid as fluid
    from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
    from paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler

    older = distribute_transpiler.fleet
    older.init(PaddleCloudRoleMaker())
    loss, _ = build("bounded")
    strategy = distribute_transpiler.StrategyFactory.create_half_async_strategy()
    optimizer = older.distributed_optimizer(fluid.optimizer.SGD(0.3), strategy)
    optimizer.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    if older.is_server():
        exe.run(older.main_program)  # the same as run_server
        return
    exe.run(older.startup_program)
    losses = []
    for number in range(100):
        feed = share(batch(number % 4), older.worker_index(), older.worker_num())
        losses.append(exe.run(older.main_program, feed=feed, fetch_list=[loss])[0])
    assert np.mean(losses[-4:]) < np.mean(losses[:4]), losses


# ---- started by mpirun


def say(line):
    """At once: what print() writes in pieces may lie between those of another rank."""
    os.write(1, f"{line}\n".encode())


def under_mpi():
    """Even ranks serve, odd ranks train, with the older Fleet."""
    import paddle.fluid as fluid
    from paddle.fluid.incubate.fleet.base.role_maker import MPISymetricRoleMaker
    from paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler

    older = distribute_transpiler.fleet
    older.init(MPISymetricRoleMaker())
    loss, _ = build("sparse")
    strategy = distribute_transpiler.StrategyFactory.create_sync_strategy()
    optimizer = older.distributed_optimizer(fluid.optimizer.SGD(0.3), strategy)
    optimizer.minimize(loss)
    if older.is_server():
        older.init_server()
        older.run_server()
        say(f"SERVED {older.server_index()}")
        return
    exe = fluid.Executor(fluid.CPUPlace())
    older.init_worker()
    exe.run(older.startup_program)
    for number in range(3):
        feed = share(batch(number), older.worker_index(), older.worker_num())
        exe.run(older.main_program, feed=feed, fetch_list=[loss])
    total = np.zeros(1)
    older.all_reduce_worker(np.ones(1), total)
    older.stop_worker()
    say(f"TRAINED {older.worker_index()} {total.item()}")


# ---- ends


def ends(how):
    model = Model("dense", mode="async")
    model.step(0)
    if fleet.worker_index() == 1:
        if how == "exception":
            raise ArithmeticError("worker 1 gave up")
        if how == "exit":
            sys.exit(3)
    model.step(1)


if __name__ == "__main__":
    paddle.enable_static()
    if sys.argv[1] not in ("under_mpi", "half_async", "older_together"):
        fleet.init()
    globals()[sys.argv[1]](*sys.argv[2:])
