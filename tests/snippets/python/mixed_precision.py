# SPDX-License-Identifier: Apache-2.0
"""docs/howto/mixed-precision.md: the eager loop."""

import paddle

net = paddle.nn.Linear(8, 2)
optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=net.parameters())
loader = [(paddle.randn([4, 8]), paddle.zeros([4], "int64")) for _ in range(5)]
before = net.weight.numpy().copy()

# SNIPPET 1

assert (net.weight.numpy() != before).any()
