# SPDX-License-Identifier: Apache-2.0
"""What each of two ranks does, under fleetrun: `ranks_job.py OUT NUMBER...`.

Trains the models one after the other, eagerly and as programs, each rank with its half of
the batch, and compares with one process. A line of OUT.RANK for each: JSON.
"""

import dataclasses
import functools
import hashlib
import json
import sys

import paddle
import paddle.distributed as dist
import run
from check import sensitivity
from compare import largest_distance
from make import make
from model import feed_arrays, share
from paddle import _core, nn
from paddle.distributed import fleet

TOLERANCE = 1e-5


class Net(nn.Layer):
    """A model as a layer, for `fleet.distributed_model`."""

    def __init__(self, forward, made, layers):
        super().__init__()
        self._run = forward
        for name, value in made.items():
            if "." not in name:
                self.add_parameter(name, value)
        for name, layer in layers.items():
            self.add_sublayer(name, layer)

    def forward(self):
        return self._run()


def batches_of(model, rank):
    """Half of each batch; where the model is no mean over samples, batches of its own."""
    for step in range(model.steps):
        if model.split:
            yield share(model, feed_arrays(model, step), rank)
        else:
            yield feed_arrays(model, step, rank=rank)


def parallel_eager(model, rank):
    def wrap(forward, made, layers, optimizer):
        strategy = fleet.DistributedStrategy()
        strategy.find_unused_parameters = True
        optimizer = fleet.distributed_optimizer(optimizer, strategy)
        return fleet.distributed_model(Net(forward, made, layers)), optimizer

    return run.eager(model, list(batches_of(model, rank)), wrap)


def parallel_program(model, rank):
    strategy = fleet.DistributedStrategy()
    strategy.fuse_all_reduce_ops = model.number % 4 < 2

    def minimize(optimizer, loss):
        # Every other model exchanges beside backward, also where no core is to spare.
        apply_plan = _core.apply_plan
        overlap = True if model.number % 2 else None
        _core.apply_plan = functools.partial(apply_plan, overlap=overlap)
        try:
            fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
        finally:
            _core.apply_plan = apply_plan

    return run.program(
        model,
        True,
        list(batches_of(model, rank)),
        fetch_all=False,
        minimize=minimize,
    )


def digest(trace):
    """A hash of all that ranks must have in common; statistics are each rank's own."""
    found = hashlib.sha256()
    for name in sorted(trace.trained):
        found.update(name.encode() + trace.parameters[name].tobytes())
    return found.hexdigest()


def with_dense_tables(model):
    """The model as ranks train it eagerly: only tables of nn.Embedding(sparse=True) are
    exchanged as rows. The mean of others is dense, where some rules, as a lazy Adam, change
    rows that no id names."""
    lines = tuple(
        dataclasses.replace(line, text=line.text.replace("sparse=True", "sparse=False"))
        for line in model.lines
    )
    return dataclasses.replace(model, lines=lines)


def examine(model, rank, train, reference):
    """What is wrong with a mode, in words, or None."""
    trace = train(model, rank)
    digests = []
    dist.all_gather_object(digests, digest(trace))
    if len(set(digests)) > 1:
        return "the ranks end with different parameters", trace
    losses = []
    dist.all_gather_object(losses, [float(x.sum()) for x in trace.losses])
    if reference is None:
        return None, trace
    for i in range(len(trace.losses)):
        trace.losses[i] = (trace.losses[i] * 0) + sum(x[i] for x in losses) / 2
    trace.fetched = {}
    apart, where = largest_distance(trace, reference)
    if apart > TOLERANCE and apart > 10 * sensitivity(model):
        return f"{apart:.2g} from one process: {where}", trace
    return None, trace


def main(out, numbers):
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    with open(f"{out}.{rank}", "a") as file:
        for number in numbers:
            model = make(number).pruned()
            if model.split:  # each rank has a part of the batch
                model = dataclasses.replace(model, free_batch=True)
            print(json.dumps({"start": number}), file=file, flush=True)
            compared = model.split and not model.random
            alone = run.eager(model) if compared else None
            dense = with_dense_tables(model)
            alone_dense = run.eager(dense) if compared and dense != model else alone
            found, ops = [], []
            for mode, train, reference in (
                ("two ranks, eager", parallel_eager, alone_dense),
                ("two ranks, program", parallel_program, alone),
            ):
                problem, trace = examine(model, rank, train, reference)
                ops += trace.ops
                if problem:
                    found.append([mode, problem])
            line = {"number": number, "failures": found, "ops": sorted(set(ops))}
            line["compared"] = compared
            print(json.dumps(line), file=file, flush=True)
            if rank == 0:
                print(number, flush=True)


if __name__ == "__main__":
    paddle.disable_static()
    main(sys.argv[1], [int(n) for n in sys.argv[2:]])
