# SPDX-License-Identifier: Apache-2.0
"""Eager training steps on a GPU in a job of fleetrun, against torch's DDP on the same GPU:
the same weights and batches on both sides, whose losses must agree over the first steps.
One GPU allows one rank, so what other ranks would cost is not in it.

    python benchmarks/eager_gpu.py             starts the rank itself

Needs a GPU, and a build for it (tools/test-gpu makes one).
"""

import os
import subprocess
import sys
import tempfile

import numpy as np
from data_parallel import spec_of
from eager_steps import make_batch, make_weights, paddle_step, torch_step
from measure import Row
from static_gpu import LOSS_TOLERANCE, best_in_turns, print_gpu_rows

# Steps of a turn and turns.
MODELS = {
    "MLP 32-128-128-2 tanh, SGD, 128": (200, 10),
    "CNN 32x32, Adam, batch 32": (100, 10),
    "MLP of 8 M parameters, SGD, 16": (100, 10),
}
BAR = 1.0


def check_losses(name, torch, steps):
    """Without TF32, which has ten bits, and with sums in a fixed order."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, cudnn.deterministic = False, True
    for i in range(20):
        losses = [float(step()) for step in steps]
        for loss in losses[:-1]:
            if abs(loss - losses[-1]) > LOSS_TOLERANCE * abs(losses[-1]):
                raise AssertionError(f"{name}: losses of step {i} are {losses}")
    cudnn.allow_tf32, cudnn.deterministic = before


def rows():
    import paddle
    import torch
    from paddle.distributed import fleet

    paddle.set_device("gpu")
    fleet.init(is_collective=True)
    backend = paddle.distributed.get_backend()
    torch.distributed.init_process_group("nccl")
    ddp = torch.nn.parallel.DistributedDataParallel
    for name, (repeat, turns) in MODELS.items():
        spec = spec_of(name)
        rng = np.random.default_rng(7)
        weights, batch = make_weights(spec["layers"], rng), make_batch(spec, rng)
        case = spec, weights, batch
        steps = [
            paddle_step(paddle, *case, fleet.distributed_model),
            paddle_step(paddle, *case),
            torch_step(torch, *case, ddp, "cuda"),
            torch_step(torch, *case, device="cuda"),
        ]
        check_losses(name, torch, steps)
        ours, ours_alone, peer, peer_alone = best_in_turns(torch, steps, repeat, turns)
        note = f"collectives by {backend}; not distributed: "
        note += f"ours {ours_alone:.1f}, torch {peer_alone:.1f}"
        yield Row(f"GPU eager: {name}", ours, peer, "us", BAR, "DDP", note=note)
    torch.distributed.destroy_process_group()


def run_rank():
    with tempfile.TemporaryDirectory() as folder:
        launcher = [sys.executable, "-m", "paddle.distributed.launch", "--gpus=0"]
        rank = [f"--log_dir={folder}", __file__, "rank"]
        environment = {"FLEET_COMM": "nccl", **os.environ}
        done = subprocess.run([*launcher, *rank], env=environment, timeout=600)
        return done.returncode


if __name__ == "__main__":
    import torch

    if sys.argv[1:] == ["rank"] or not torch.cuda.is_available():
        sys.exit(print_gpu_rows("eager training", rows))
    sys.exit(run_rank())
