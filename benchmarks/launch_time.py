# SPDX-License-Identifier: Apache-2.0
"""From the command line to the first collective done, two ranks of Python: fleetrun
and ours against torchrun and torch with Gloo."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Row

BIN = Path(sys.executable).parent
ROUNDS = 5

SCRIPTS = {
    "ours": """
import sys, time
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
x = paddle.ones([1])
dist.all_reduce(x)
assert float(x) == 2
open(sys.argv[1] + str(dist.get_rank()), "w").write(repr(time.time()))
""",
    "torch": """
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
assert float(x) == 2
open(sys.argv[1] + str(dist.get_rank()), "w").write(repr(time.time()))
dist.destroy_process_group()
""",
}


def start(which, folder):
    """Seconds until the later of the two ranks has its sum."""
    script = folder / f"first_sum_{which}.py"
    script.write_text(SCRIPTS[which])
    command = {
        "ours": [BIN / "fleetrun", "--nproc_per_node=2", f"--log_dir={folder}/log"],
        "torch": [BIN / "torchrun", "--nproc_per_node=2"],
    }[which]
    begin = time.time()
    subprocess.run(
        [*command, script, folder / "done"],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    return max(float((folder / f"done{r}").read_text()) for r in (0, 1)) - begin


def run():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = {"ours": [], "torch": []}
        for _ in range(ROUNDS):
            for which in times:
                times[which].append(start(which, folder))
    best = {which: min(t) * 1e3 for which, t in times.items()}
    return [
        Row(
            "launch to first collective, 2 ranks",
            best["ours"],
            best["torch"],
            "ms",
            0.4,
            peer_name="torchrun",
        )
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
