# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_parallel_training.py do: `parallel_cases.py CASE ...`."""

import sys
import time

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from training import (
    batch,
    digest,
    make,
    make_optimizer,
    share,
    state,
    step,
)

STEPS = 20


def same_everywhere(model):
    digests = []
    dist.all_gather_object(digests, digest(model))
    assert len(set(digests)) == 1, digests


def train(kind, optimizer, out):
    me, n = dist.get_rank(), dist.get_world_size()
    # Each rank starts elsewhere; rank 0's start counts.
    model = make(kind, seed=7 + me)
    if kind == "cnn":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    parallel = paddle.DataParallel(model)
    same_everywhere(model)
    rule = make_optimizer(optimizer, parallel)
    for number in range(STEPS):
        step(parallel, rule, kind, number, me, n)
    same_everywhere(model)
    if me == 0:
        np.savez(out, **state(parallel))


def no_sync(out):
    """Two halves of a share, the first without exchange, are the share."""
    me, n = dist.get_rank(), dist.get_world_size()
    model = paddle.DataParallel(make("mlp"))
    rule = make_optimizer("SGD", model)
    for number in range(STEPS):
        x, y = (share(a, me, n) for a in batch("mlp", number))
        half = len(x) // 2
        with model.no_sync():
            loss = nn.functional.mse_loss(model(x[:half]), y[:half]) / 2
            loss.backward()
        alone = model._layers.first.weight.grad.numpy()
        grads = []
        dist.all_gather_object(grads, alone)
        assert not np.array_equal(grads[0], grads[1])
        loss = nn.functional.mse_loss(model(x[half:]), y[half:]) / 2
        loss.backward()
        rule.step()
        rule.clear_grad()
    same_everywhere(model)
    if me == 0:
        np.savez(out, **state(model))


def branches():
    """A parameter that only some ranks reach has the mean; one that none reaches
    has no gradient."""
    me, n = dist.get_rank(), dist.get_world_size()
    net = make("branches")
    model = paddle.DataParallel(net)
    x = paddle.ones([2, 10])
    for _ in range(3):
        model(x, left=me == 0, right=True).mean().backward()
        np.testing.assert_allclose(net.left.weight.grad.numpy(), 1 / n, rtol=1e-6)
        np.testing.assert_allclose(net.right.weight.grad.numpy(), 1, rtol=1e-6)
        assert net.never.weight.grad is None
        for parameter in net.parameters():
            parameter.clear_grad()
    # A frozen parameter is no parameter of the exchange, but equal at the start.
    net = nn.Linear(3, 3)
    net.weight.stop_gradient = True
    model = paddle.DataParallel(net)
    same_everywhere(net)
    model(paddle.ones([1, 3])).sum().backward()
    assert net.weight.grad is None
    np.testing.assert_allclose(net.bias.grad.numpy(), 1)


def join(out):
    """Rank r has 3 + 2 r batches."""
    me, n = dist.get_rank(), dist.get_world_size()
    model = paddle.DataParallel(make("mlp"))
    rule = make_optimizer("SGD", model)
    with model.join():
        for number in range(3 + 2 * me):
            step(model, rule, "mlp", number, me, n)
    same_everywhere(model)
    if me == 0:
        np.savez(out, **state(model))
    # The ranks are in step again.
    step(model, rule, "mlp", 0, me, n)
    same_everywhere(model)


def keeps():
    """What the wrapper must not change."""
    me, n = dist.get_rank(), dist.get_world_size()
    net = make("mlp", seed=me)
    before = net.parameters()
    names = list(net.state_dict())
    model = paddle.DataParallel(net, comm_buffer_size=1, last_comm_buffer_size=0.001)
    assert all(a is b for a, b in zip(model.parameters(), before))
    assert list(model.state_dict()) == names
    x = paddle.ones([2, 10])
    loss = model(x).mean()
    assert model.scale_loss(loss) is loss
    loss.backward()
    grad = net.first.weight.grad.numpy()
    model.apply_collective_grads()
    np.testing.assert_array_equal(net.first.weight.grad.numpy(), grad)
    net.clear_gradients()
    # Gradients of other functions than the model's are this rank's own.
    y = paddle.to_tensor([float(me)], stop_gradient=False)
    (y * y).backward()
    assert y.grad.item() == 2 * me
    # Two forwards before one backward are one step.
    (model(x).mean() + model(2 * x).mean()).backward()
    same = [net.first.weight.grad.numpy()]
    dist.all_gather_object(same, same[0])
    np.testing.assert_array_equal(same[0], same[1])
    # Paddle 1.x.
    from paddle.fluid.dygraph import parallel as old

    assert old.prepare_context().nranks == n
    assert old.DataParallel is paddle.DataParallel


def different():
    """Models that differ are an error that names the parameter."""
    me = dist.get_rank()
    try:
        paddle.DataParallel(nn.Linear(3 + me, 2))
    except RuntimeError as error:
        assert "weight" in str(error), error
        print("RAISED", error)
        return
    raise AssertionError("no error")


def dies():
    """A rank ends in the middle of training."""
    me, n = dist.get_rank(), dist.get_world_size()
    model = paddle.DataParallel(make("mlp"))
    rule = make_optimizer("SGD", model)
    for number in range(10):
        if number == 5 and me == n - 1:
            raise ValueError("enough")
        step(model, rule, "mlp", number, me, n)


def waits():
    """Rank 0 waits in backward for one that is late, until ^C."""
    model = paddle.DataParallel(make("mlp"))
    loss = model(paddle.ones([2, 10])).mean()
    if dist.get_rank() == 0:
        print("WAITING", flush=True)
        loss.backward()
    else:
        time.sleep(60)


def loader():
    """Workers of a DataLoader are no ranks, and end with theirs."""
    x, y = batch("mlp", 0)

    class Samples(paddle.io.Dataset):
        def __getitem__(self, i):
            return x[i], y[i]

        def __len__(self):
            return len(x)

    model = paddle.DataParallel(make("mlp"))
    rule = make_optimizer("SGD", model)
    samples = Samples()
    sampler = paddle.io.DistributedBatchSampler(samples, 4, shuffle=True)
    for epoch in range(2):
        for a, b in paddle.io.DataLoader(samples, batch_sampler=sampler, num_workers=2):
            nn.functional.mse_loss(model(a), b).backward()
            rule.step()
            rule.clear_grad()
    same_everywhere(model)


if __name__ == "__main__":
    dist.init_parallel_env()
    globals()[sys.argv[1]](*sys.argv[2:])
    print("DONE", flush=True)
