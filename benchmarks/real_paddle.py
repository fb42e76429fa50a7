# SPDX-License-Identifier: Apache-2.0
"""The steps of eager_steps.py in the real Paddle; run by its own Python.

/path/to/python benchmarks/real_paddle.py

With --static and the name of a step of static_steps.py: that step as a program; prints
its first losses and its best time in seconds as JSON, for static_steps.py.
"""

import json
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import eager_steps  # noqa: E402
import numpy as np  # noqa: E402
import paddle  # noqa: E402
import static_steps  # noqa: E402
from measure import best_in_turns  # noqa: E402

if not hasattr(paddle, "base") and not hasattr(paddle, "fluid"):
    raise SystemExit("this Python has no real paddlepaddle")


def make(spec, make_step):
    rng = np.random.default_rng(7)
    weights = eager_steps.make_weights(spec["layers"], rng)
    return make_step(paddle, spec, weights, eager_steps.make_batch(spec, rng))


def static_step(name):
    spec = static_steps.MODELS[name]
    step = make(spec, static_steps.static_step)
    paddle.enable_static()  # its executor wants that also to run
    losses = [float(np.ravel(step())[0]) for _ in range(static_steps.PEER_LOSSES)]
    (best,) = best_in_turns([step], *spec["steps"])
    version = f"paddle {paddle.__version__}"
    print(json.dumps({"losses": losses, "seconds": best, "name": version}))


def eager_step(name, spec):
    repeat, turns = spec["steps"]
    (best,) = best_in_turns([make(spec, eager_steps.paddle_step)], repeat, turns)
    print(f"{name:34} paddle {paddle.__version__}: {best * 1e6:10.1f} us")


if sys.argv[1:2] == ["--static"]:
    static_step(sys.argv[2])
else:
    for name, spec in eager_steps.MODELS.items():
        eager_step(name, spec)
