# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F821
"""docs/howto/datasets.md: training from files."""

import numpy as np
import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init(is_collective=True)
rng = np.random.default_rng(0)
files = ["part-0", "part-1"]
for name in files:
    with open(name, "w") as file:
        for _ in range(700):
            keys = rng.integers(0, 100, rng.integers(1, 4))
            dense = rng.random(13)
            words = [len(keys), *keys, 13, *dense, 1, keys[0] % 2]
            print(*words, file=file)

# SNIPPET 1

rows = paddle.fluid.layers.embedding(ids, [100, 8], is_sparse=True)
pooled = paddle.fluid.layers.sequence_pool(rows, "sum")
logits = paddle.static.nn.fc(paddle.concat([pooled, dense], 1), 2)
loss = paddle.nn.functional.cross_entropy(logits, label)
paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)
main_program = paddle.static.default_main_program()
exe = paddle.static.Executor()
exe.run(paddle.static.default_startup_program())

# SNIPPET 2

print(f"trained on {dataset.get_memory_data_size()} samples")
