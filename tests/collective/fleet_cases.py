# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_fleet_job.py do: `fleet_cases.py CASE ...`."""

import os
import sys

import numpy as np
import paddle
from paddle.distributed import fleet
from training import make, make_optimizer, state, step

STEPS = 20


def queries():
    fleet.init(is_collective=True)
    fleet.init(is_collective=True)  # again, and nothing is met twice
    me, n = fleet.worker_index(), fleet.worker_num()
    assert me == fleet.rank() == int(os.environ["PADDLE_TRAINER_ID"])
    assert n == fleet.nranks() == int(os.environ["PADDLE_TRAINERS_NUM"])
    assert fleet.local_rank() == me and fleet.node_num() == 1
    assert fleet.is_worker() and fleet.is_first_worker() == (me == 0)
    assert not fleet.is_server() and fleet.server_num() == 0
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"]
    assert fleet.worker_endpoints(to_string=True) == endpoints
    fleet.barrier_worker()


def util():
    fleet.init(is_collective=True)
    me, n = fleet.worker_index(), fleet.worker_num()
    mine = np.array([[me, -me], [1, n]], "float64")
    everybody = np.stack([[[r, -r], [1, n]] for r in range(n)])
    for mode in ("sum", "max", "min"):
        found = fleet.util.all_reduce(mine, mode)
        np.testing.assert_array_equal(found, getattr(everybody, mode)(axis=0))
    for given in (me, [me], np.int64(me)):
        assert fleet.util.all_reduce(given).sum() == n * (n - 1) / 2
    assert fleet.util.all_reduce(2**53 + me, "max") == 2**53 + n - 1  # as integers
    assert fleet.util.all_gather(me) == list(range(n))
    assert fleet.util.all_gather({"rank": me})[-1] == {"rank": n - 1}
    fleet.util.barrier("all")
    try:
        fleet.util.barrier("server")
    except ValueError as error:
        assert "no servers" in str(error)
    else:
        raise AssertionError("waited for servers")
    files = [f"part-{i}" for i in range(2 * n + 1)]
    assert sum(fleet.util.all_gather(fleet.util.get_file_shard(files)), []) == files
    fleet.util.print_on_rank("only here", 1)


def mixed_precision():
    """All leave out a step that is bad on one of them, with gradients that are exchanged
    and with those that are not."""
    fleet.init(is_collective=True)
    me, n = fleet.worker_index(), fleet.worker_num()
    paddle.seed(5)
    net = paddle.nn.Linear(4, 2)
    model = fleet.distributed_model(net)
    own = paddle.create_parameter([3], "float32")  # of no model
    shared = fleet.distributed_optimizer(
        paddle.optimizer.Adam(0.01, parameters=net.parameters())
    )
    alone = paddle.optimizer.SGD(0.01, parameters=[own])
    scaler = fleet.distributed_scaler(
        paddle.amp.GradScaler(init_loss_scaling=64.0, incr_every_n_steps=3)
    )
    for number in range(6):
        bad = number in (1, 4) and me == n - 1
        x = paddle.full([3, 4], np.inf if bad and number == 1 else 1.0)
        with paddle.amp.auto_cast(dtype="bfloat16"):
            out = model(x * (me + 1.0))
        scaler.scale(paddle.mean(out)).backward()
        scaler.scale(
            paddle.sum(own) * (np.inf if bad and number == 4 else 1.0)
        ).backward()
        before = [p.numpy() for p in (*net.parameters(), own)]
        scaler.step(shared)
        scaler.step(alone)
        scaler.update()
        shared.clear_grad()
        alone.clear_grad()
        after = [p.numpy() for p in (*net.parameters(), own)]
        kept = [np.array_equal(a, b) for a, b in zip(before, after)]
        # The second optimizer finds its own only when the first has stepped.
        expected = {1: [True] * 3, 4: [False, False, True]}.get(number, [False] * 3)
        assert kept == expected, (number, kept)
        scale = scaler.state_dict()["scale"].item()
        found = fleet.util.all_gather((scale, [a.tolist() for a in after[:2]]))
        assert all(one == found[0] for one in found), found
        assert scale == [64, 32, 32, 32, 16, 16][number], (number, scale)


def metrics():
    fleet.init(is_collective=True)
    me, n = fleet.worker_index(), fleet.worker_num()
    assert fleet.metrics.acc(np.array([me]), paddle.to_tensor([n])) == (n - 1) / 2 / n
    rng = np.random.RandomState(3)
    positive, negative = rng.randint(1, 9, (2, n, 1, 8))
    area = fleet.metrics.auc(positive[me], negative[me])

    class Alone:
        def all_reduce(self, input, mode):
            return input

    whole = positive.sum(0), negative.sum(0)
    assert area == fleet.metrics.auc(*whole, util=Alone())


def train(kind, optimizer, out):
    strategy = fleet.DistributedStrategy()
    strategy.sync_batch_norm = True
    strategy.fuse_grad_size_in_MB = 1
    fleet.init(is_collective=True, strategy=strategy)
    me, n = fleet.worker_index(), fleet.worker_num()
    # Each rank starts elsewhere; rank 0's start counts. The optimizer is made from
    # the layer, before there is a distributed model.
    layer = make(kind, seed=7 + me)
    rule = fleet.distributed_optimizer(make_optimizer(optimizer, layer))
    model = fleet.distributed_model(layer)
    for number in range(STEPS):
        step(model, rule, kind, number, me, n)
    rule.set_lr(0.5)
    assert rule.get_lr() == 0.5
    names = fleet.util.all_gather(sorted(rule.state_dict()))
    assert names == [names[0]] * n
    if me == 0:
        np.savez(out, **state(model))


def user_defined():
    """Started by hand: the endpoints from the script, and nothing from a launcher."""
    os.close(int(os.environ.pop("FLEET_LISTEN_FD")))
    user_defined_with_a_socket()


def user_defined_with_a_socket():
    """A launcher holds the port for this process, whose script says the rest."""
    index = int(os.environ["PADDLE_TRAINER_ID"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    for name in list(os.environ):
        if name.startswith("PADDLE_"):
            del os.environ[name]
    fleet.init(
        fleet.UserDefinedRoleMaker(
            is_collective=True, current_id=index, worker_endpoints=endpoints
        )
    )
    assert fleet.worker_index() == paddle.distributed.get_rank() == index
    assert paddle.distributed.get_world_size() == len(endpoints)
    assert fleet.util.all_gather(index) == list(range(len(endpoints)))


def another_role():
    """A process that met others cannot become somebody else."""
    fleet.init(is_collective=True)
    endpoints = fleet.worker_endpoints()
    other = fleet.UserDefinedRoleMaker(
        is_collective=True,
        current_id=(fleet.worker_index() + 1) % len(endpoints),
        worker_endpoints=endpoints,
    )
    try:
        fleet.init(other)
    except ValueError as error:
        assert "cannot become" in str(error)
    else:
        raise AssertionError("two roles in one process")
    assert fleet.util.all_gather(fleet.worker_index()) == list(range(len(endpoints)))


def static():
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=True))
    assert fleet.util.all_reduce(1) == fleet.worker_num()


def role_maker_alone():
    """Without fleet.init, a role maker meets the others when it has to."""
    role = fleet.PaddleCloudRoleMaker(is_collective=True)
    role._barrier("worker")
    assert role._all_gather(role._worker_index()) == list(range(role._worker_num()))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
