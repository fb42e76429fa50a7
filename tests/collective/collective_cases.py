# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_collectives.py do: `collective_cases.py CASE`."""

import datetime
import os
import sys
import tempfile
import threading
import time

import numpy as np
import paddle
import paddle.distributed as dist

FLOATS = ["float16", "float32", "float64"]
NUMBERS = ["uint8", "int8", "int16", "int32", "int64", *FLOATS]
SHAPES = [[1], [5], [3, 4], [1031], [64, 1024]]


def data(rank, dtype, shape):
    """Small whole numbers, which every type holds and adds exactly."""
    rng = np.random.RandomState(1000 + rank)
    return rng.randint(0, 4, shape).astype(dtype)


def everybody(dtype, shape):
    return [data(r, dtype, shape) for r in range(dist.get_world_size())]


def check(tensor, expected):
    assert tensor.dtype.name == str(expected.dtype), (tensor.dtype, expected.dtype)
    np.testing.assert_array_equal(tensor.numpy(), expected)


def reductions():
    me, n = dist.get_rank(), dist.get_world_size()
    ops = {
        dist.ReduceOp.SUM: lambda x: sum(x),
        dist.ReduceOp.MAX: lambda x: np.maximum.reduce(x),
        dist.ReduceOp.MIN: lambda x: np.minimum.reduce(x),
        dist.ReduceOp.PROD: lambda x: np.multiply.reduce(x),
        dist.ReduceOp.AVG: lambda x: sum(v.astype("f8") for v in x) / n,
    }
    for dtype in NUMBERS:
        for shape in SHAPES:
            all_data = everybody(dtype, shape)
            for op, combine in ops.items():
                if op == dist.ReduceOp.AVG and dtype not in FLOATS:
                    continue
                expected = combine(all_data).astype(dtype)
                tensor = paddle.to_tensor(data(me, dtype, shape))
                dist.all_reduce(tensor, op)
                check(tensor, expected)
                for dst in range(n):
                    tensor = paddle.to_tensor(data(me, dtype, shape))
                    dist.reduce(tensor, dst, op)
                    check(tensor, expected if me == dst else all_data[me])
                parts = [paddle.to_tensor(data(me, dtype, shape)) + i for i in range(n)]
                tensor = paddle.zeros(shape, dtype)
                dist.reduce_scatter(tensor, parts, op)
                check(
                    tensor,
                    combine([v + v.dtype.type(me) for v in all_data]).astype(dtype),
                )
    for value in (True, False):
        tensor = paddle.to_tensor([value and me == 0, True, False])
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        check(tensor, np.array([value, True, False]))
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        check(tensor, np.array([value, True, False]))
    half = paddle.to_tensor([1.0 + me, 0.5]).astype("bfloat16")
    dist.all_reduce(half)
    expected = [sum(1.0 + r for r in range(n)), 0.5 * n]
    np.testing.assert_array_equal(half.astype("float32").numpy(), expected)


def in_a_row():
    """Large calls of different kinds behind each other, with ranks that fall behind:
    no call writes where a slow rank still reads."""
    me = dist.get_rank()
    for _ in range(10):
        for size in (20000, 65536, 300000):
            all_data = everybody("float32", size)
            tensor = paddle.to_tensor(all_data[me])
            dist.all_reduce(tensor)
            check(tensor, sum(all_data))
            for call in (dist.reduce, dist.broadcast):
                tensor = paddle.to_tensor(all_data[me])
                call(tensor, 0)
            check(tensor, all_data[0])


