# SPDX-License-Identifier: Apache-2.0
"""What the workers of the tests do: `cases.py CASE ...`, under fleetrun or alone."""

import hashlib
import os
import signal
import sys

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import static
from paddle.distributed import fleet
from programs import BATCH, batch, build, make_optimizer, parameters, share

STEPS = 20


def start(kind, optimizer="SGD", strategy=None, **options):
    """The trained program's loss and an executor, after the startup program."""
    # Each worker starts elsewhere; worker 0's start counts.
    paddle.seed(7 + fleet.worker_index())
    loss = build(kind, **options)
    fleet.distributed_optimizer(make_optimizer(optimizer), strategy).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    return loss, exe


def same_everywhere():
    digest = hashlib.sha256()
    for name, value in parameters().items():
        digest.update(name.encode() + value.tobytes())
    digests = []
    dist.all_gather_object(digests, digest.hexdigest())
    assert len(set(digests)) == 1, digests


def my_share(kind, number):
    return share(batch(kind, number), fleet.worker_index(), fleet.worker_num())


def train(kind, optimizer, out, fuse="fuse"):
    strategy = fleet.DistributedStrategy()
    strategy.fuse_all_reduce_ops = fuse == "fuse"
    strategy.sync_batch_norm = True
    loss, exe = start(kind, optimizer, strategy)
    same_everywhere()
    for number in range(STEPS):
        (value,) = exe.run(feed=my_share(kind, number), fetch_list=[loss])
        print(f"step {number} loss {value}", flush=True)
    same_everywhere()
    types = [op.type for op in static.default_main_program().global_block().ops]
    buckets = types.count("c_allreduce_start")
    if fleet.worker_num() == 1:
        assert not any("allreduce" in t for t in types), types
        assert fleet._get_applied_graph_list() == []
    else:
        # Rows travel for themselves.
        fused = 2 if kind == "rows" else 1
        assert buckets == (fused if fuse == "fuse" else len(parameters())), buckets
        assert fleet._get_applied_graph_list() == ["GraphExecutionOptimizer"]
        assert fleet._final_strategy().fuse_all_reduce_ops == (fuse == "fuse")
    if fleet.worker_index() == 0:
        np.savez(out, **parameters())


def scaled(kind, optimizer, out):
    """In mixed precision, with a batch that one worker alone finds to be bad: all leave
    it out, and their scaling stays the same."""
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    strategy.amp_configs = {
        "init_loss_scaling": 1024.0,
        "incr_every_n_steps": 4,
        "decr_every_n_nan_or_inf": 1,
        "decr_ratio": 0.5,
    }
    loss, exe = start(kind, optimizer, strategy)
    (scaling,) = (
        v.name
        for v in static.default_main_program().list_vars()
        if v.name.startswith("loss_scaling") and v.persistable
    )
    expected = 1024.0
    for number in range(STEPS):
        feed = my_share(kind, number)
        is_bad = number in (0, 7)
        if is_bad and fleet.worker_index() == fleet.worker_num() - 1:
            feed["x"] = np.full_like(feed["x"], np.inf)
        before = parameters()
        (value,) = exe.run(feed=feed, fetch_list=[scaling])
        # Steps 1 to 4, and then four by four after step 7.
        expected *= 0.5 if is_bad else 2.0 if number in (4, 11, 15, 19) else 1.0
        assert value.item() == expected, (number, value, expected)
        after = parameters()
        kept = [n for n in after if np.array_equal(before[n], after[n])]
        assert kept == (list(after) if is_bad else []), (number, kept)
        same_everywhere()
    assert fleet._get_applied_meta_list() == ["AMPOptimizer"]
    if fleet.worker_index() == 0:
        np.savez(out, **parameters())


def merged(scaled, out):
    """Every second step updates, by the mean of two; with scaling, of two good ones."""
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 2, "avg": True}
    if scaled == "scaled":
        strategy.amp = True
        strategy.amp_configs = {"init_loss_scaling": 64.0}
    loss, exe = start("mlp", "Momentum", strategy)
    for number in range(STEPS):
        feed = my_share("mlp", number)
        bad = scaled == "scaled" and number == 5
        if bad and fleet.worker_index() == fleet.worker_num() - 1:
            feed["x"] = np.full_like(feed["x"], np.inf)
        before = parameters()
        exe.run(feed=feed, fetch_list=[loss])
        after = parameters()
        kept = [n for n in after if np.array_equal(before[n], after[n])]
        # The bad step counts for nothing.
        count = number + (1 if scaled != "scaled" or number < 5 else 0)
        updates = not bad and count % 2 == 0
        assert kept == ([] if updates else list(after)), (number, kept)
        same_everywhere()
    names = ["GradientMergeOptimizer", "AMPOptimizer"]
    assert fleet._get_applied_meta_list() == names[: 1 + (scaled == "scaled")]
    if fleet.worker_index() == 0:
        np.savez(out, **parameters())


def recomputed(out):
    """With checkpoints, which change no result."""
    strategy = fleet.DistributedStrategy()
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": ["fc_1.tmp_2"]}
    loss, exe = start("mlp", "Momentum", strategy)
    block = static.default_main_program().global_block()
    assert any(name.endswith("@AGAIN") for name in block.vars), list(block.vars)
    for number in range(STEPS):
        exe.run(feed=my_share("mlp", number), fetch_list=[loss])
    same_everywhere()
    if fleet.worker_index() == 0:
        np.savez(out, **parameters())


def uneven(out):
    """Shares of different sizes, and of one that changes: each is compiled anew, and
    the mean is that of the workers."""
    me = fleet.worker_index()
    loss, exe = start("mlp")
    for number in range(6):
        feed = batch("mlp", number)
        cut = 10 if number % 2 else 14
        mine = {k: a[:cut] if me == 0 else a[cut:] for k, a in feed.items()}
        exe.run(feed=mine, fetch_list=[loss])
    same_everywhere()
    if me == 0:
        np.savez(out, **parameters())


