# SPDX-License-Identifier: Apache-2.0
"""docs/howto/train-with-servers.md: a job that infers with what the other saved."""

import numpy as np
import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init()
ids = paddle.static.data("ids", [None, 1], "int64")
label = paddle.static.data("label", [None, 1], "float32")
rows = paddle.static.nn.sparse_embedding(ids, size=[1 << 40, 16])
out = paddle.static.nn.fc(rows, 1, activation="sigmoid")
loss = paddle.mean(paddle.nn.functional.square_error_cost(out, label))
test_program = paddle.static.default_main_program().clone(for_test=True)
exe = paddle.static.Executor()
feed = {"ids": np.arange(4)[:, None], "label": np.zeros((4, 1), "float32")}

# SNIPPET 1
