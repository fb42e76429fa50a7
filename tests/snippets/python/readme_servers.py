# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F821
"""README: the lines that put tables on servers."""

import numpy as np
import paddle

paddle.enable_static()
ids = paddle.static.data("ids", [None, 1], "int64")
label = paddle.static.data("label", [None, 1], "int64")

# SNIPPET 1

hidden = paddle.static.nn.fc(paddle.reshape(rows, [-1, 16]), 128, activation="tanh")
logits = paddle.static.nn.fc(hidden, 2)
loss = paddle.nn.functional.cross_entropy(logits, label)

# SNIPPET 2

if fleet.is_worker():
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    rng = np.random.default_rng(fleet.worker_index())
    for step in range(5):
        keys = rng.integers(0, 1000, (128, 1))
        feed = {"ids": keys, "label": keys % 2}
        (value,) = exe.run(feed=feed, fetch_list=[loss])
    print(f"worker {fleet.worker_index()}: {value}")
