# SPDX-License-Identifier: Apache-2.0
"""Collectives from Python, two ranks: all_reduce of 4 KB against Gloo in torch; and
what the watch over living and dead ranks costs while a small model trains."""

import json
import sys
import time
from pathlib import Path

from data_parallel import Ours, Torch, spec_of
from eager_steps import make_batch, make_weights
from measure import Row, run_two_ranks, seconds_of

ELEMENTS = 1024  # 4 KB


def all_reduce(side):
    """The call to be measured."""
    if isinstance(side, Ours):
        tensor = side.paddle.zeros([ELEMENTS])
        return lambda: side.dist.all_reduce(tensor)
    tensor = side.torch.zeros(ELEMENTS)
    return lambda: side.torch.distributed.all_reduce(tensor)


def watch_share(side):
    """CPU time of all threads but the training one, as a share of the time, while
    the MLP trains: heartbeats and the look-out for deaths run on these."""
    import numpy as np

    spec = spec_of("MLP 32-128-128-2 tanh, SGD, 128")
    rng = np.random.default_rng(7)
    weights, batch = make_weights(spec["layers"], rng), make_batch(spec, rng)
    step = side.step(spec, weights, batch, synchronise=True)
    seconds_of(step, 100)
    side.barrier()
    begin, of_all, of_this = time.time(), time.process_time(), time.thread_time()
    seconds_of(step, 20000)
    seconds = time.time() - begin
    others = (time.process_time() - of_all) - (time.thread_time() - of_this)
    return others / seconds


def rank_main(which, out):
    side = {"ours": Ours, "torch": Torch}[which]()
    call = all_reduce(side)
    repeat = 2000 if which == "ours" else 200
    best = float("inf")
    for _ in range(10):
        side.barrier()
        best = min(best, seconds_of(call, repeat))
    result = {"all_reduce": best}
    if which == "ours":
        result["watch"] = watch_share(side)
    Path(out, str(side.rank)).write_text(json.dumps(result))
    side.end()


def run():
    torch, ours = run_two_ranks(__file__, "torch"), run_two_ranks(__file__, "ours")
    best = [min(r["all_reduce"] for r in ranks) * 1e6 for ranks in (ours, torch)]
    yield Row("Python all_reduce, 4 KB", *best, "us", 0.02, peer_name="Gloo")
    share = max(r["watch"] for r in ours)
    yield Row("heartbeats while an MLP trains", share * 100, 100, "%", 0.01, "the step")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        rank_main(*sys.argv[1:])
    else:
        for row in run():
            print(row)