def movements():
    me, n = dist.get_rank(), dist.get_world_size()
    for dtype in [*NUMBERS, "bool"]:
        for shape in SHAPES:
            all_data = everybody(dtype, shape)
            mine = paddle.to_tensor(data(me, dtype, shape))
            for root in range(n):
                tensor = mine.clone()
                dist.broadcast(tensor, root)
                check(tensor, all_data[root])
                got = []
                dist.gather(mine, got if me == root else None, root)
                for tensor, expected in zip(got, all_data):
                    check(tensor, expected)
                assert len(got) == (n if me == root else 0)
                parts = [paddle.to_tensor(v) for v in all_data]
                tensor = paddle.zeros(shape, dtype)
                dist.scatter(tensor, parts if me == root else None, root)
                check(tensor, all_data[me])
            got = []
            dist.all_gather(got, mine)
            for tensor, expected in zip(got, all_data):
                check(tensor, expected)
            assert len(got) == n
            keep = list(got)
            dist.all_gather(got, mine)  # into the tensors that are there
            assert all(a is b for a, b in zip(got, keep))
            sent = [paddle.to_tensor(np.roll(all_data[me], i)) for i in range(n)]
            got = []
            dist.alltoall(sent, got)
            for tensor, value in zip(got, all_data):
                check(tensor, np.roll(value, me))
            assert len(got) == n


def arrangements():
    """Tensors that are parts of others, transposed, or used elsewhere."""
    me, n = dist.get_rank(), dist.get_world_size()
    base = paddle.arange(12, dtype="float32").reshape([3, 4])
    turned = base.transpose([1, 0])
    dist.all_reduce(turned)
    np.testing.assert_array_equal(turned.numpy(), n * np.arange(12).reshape(3, 4).T)
    np.testing.assert_array_equal(base.numpy(), np.arange(12).reshape(3, 4))
    row = base[1]
    dist.all_reduce(row)
    np.testing.assert_array_equal(row.numpy(), n * np.arange(4, 8))
    np.testing.assert_array_equal(base.numpy(), np.arange(12).reshape(3, 4))
    layer = paddle.nn.Linear(2, 2)
    before = layer.weight
    dist.broadcast(layer.weight, 0)
    assert layer.weight is before and not before.stop_gradient and before.is_leaf
    rows = paddle.arange(4 * n, dtype="int64") + 100 * me
    out = paddle.zeros([4 * n], "int64")
    dist.alltoall_single(rows, out)
    expected = [100 * r + 4 * me + k for r in range(n) for k in range(4)]
    np.testing.assert_array_equal(out.numpy(), expected)
    # Rank r sends r + i + 1 rows to rank i.
    counts = [me + i + 1 for i in range(n)]
    rows = paddle.full([sum(counts), 2], float(me))
    out = paddle.zeros([sum(r + me + 1 for r in range(n)), 2])
    dist.alltoall_single(rows, out, counts, [r + me + 1 for r in range(n)])
    expected = [r for r in range(n) for _ in range(r + me + 1)]
    np.testing.assert_array_equal(out.numpy()[:, 0], expected)


def points():
    me, n = dist.get_rank(), dist.get_world_size()
    after, before = (me + 1) % n, (me - 1) % n
    for shape in ([1], [1000], [300, 1000]):
        sent = paddle.full(shape, float(me))
        came = paddle.zeros(shape)
        if me % 2 == 0 and me != n - 1 or n == 2 and me == 0:
            dist.send(sent, after)
            dist.recv(came, before)
        else:
            dist.recv(came, before)
            dist.send(sent, after)
        assert (came.numpy() == before).all()
        came = paddle.zeros(shape)
        tasks = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, after),
                dist.P2POp(dist.irecv, came, before),
            ]
        )
        for task in tasks:
            task.wait()
        assert (came.numpy() == before).all()
        # All send first and then receive, however large it is.
        came = paddle.zeros(shape)
        tasks = [dist.isend(sent, after), dist.irecv(came, before)]
        for task in tasks:
            assert task.wait() and task.is_completed()
        assert (came.numpy() == before).all()
    # Nobody waits for this message, but the barrier is behind it.
    came = paddle.zeros([1])
    if me == 0:
        dist.isend(paddle.full([1], 5.0), 1)
    if me == 1:
        dist.recv(came, 0)
        assert came.item() == 5
    dist.barrier()


