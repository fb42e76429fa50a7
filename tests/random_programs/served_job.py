# SPDX-License-Identifier: Apache-2.0
"""What workers and servers do, under fleetrun: `served_job.py OUT FIRST COUNT`.

Trains COUNT models as one program with synchronous servers, each of two workers with its
half of the batch, and compares with one process. A line of OUT.WORKER: JSON.
"""

import json
import sys

import numpy as np
import optimizers
import paddle
import run
from check import sensitivity
from compare import largest_distance
from draw import Draw
from joined import join, servable_models, tables
from make import focus
from model import feed_arrays, parameter_array, share
from paddle import nn, static
from paddle.distributed import fleet

TOLERANCE = 1e-5
ROW = 0.25  # what rows of tables begin with: servers make them

# Lamb and Lars take the norm of a whole parameter, of which a server has a part; a clip by
# norm of what workers have together is refused for tables. AdamW changes a row, and Adamax
# its norm (by epsilon), in each step from the first on; servers make a row when it is met.
_NOT_SERVED = (
    *("Lamb(", "Lars(", "AdamW(", "Adamax("),
    *("ClipGradByNorm", "ClipGradByGlobalNorm"),
)


def training(first):
    """The rate and the rule of the job that begins with the model `first`."""
    d = Draw(first)
    while True:
        rate, rule = optimizers.rate(d), optimizers.optimizer(d)
        if not any(word in rule for word in _NOT_SERVED):
            return rate, rule


def first_array(model, parameter, dtype="float32"):
    if parameter.name in tables(model):
        return np.full(parameter.shape, ROW, dtype)
    return parameter_array(model, parameter, dtype)


def make_parameters(model, env, dtype):
    """As run.make_parameters, with first values that a startup program makes."""
    made = {}
    for parameter in model.parameters:
        attr = paddle.ParamAttr(name=parameter.name)
        if parameter.name in tables(model):
            attr.initializer = nn.initializer.Constant(ROW)
            # A row begins to decay when it is first met, and then servers make it: in one
            # process all rows decay from the beginning. Tests of tables have that.
            attr.regularizer = paddle.regularizer.L2Decay(0.0)
        else:
            array = first_array(model, parameter, dtype)
            attr.initializer = nn.initializer.Assign(array)
        env[parameter.name] = made[parameter.name] = paddle.create_parameter(
            list(parameter.shape), dtype, attr=attr
        )
    return made


def served(model):
    """Trains on workers, never returns on servers: a Trace."""
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    strategy.a_sync_configs = {"lr_decay_steps": 1}  # schedules advance in each step

    def minimize(optimizer, loss):
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)

    env, made, scheduler = run.build(model, "float32", minimize)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        sys.exit(0)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    losses = []
    for step in range(model.steps):
        batch = share(model, feed_arrays(model, step), fleet.worker_index())
        (loss,) = executor.run(feed=batch, fetch_list=[env["loss"]])
        losses.append(np.array(loss))
        if scheduler is not None:
            scheduler.step()
    fleet.barrier_worker()
    program = fleet.fleet._training.program_to_run(static.default_main_program())
    # A table that nothing trains stays with the workers.
    served_tables = {
        op.attr("table_name")
        for op in program.global_block().ops
        if op.type == "distributed_lookup_table"
    }
    values = {}
    for parameter in model.parameters:
        if parameter.name in served_tables:
            worker = fleet.fleet._training.worker
            rows = worker.pull_rows(parameter.name, 0, parameter.shape[0])
            values[parameter.name] = rows.numpy()
        else:
            tensor = static.global_scope().find_var(made[parameter.name].name)
            values[parameter.name] = np.array(tensor.get_tensor())
    startup = fleet.fleet._training.program_to_run(static.default_startup_program())
    return run.Trace(losses, values, {}, ops=run.ops_of(program) | run.ops_of(startup))


def main(out, first, count):
    run.make_parameters = make_parameters
    run.first_values = lambda model, made, dtype: {
        p.name: first_array(model, p, dtype) for p in model.parameters
    }
    fleet.init()
    models, looked_at = servable_models(first, count)
    model = join(models, *training(first))
    paddle.enable_static()
    trace = served(model)
    me = fleet.worker_index()
    paddle.disable_static()
    reference = run.eager(model)
    losses = fleet.util.all_gather([float(x.sum()) for x in trace.losses])
    for i in range(len(trace.losses)):
        trace.losses[i] = trace.losses[i] * 0 + sum(x[i] for x in losses) / 2
    apart, where = largest_distance(trace, reference)
    failures, notes = [], []
    if apart > TOLERANCE and apart > 10 * sensitivity(model):
        text = f"{apart:.2g} from one process: {where}\n{model.optimizer}, {model.rate}"
        failures.append(["servers", text])
    elif apart > TOLERANCE:
        notes.append("servers: too sensitive to compare")
    line = {"number": first, "failures": failures, "ops": sorted(trace.ops)}
    line["notes"] = notes
    line["models"] = [m.number for m in models]
    line["focus"] = [focus(m.number) for m in models]
    line["looked_at"] = looked_at
    with open(f"{out}.{me}", "a") as file:
        print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
