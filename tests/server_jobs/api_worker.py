# SPDX-License-Identifier: Apache-2.0
"""A script as users write it, workers and servers in one: ids have rows in a table of
1000, their sums are compared with labels. What it is told comes as name=value."""

import json
import os
import sys
import time

import numpy as np
import paddle
from paddle import static
from paddle.distributed import fleet
from paddle.distributed.fleet.base.server_mode import Mode

told = dict(argument.split("=", 1) for argument in sys.argv[1:])
steps, batch = int(told.get("steps", 20)), int(told.get("batch", 32))

paddle.enable_static()
fleet.init()
ids = static.data("ids", [None, 1], "int64")
label = static.data("label", [None, 1], "float32")
begin = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Constant(0.1))
rows = static.nn.embedding(ids, size=[1000, 4], is_sparse=True, param_attr=begin)
out = paddle.sum(paddle.reshape(rows, [-1, 4]), axis=1, keepdim=True)
weight = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.5))
out = static.nn.fc(out, 1, weight_attr=weight, bias_attr=False)
loss = paddle.mean(paddle.nn.functional.square_error_cost(out, label))

strategy = fleet.DistributedStrategy()
strategy.a_sync = told.get("mode") != "sync"
configs = {
    k: int(told[k]) for k in ("send_queue_size", "max_merge_var_num") if k in told
}
if told.get("mode") == "geo":
    configs["k_steps"] = 2
strategy.a_sync_configs = configs
if told.get("mode") == "half_async":  # which only the older Fleet has a name for
    fleet.fleet._served_training(Mode("half_async"))
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
optimizer.minimize(loss)

if fleet.is_server():
    fleet.init_server(*([told["load"]] if "load" in told else []))
    fleet.run_server()
    sys.exit()


def feed(step):
    numbers = np.arange(batch) * 37 + step * 101 + fleet.worker_index() * 53
    bad = told.get("bad_id")
    chosen = numbers % 1000
    if bad is not None and step == steps // 2 and fleet.worker_index() == 0:
        chosen[0] = int(bad)
    return {
        "ids": chosen.reshape(-1, 1).astype("int64"),
        "label": (numbers % 7).reshape(-1, 1).astype("float32"),
    }


def wait_to_go_on():
    print("READY", flush=True)
    end = time.monotonic() + 60
    while not os.path.exists("go"):
        assert time.monotonic() < end, "nobody let it go on"
        time.sleep(0.005)


exe = static.Executor()
exe.run(static.default_startup_program())
fleet.init_worker()
for step in range(steps):
    if step == int(told.get("save_at", -1)):
        fleet.barrier_worker()
        if fleet.is_first_worker():
            fleet.save_persistables(exe, "model")
        fleet.barrier_worker()
    if step == int(told.get("wait_at", -1)):
        wait_to_go_on()
    if step == int(told.get("raise_at", -1)) and fleet.worker_index() == 1:
        raise RuntimeError("what a user's script does wrong")
    if step == int(told.get("look_at", -1)):
        print("EARLY", json.dumps(fleet.worker_stats()), flush=True)
    (value,) = exe.run(feed=feed(step), fetch_list=[loss])
print("LOSS", float(np.mean(value)), flush=True)
print("LATE", json.dumps(fleet.worker_stats()), flush=True)
fleet.barrier_worker()
if "catch_stop" in told:
    wait_to_go_on()
    try:
        fleet.stop_worker()
    except Exception as error:
        print("CAUGHT", error, flush=True)
else:
    fleet.stop_worker()
