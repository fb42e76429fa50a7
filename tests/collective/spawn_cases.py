# SPDX-License-Identifier: Apache-2.0
"""Functions for test_spawn.py, which processes of their own import."""

import os
import sys
import time

import numpy as np
import paddle
import paddle.distributed as dist


def add(start):
    dist.init_parallel_env()
    tensor = paddle.full([3], float(start + dist.get_rank()))
    dist.all_reduce(tensor)
    return dist.get_rank(), tensor.numpy()


def large():
    return np.zeros(1 << 20)


def fail(who):
    dist.init_parallel_env()
    if dist.get_rank() == who:
        raise ValueError(f"rank {who} does not like it")
    dist.barrier()


def leave(code):
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        sys.exit(code)


def kill():
    dist.init_parallel_env()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    dist.barrier()


def wait_forever(folder):
    with open(os.path.join(folder, str(os.getpid())), "w"):
        pass
    time.sleep(600)


def variables():
    names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_CURRENT_ENDPOINT")
    names += ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "FLAGS_selected_gpus")
    names += ("FLEET_SECRET", "FLEET_SECRET_FILE")
    return {name: os.environ.get(name) for name in names}
