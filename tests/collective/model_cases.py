# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_model_job.py do: `model_cases.py CASE ...`."""

import os
import sys

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

BATCH, EPOCHS = 3, 3


class Points(paddle.io.Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.x = rng.standard_normal((count, 4)).astype("float32")
        self.y = (self.x.sum(1, keepdims=True) > 0).astype("int64")

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __len__(self):
        return len(self.x)


def network():
    paddle.seed(7)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def alone(data, ranks, every):
    """The parameters after training by hand on what all ranks see in a step."""
    net = network()
    rule = paddle.optimizer.Momentum(0.1, parameters=net.parameters())
    loss = nn.CrossEntropyLoss()
    samplers = [
        paddle.io.DistributedBatchSampler(data, BATCH, ranks, rank, shuffle=True)
        for rank in range(ranks)
    ]
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for step, parts in enumerate(zip(*samplers)):
            rows = [i for part in parts for i in part]
            x, y = paddle.to_tensor(data.x[rows]), paddle.to_tensor(data.y[rows])
            loss(net(x), y).backward()
            if (step + 1) % every == 0 or step + 1 == len(samplers[0]):
                rule.step()
                rule.clear_grad()
    return [p.numpy() for p in net.parameters()]


def fit(folder, every):
    every = int(every)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    data, test = Points(24, 0), Points(10, 1)
    wanted = alone(data, ranks, every)
    net = network()
    model = paddle.Model(net)
    rule = paddle.optimizer.Momentum(0.1, parameters=net.parameters())
    model.prepare(rule, nn.CrossEntropyLoss(), paddle.metric.Accuracy())
    model.fit(
        data,
        test,
        batch_size=BATCH,
        epochs=EPOCHS,
        save_dir=folder,
        accumulate_grad_batches=every,
    )
    for ours, theirs in zip(net.parameters(), wanted):
        np.testing.assert_allclose(ours.numpy(), theirs, 1e-5, 1e-6)
    found = model.evaluate(test, batch_size=4, verbose=0)
    every = []
    dist.all_gather_object(every, found)
    assert len(every) == ranks and all(other == found for other in every)
    dist.barrier()
    if rank == 0:
        assert os.path.exists(os.path.join(folder, "final.pdparams"))
    print(f"rank {rank} is done")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
