# SPDX-License-Identifier: Apache-2.0
"""Eager training as a user writes it: fleet.init, distributed_optimizer and
distributed_model are all that makes it a job. Prints who it is and what it ends with.

usage: train.py [fail]      with `fail`, the last rank raises in the third step
"""

import hashlib
import sys

import paddle
from paddle import nn
from paddle.distributed import fleet


class LinearNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self._linear1 = nn.Linear(10, 10)
        self._linear2 = nn.Linear(10, 1)

    def forward(self, x):
        return self._linear2(self._linear1(x))


fleet.init(is_collective=True)
rank, size = fleet.worker_index(), fleet.worker_num()
paddle.seed(rank)  # ranks begin apart, and are made equal
layer = LinearNet()
adam = fleet.distributed_optimizer(
    paddle.optimizer.Adam(learning_rate=0.01, parameters=layer.parameters())
)
model = fleet.distributed_model(layer)

for step in range(20):
    inputs = paddle.randn([10, 10], "float32")
    labels = paddle.randn([10, 1], "float32")
    loss = nn.functional.mse_loss(model(inputs), labels)
    loss.backward()
    if sys.argv[1:] == ["fail"] and rank == size - 1 and step == 2:
        raise RuntimeError("the disk is full")
    adam.step()
    adam.clear_grad()

state = b"".join(p.numpy().tobytes() for p in layer.parameters())
print(f"rank {rank} of {size}: {hashlib.sha256(state).hexdigest()[:16]}", flush=True)
