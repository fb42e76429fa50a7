# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F821
"""README: the lines that make a script run on many."""

import paddle
import paddle.nn as nn

# SNIPPET 1

paddle.seed(7)
net, loss_fn = nn.Linear(10, 1), nn.MSELoss()
adam = paddle.optimizer.Adam(learning_rate=0.001, parameters=net.parameters())

# SNIPPET 2

for step in range(3):
    x = paddle.randn([10, 10], "float32")
    loss = loss_fn(net(x), x.sum(axis=1, keepdim=True))
    loss.backward()
    adam.step()
    adam.clear_grad()
if fleet.is_first_worker():
    print(f"trained by {fleet.worker_num()} ranks")