def evaluate(kind):
    """A clone for test has no collectives, so that one worker alone may run it."""
    strategy = fleet.DistributedStrategy()
    strategy.sync_batch_norm = True
    loss, exe = start(kind, "SGD", strategy)
    test = static.default_main_program().clone(for_test=True)
    types = [op.type for op in test.global_block().ops]
    assert not any(t.startswith(("c_", "sync_")) for t in types), types
    if fleet.worker_index() == 0:
        (before,) = exe.run(test, feed=batch(kind, 0), fetch_list=[loss.name])
    for number in range(10):
        exe.run(feed=my_share(kind, number))
    if fleet.worker_index() == 0:
        (after,) = exe.run(test, feed=batch(kind, 0), fetch_list=[loss.name])
        assert float(after) < float(before), (before, after)


def save(kind, folder):
    """Worker 0 saves what all have trained, and what it predicts."""
    strategy = fleet.DistributedStrategy()
    strategy.sync_batch_norm = True
    loss, exe = start(kind, "SGD", strategy)
    for number in range(3):
        exe.run(feed=my_share(kind, number))
    if not fleet.is_first_worker():
        return
    main = static.default_main_program()
    fleet.save_inference_model(exe, f"{folder}/model", ["x", "y"], [loss], main)
    fleet.save_persistables(exe, f"{folder}/values", main)
    test = main.clone(for_test=True)
    (value,) = exe.run(test, feed=batch(kind, 9), fetch_list=[loss.name])
    np.save(f"{folder}/expected.npy", value)


def load(kind, folder):
    """Without a job, what `save` saved."""
    import paddle.fluid as fluid

    exe = static.Executor(paddle.CPUPlace())
    program, feeds, fetches = fluid.io.load_inference_model(f"{folder}/model", exe)
    assert list(feeds) == ["x", "y"]
    (value,) = exe.run(program, feed=batch(kind, 9), fetch_list=fetches)
    np.testing.assert_allclose(value, np.load(f"{folder}/expected.npy"), rtol=1e-6)


def gradients():
    """What is fetched of a gradient is the mean over the workers."""
    loss, exe = start("mlp")
    name = static.default_main_program().all_parameters()[0].name + "@GRAD"
    (mine,) = exe.run(feed=my_share("mlp", 0), fetch_list=[name])
    all_of_them = []
    dist.all_gather_object(all_of_them, mine)
    for other in all_of_them:
        np.testing.assert_array_equal(mine, other)


def different_model():
    start("mlp", width=32 + fleet.worker_index())


def different_optimizer():
    loss, exe = start("mlp", ["SGD", "Momentum"][fleet.worker_index()])
    exe.run(feed=my_share("mlp", 0))


def different_setting():
    strategy = fleet.DistributedStrategy()
    strategy.lamb = True
    strategy.lamb_configs = {"lamb_weight_decay": 0.01 * (1 + fleet.worker_index())}
    loss, exe = start("mlp", "Adam", strategy)
    assert fleet._get_applied_meta_list() == ["LambOptimizer"]
    exe.run(feed=my_share("mlp", 0))


def dies(how):
    # The launcher ends the others soon; what counts is what they say themselves.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    loss, exe = start("mlp")
    for number in range(1000):
        if number == 5 and fleet.worker_index() == fleet.worker_num() - 1:
            if how == "raises":
                raise ValueError("enough")
            os.kill(os.getpid(), signal.SIGKILL)
        exe.run(feed=my_share("mlp", number % 4))


def waits():
    loss, exe = start("mlp")
    exe.run(feed=my_share("mlp", 0))
    if fleet.worker_index() == 1:
        signal.pause()
    print("WAITING", flush=True)
    exe.run(feed=my_share("mlp", 0))


def plain_ops():
    """Paddle's own collectives in a program."""
    me, n = fleet.worker_index(), fleet.worker_num()
    x = static.data("x", [4])
    block = static.default_main_program().global_block()
    outs = {}
    for kind in ("sum", "max", "min", "prod"):
        out = block.create_var(name=f"of_{kind}", shape=[4], dtype="float32")
        block.append_op(f"c_allreduce_{kind}", {"X": x}, {"Out": out}, {"ring_id": 0})
        outs[kind] = out
    exe = static.Executor()
    feed = {"x": np.full(4, me + 2, "float32")}
    values = exe.run(feed=feed, fetch_list=list(outs.values()))
    all_of_them = np.arange(2, n + 2)
    for kind, value in zip(outs, values):
        expected = getattr(all_of_them, kind)()
        np.testing.assert_array_equal(value, np.full(4, expected, "float32"))


def functions():
    """paddle.distributed's functions, given variables."""
    me, n = fleet.worker_index(), fleet.worker_num()
    x = static.data("x", [2, 3])
    summed, sent, parts = x + 0.0, x + 0.0, []
    dist.all_reduce(summed, dist.ReduceOp.SUM)
    dist.broadcast(sent, n - 1)
    dist.all_gather(parts, x)
    feed = {"x": np.full((2, 3), me + 1, "float32")}
    values = static.Executor().run(feed=feed, fetch_list=[summed, sent, *parts])
    expected = [n * (n + 1) / 2, n, *range(1, n + 1)]
    assert len(values) == len(expected)
    for value, number in zip(values, expected):
        np.testing.assert_array_equal(value, np.full((2, 3), number, "float32"))


def main(case, *arguments):
    assert BATCH % int(os.environ.get("PADDLE_TRAINERS_NUM", 1)) == 0
    paddle.enable_static()
    fleet.init(is_collective=True)
    globals()[case](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
