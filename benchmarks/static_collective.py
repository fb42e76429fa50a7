# SPDX-License-Identifier: Apache-2.0
"""What collective training of a program costs: the step of two processes side by side
that do not synchronise, over the step of two ranks that do. 1 means that synchronising
is free. A step is Executor.run with feed and fetch.

Both kinds of step run in the same two processes and take turns, so that the machine's
other guests disturb both alike; turns are short and many, and the best counts. torch's
DDP over Gloo is measured the same way; the losses of its ranks and of ours must agree.

    python benchmarks/static_collective.py         starts the two ranks itself
"""

import json
import sys
from pathlib import Path

import numpy as np
from data_parallel import WARM_UP, Torch
from data_parallel import spec_of as eager_spec
from eager_steps import LOSS_TOLERANCE, make_batch, make_weights, paddle_parts
from measure import Row, run_two_ranks, seconds_of

CASES = {
    "MLP 32-128-128-2 tanh, SGD, 128": dict(steps=(30, 150), bar=0.85),
    "MLP of 8 M parameters, SGD, 16": dict(steps=(2, 40), bar=0.85),
}
COMPARED = 20  # losses of the first steps


def spec_of(name):
    return {**eager_spec(name), **CASES[name]}


# ---- in a rank
class Ours:
    def __init__(self):
        import paddle
        from paddle.distributed import fleet

        self.paddle, self.fleet = paddle, fleet
        paddle.enable_static()
        fleet.init(is_collective=True)
        self.rank = fleet.worker_index()

    def barrier(self):
        self.fleet.barrier_worker()

    def step(self, spec, weights, batch, synchronise):
        paddle, static = self.paddle, self.paddle.static
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            x = static.data("x", [None, *batch[0].shape[1:]], "float32")
            y = static.data("y", [None], "int64")
            model, loss_layer, optimizer = paddle_parts(paddle, spec)
            loss = loss_layer(model(x), y)
            if synchronise:
                optimizer = self.fleet.distributed_optimizer(optimizer)
            optimizer.minimize(loss, startup)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        for parameter, value in zip(main.all_parameters(), weights):
            scope = static.global_scope()
            scope.find_var(parameter.name).get_tensor().set(value, paddle.CPUPlace())
        feed, fetch = {"x": batch[0], "y": batch[1]}, [loss]
        return lambda: exe.run(main, feed=feed, fetch_list=fetch)[0]


def measure(side, spec):
    """Best seconds of a step alone and of one with synchronisation, and the losses of
    the first steps with it; this rank."""
    weights = make_weights(spec["layers"], np.random.default_rng(7))
    batch = make_batch(spec, np.random.default_rng(side.rank))
    steps = [side.step(spec, weights, batch, synchronise) for synchronise in (0, 1)]
    losses = [float(steps[1]()) for _ in range(COMPARED)]
    repeat, turns = spec["steps"]
    best = [float("inf"), float("inf")]
    for turn in range(-WARM_UP, turns):
        for i in (0, 1) if turn % 2 else (1, 0):
            side.barrier()
            seconds = seconds_of(steps[i], repeat)
            if turn >= 0:
                best[i] = min(best[i], seconds)
    return {"best": best, "losses": losses}


def rank_main(which, out):
    side = {"ours": Ours, "torch": Torch}[which]()
    results = {name: measure(side, spec_of(name)) for name in CASES}
    Path(out, str(side.rank)).write_text(json.dumps(results))
    side.barrier()


# ---- the driver
def check_losses(name, ours, torch):
    for rank in (0, 1):
        for i in range(COMPARED):
            a, b = ours[rank][name]["losses"][i], torch[rank][name]["losses"][i]
            if abs(a - b) > LOSS_TOLERANCE * abs(b):
                raise AssertionError(
                    f"{name}: loss of step {i}, rank {rank} is {a}, torch's {b}"
                )


def run():
    torch, ours = run_two_ranks(__file__, "torch"), run_two_ranks(__file__, "ours")
    rows = []
    for name in CASES:
        check_losses(name, ours, torch)
        alone, together = np.mean([r[name]["best"] for r in ours], axis=0) * 1e6
        peer = np.mean([r[name]["best"] for r in torch], axis=0)
        bar = CASES[name]["bar"]
        rows.append(
            Row(
                f"program, two ranks: {name}",
                together,
                alone,
                "us",
                1 / bar,
                peer_name="unsynchronised",
                note=f"keeps {alone / together:.2f} of the speed (bar >= {bar:.2f}); "
                f"torch DDP keeps {peer[0] / peer[1]:.2f}",
            )
        )
    return rows


if __name__ == "__main__":
    if len(sys.argv) == 3:
        rank_main(*sys.argv[1:])
    else:
        for row in run():
            print(row)