def tasks():
    me, n = dist.get_rank(), dist.get_world_size()
    tensors = [paddle.full([1000], float(i + me)) for i in range(20)]
    started = [dist.all_reduce(t, sync_op=False) for t in tensors]
    for i, (task, tensor) in enumerate(zip(started, tensors)):
        task.wait()
        assert task.is_completed()
        assert (tensor.numpy() == n * i + sum(range(n))).all()
    tensor = paddle.ones([4])
    dist.all_reduce(tensor, use_calc_stream=False)
    dist.wait(tensor)
    assert (tensor.numpy() == n).all()
    got = []
    task = dist.all_gather(got, paddle.full([2], float(me)), sync_op=False)
    task.wait()
    assert [t.numpy()[0] for t in got] == list(range(n))
    # A direct call comes after what was started.
    tensor = paddle.ones([4])
    dist.all_reduce(tensor, sync_op=False)
    dist.all_reduce(tensor)
    assert (tensor.numpy() == n * n).all()
    # Nobody waits for this one: the end of the program does.
    dist.all_reduce(paddle.ones([4]), sync_op=False)


def objects():
    me, n = dist.get_rank(), dist.get_world_size()
    got = []
    dist.all_gather_object(got, {"rank": me, "text": "x" * (me * 1000)})
    assert got == [{"rank": r, "text": "x" * (r * 1000)} for r in range(n)]
    things = ["from", me, [1, 2]]
    dist.broadcast_object_list(things, n - 1)
    assert things == ["from", n - 1, [1, 2]]
    got = []
    dist.scatter_object_list(got, [f"for {r}" for r in range(n)] if me == 0 else None)
    assert got == [f"for {me}"]


def late():
    """A started call that fails because a rank is late says so, and who."""
    me = dist.get_rank()
    if me == 0:
        task = dist.all_reduce(paddle.ones([4]), sync_op=False)
        assert not task.wait(0.1) and not task.is_completed()
        for _ in range(2):
            try:
                task.wait()
            except TimeoutError as error:
                assert "rank 1" in str(error), error
            else:
                raise AssertionError("no error")
        make_mark("failed")
    else:
        await_mark("failed")


def groups():
    me, n = dist.get_rank(), dist.get_world_size()
    world = dist.get_group()
    assert world.id == 0 and world.ranks == list(range(n)) and world.rank == me
    last = dist.new_group([n - 1, 0])
    assert last.nranks == 2 and last.ranks == [n - 1, 0]
    assert last.get_group_rank(0) == 1 and last.get_group_rank(n) == -1
    assert last.is_member() == (me in (0, n - 1))
    assert dist.get_group(last.id) is last and dist.get_rank(last) == last.rank
    tensor = paddle.full([3], float(me))
    result = dist.all_reduce(tensor, group=last)
    assert result is None
    expected = n - 1 if last.is_member() else me
    assert (tensor.numpy() == expected).all()
    # Ranks in arguments are those of the job, results are in the group's order.
    got = []
    dist.all_gather(got, paddle.full([1], float(me)), group=last)
    assert [t.item() for t in got] == ([n - 1, 0] if last.is_member() else [])
    tensor = paddle.full([1], float(me))
    dist.broadcast(tensor, 0, group=last)
    assert tensor.item() == (0 if last.is_member() else me)
    if last.is_member() and n > 2:
        try:
            dist.broadcast(tensor, 1, group=last)
            raise AssertionError("rank 1 is not in the group")
        except ValueError as error:
            assert "src=1 is not in group" in str(error)
    dist.barrier(last)
    single = dist.new_group([me for me in [0]])
    dist.barrier(single)
    everybody_again = dist.new_group()
    tensor = paddle.ones([1])
    dist.all_reduce(tensor, group=everybody_again)
    assert tensor.item() == n
    assert dist.get_world_size(last) == 2
    assert "memory" in dist.get_backend() or "tcp" in dist.get_backend()


def identity():
    me, n = dist.get_rank(), dist.get_world_size()
    assert dist.is_initialized() and dist.init_parallel_env() is dist.get_group()
    env = dist.ParallelEnv()
    assert (env.rank, env.local_rank, env.nranks, env.world_size) == (me, me, n, n)
    assert env.current_endpoint == env.trainer_endpoints[me]
    assert len(env.trainer_endpoints) == n
    sampler = paddle.io.DistributedBatchSampler(range(4 * n), 2)
    seen = []
    dist.all_gather_object(seen, [i for batch in sampler for i in batch])
    assert sorted(sum(seen, [])) == list(range(4 * n))


