# SPDX-License-Identifier: Apache-2.0
"""A training script under the launcher of somebody else."""

import os
import subprocess
import sys

import numpy as np

from tests.collective import training
from tests.collective.ranks import HERE, clean_environment
from tests.collective.test_parallel_training import alone


def test_torchrun_starts_a_job_of_ours(tmp_path):
    out = tmp_path / "state.npz"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = [str(HERE / "parallel_cases.py"), "train", "mlp", "SGD", str(out)]
    done = subprocess.run(
        [*torchrun, "--nproc_per_node=2", *script],
        env={**clean_environment(), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("DONE") == 2
    training.assert_close(np.load(out), alone("mlp", "SGD"), 1e-6)
    assert os.listdir(tmp_path) == ["state.npz"]
