# SPDX-License-Identifier: Apache-2.0
"""What data parallel costs: the step of two processes side by side that do not
synchronise, over the step of two ranks that do. 1 means that synchronising is free.

Both kinds of step run in the same two processes and take turns, so that the machine's
other guests disturb both alike. Turns are as short as can be, many of them, and the best
counts: who disturbs one core stops one process alone, but two ranks that synchronise.
torch's DDP over Gloo is measured the same way.

    python benchmarks/data_parallel.py             starts the two ranks itself
"""

import json
import sys
from pathlib import Path

import numpy as np
from eager_steps import MODELS, make_batch, make_weights
from measure import Row, run_two_ranks, seconds_of

WIDE = 1628  # three layers: 8 M parameters
WARM_UP = 3  # turns that do not count

CASES = {
    "LinearNet 10-10-1, Adam, batch 10": dict(steps=(20, 600), bar=0.80),
    "MLP 32-128-128-2 tanh, SGD, 128": dict(steps=(5, 600), bar=0.90),
    "CNN 32x32, Adam, batch 32": dict(steps=(2, 40), bar=0.97),
    "MLP of 8 M parameters, SGD, 16": dict(
        layers=[
            ("linear", WIDE, WIDE),
            ("relu",),
            ("linear", WIDE, WIDE),
            ("relu",),
            ("linear", WIDE, WIDE),
            ("relu",),
            ("linear", WIDE, 10),
        ],
        input=(16, WIDE),
        loss="cross_entropy",
        optimizer=("SGD", 0.01, None),
        steps=(2, 40),
        bar=0.85,
    ),
}


def spec_of(name):
    return {**MODELS.get(name, {}), **CASES[name]}


# ---- in a rank
class Ours:
    def __init__(self):
        import paddle
        import paddle.distributed as dist

        self.paddle, self.dist = paddle, dist
        dist.init_parallel_env()
        self.rank = dist.get_rank()

    def barrier(self):
        self.dist.barrier()

    def end(self):
        self.barrier()

    def step(self, spec, weights, batch, synchronise):
        from eager_steps import paddle_step

        wrap = self.paddle.DataParallel if synchronise else lambda model: model
        return paddle_step(self.paddle, spec, weights, batch, wrap)


class Torch:
    def __init__(self):
        import torch

        torch.set_num_threads(1)
        self.torch = torch
        torch.distributed.init_process_group("gloo")
        self.rank = torch.distributed.get_rank()

    def barrier(self):
        self.torch.distributed.barrier()

    def end(self):
        # A rank that is still connected when the other goes may abort.
        self.barrier()
        self.torch.distributed.destroy_process_group()

    def step(self, spec, weights, batch, synchronise):
        from eager_steps import torch_step

        ddp = self.torch.nn.parallel.DistributedDataParallel
        wrap = ddp if synchronise else lambda model: model
        return torch_step(self.torch, spec, weights, batch, wrap)


def measure(side, spec):
    """Best seconds of a step alone and of one with synchronisation, this rank."""
    rng = np.random.default_rng(7)
    weights = make_weights(spec["layers"], rng)
    batch = make_batch(spec, np.random.default_rng(side.rank))
    steps = [side.step(spec, weights, batch, synchronise) for synchronise in (0, 1)]
    repeat, turns = spec["steps"]
    best = [float("inf"), float("inf")]
    for turn in range(-WARM_UP, turns):
        for i in (0, 1) if turn % 2 else (1, 0):
            side.barrier()
            seconds = seconds_of(steps[i], repeat)
            if turn >= 0:
                best[i] = min(best[i], seconds)
    return best


def rank_main(which, out):
    side = {"ours": Ours, "torch": Torch}[which]()
    results = {name: measure(side, spec_of(name)) for name in CASES}
    Path(out, str(side.rank)).write_text(json.dumps(results))
    side.end()


# ---- the driver
def start(which):
    """Runs the two ranks; for each case the mean over them of both times."""
    ranks = run_two_ranks(__file__, which)
    return {name: np.mean([r[name] for r in ranks], axis=0) for name in CASES}


def run():
    torch, ours = start("torch"), start("ours")
    rows = []
    for name in CASES:
        alone, together = ours[name] * 1e6
        rows.append(
            Row(
                f"two ranks: {name}",
                together,
                alone,
                "us",
                1 / CASES[name]["bar"],
                peer_name="unsynchronised",
            )
        )
        rows[-1].note = (
            f"keeps {alone / together:.2f} of the speed (bar >= "
            f"{CASES[name]['bar']:.2f}); torch DDP keeps "
            f"{torch[name][0] / torch[name][1]:.2f}"
        )
    return rows


if __name__ == "__main__":
    if len(sys.argv) == 3:
        rank_main(*sys.argv[1:])
    else:
        for row in run():
            print(row)