def gloo(endpoint):
    """A second job beside the first, whose ranks meet elsewhere."""
    me, n = dist.get_rank(), dist.get_world_size()
    dist.gloo_init_parallel_env(me, n, endpoint)
    before = []
    if me == 0:
        time.sleep(0.5)
    dist.all_gather_object(before, time.time())
    dist.gloo_barrier()
    assert time.time() >= max(before)
    dist.gloo_release()
    dist.gloo_release()
    dist.barrier()


def mismatch():
    """Two ranks that make different calls are told both."""
    me = dist.get_rank()
    try:
        dist.all_reduce(paddle.ones([4 + me]))
    except RuntimeError as error:
        print("RAISED", error)
        for part in ("4 x float32", "5 x float32"):
            assert part in str(error), error
    else:
        raise AssertionError("no error")
    try:
        dist.barrier()
    except RuntimeError as error:
        print("STILL", error)
        return
    raise AssertionError("a broken communicator went on")


def forked():
    """A forked child is no rank."""
    me, n = dist.get_rank(), dist.get_world_size()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            dist.barrier()
        except RuntimeError as error:
            code = 0 if "forked from rank" in str(error) else 2
        if dist.get_rank() != me:
            code = 3
        sys.exit(code)  # with all that runs at exit
    assert os.waitpid(child, 0)[1] == 0
    tensor = paddle.ones([2])
    dist.all_reduce(tensor)
    assert (tensor.numpy() == n).all()


def mark_path(name):
    """A file that ranks of this job know, whatever their collectives do."""
    job = os.environ["PADDLE_TRAINER_ENDPOINTS"].replace(":", "-").replace(",", "_")
    return os.path.join(tempfile.gettempdir(), f"fleet-test-{job}-{name}")


def make_mark(name):
    open(mark_path(name), "w").close()


def await_mark(name):
    """Until another rank has made it. There is one waiter, which takes it away."""
    until = time.monotonic() + 50
    while not os.path.exists(mark_path(name)):
        assert time.monotonic() < until, name
        time.sleep(0.001)
    os.remove(mark_path(name))


def interrupt():
    """Rank 0 waits for one that never comes, until ^C."""
    if dist.get_rank() == 0:
        start = time.monotonic()
        try:
            print("WAITING", flush=True)
            dist.all_reduce(paddle.ones([4]))
        except KeyboardInterrupt:
            print("INTERRUPTED", time.monotonic() - start, flush=True)
            raise
    else:
        try:
            time.sleep(60)
            dist.all_reduce(paddle.ones([4]))
        except ConnectionError as error:
            print("TOLD", error, flush=True)


def threads():
    """Others run while a rank waits."""
    if dist.get_rank() == 0:

        def tick():
            for _ in range(10):
                time.sleep(0.01)
            make_mark("ticked")

        thread = threading.Thread(target=tick)
        thread.start()
        dist.barrier()
        thread.join()
    else:
        if dist.get_rank() == 1:
            await_mark("ticked")
        dist.barrier()


def polled():
    """Asking whether a message is completed makes it go on."""
    me = dist.get_rank()
    for size in (1, 1_000_000):
        tensor = paddle.full([size], float(me))
        if me == 0:
            await_mark(f"asked for {size}")
            task = dist.isend(tensor, 1)
        else:
            task = dist.irecv(tensor, 0)
            # Nobody sends yet: the question does not wait, nor does this.
            assert not task.is_completed() and not task.wait(0.01)
            dist.get_group()
            make_mark(f"asked for {size}")
        until = time.monotonic() + 50
        while not task.is_completed():
            assert time.monotonic() < until
            time.sleep(0.001)
        assert task.wait()
        assert (tensor.numpy() == 0).all()
        dist.barrier()


