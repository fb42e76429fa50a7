# SPDX-License-Identifier: Apache-2.0
"""The steps of eager_steps.py in the real Paddle; run by its own Python.

/path/to/python benchmarks/real_paddle.py
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import eager_steps  # noqa: E402
import numpy as np  # noqa: E402
import paddle  # noqa: E402
from measure import best_in_turns  # noqa: E402

if not hasattr(paddle, "base") and not hasattr(paddle, "fluid"):
    raise SystemExit("this Python has no real paddlepaddle")
for name, spec in eager_steps.MODELS.items():
    rng = np.random.default_rng(7)
    weights = eager_steps.make_weights(spec["layers"], rng)
    batch = eager_steps.make_batch(spec, rng)
    step = eager_steps.paddle_step(paddle, spec, weights, batch)
    repeat, turns = spec["steps"]
    (best,) = best_in_turns([step], repeat, turns)
    print(f"{name:34} paddle {paddle.__version__}: {best * 1e6:10.1f} us")