def again():
    """Leaves the job and begins another one, with other groups."""
    me, n = dist.get_rank(), dist.get_world_size()
    old = [dist.get_group(), dist.new_group([1, 0])]
    layer = paddle.nn.Linear(2, 2)
    model = paddle.DataParallel(layer)
    for round in range(3):
        if me == round % n:
            time.sleep(0.3)  # each is the last one to leave once
        task = dist.isend(paddle.full([2], 7.0), 1) if me == 0 else None
        if me == 1:
            came = paddle.zeros([2])
            dist.recv(came, 0)
            assert came.numpy()[0] == 7
        dist.destroy_process_group()
        assert task is None or task.is_completed()
        assert not dist.is_initialized()
        for group in old:
            try:
                dist.all_reduce(paddle.ones([2]), group=group)
                raise AssertionError("a group outlived its job")
            except RuntimeError as error:
                assert "has left" in str(error), error
        dist.init_parallel_env()
        assert dist.get_rank() == me and dist.get_world_size() == n
        tensor = paddle.full([2], float(me + 1))
        dist.all_reduce(tensor)
        assert tensor.numpy()[0] == n * (n + 1) / 2
        group = dist.new_group(list(reversed(range(n))))
        assert group.id == 1 and dist.get_group(1) is group
        dist.all_reduce(tensor, group=group)
        old += [dist.get_group(), group]
    # What was made in the first job is told, and does not wait for anybody.
    try:
        model(paddle.ones([1, 2])).sum().backward()
        raise AssertionError("a model outlived its job")
    except RuntimeError as error:
        assert "has left the job" in str(error), error


def starters():
    """Threads whose first calls start at the same time, over and over."""
    n = dist.get_world_size()
    for _ in range(30):
        group = dist.new_group()
        tensors = [paddle.ones([8]) for _ in range(4)]
        ready = threading.Barrier(len(tensors))
        tasks = []

        def start(tensor, group=group, ready=ready, tasks=tasks):
            ready.wait()
            tasks.append(dist.all_reduce(tensor, group=group, sync_op=False))

        threads = [threading.Thread(target=start, args=(t,)) for t in tensors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(task.wait() for task in tasks) and len(tasks) == len(tensors)
        assert all((t.numpy() == n).all() for t in tensors)


def impatient():
    """The timeout of a group, and not that of the job, ends its calls."""
    for bad in (0, -1, float("nan")):
        try:
            dist.new_group(timeout=bad)
            raise AssertionError("no error")
        except ValueError as error:
            assert "timeout" in str(error)
    seconds = dist.new_group(timeout=1)
    delta = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if dist.get_rank() == 0:
        for group, sync in ((seconds, True), (delta, False)):
            try:
                task = dist.all_reduce(paddle.ones([4]), group=group, sync_op=sync)
                task.wait()
                raise AssertionError("no error")
            except TimeoutError as error:
                assert "rank 1" in str(error), error
    dist.barrier()  # the group of all has time


def exits_with_messages():
    """Rank 1 ends with 3 and with messages that nobody answers."""
    dist.barrier()
    if dist.get_rank() == 1:
        dist.irecv(paddle.zeros([4]), 0)
        dist.isend(paddle.zeros([1_000_000]), 0)
        sys.exit(3)
    dist.barrier()


def fails():
    """The last rank raises; the others are told who."""
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        raise ValueError("this rank has had enough")
    dist.barrier()


def exits():
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        sys.exit(3)
    dist.barrier()


def leaves():
    """The last rank ends well before the others are done."""
    dist.barrier()
    if dist.get_rank() != dist.get_world_size() - 1:
        dist.barrier()


def sleeps():
    """For a test that kills a rank."""
    dist.barrier()
    print("READY", flush=True)
    if dist.get_rank() != 0:
        time.sleep(60)
    dist.barrier()


if __name__ == "__main__":
    dist.init_parallel_env()
    for case in sys.argv[1:]:
        name, *arguments = case.split("=")
        globals()[name](*arguments)
    print("DONE", flush=True)
