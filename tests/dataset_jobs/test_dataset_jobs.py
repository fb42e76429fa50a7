# SPDX-License-Identifier: Apache-2.0
"""Datasets in jobs of real processes under fleetrun."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
FLEETRUN = Path(sys.executable).parent / "fleetrun"
_LAUNCHERS = ("PADDLE_", "FLEET_", "FLAGS_", "OMPI_", "PMI_", "SLURM_")
EACH = 3000  # of cases.py


def run(folder, places, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    env.update(
        PYTHONPATH=str(HERE.parent.parent / "python"),
        OMP_NUM_THREADS="1",
        FLEET_TIMEOUT="60",
        FLEET_START_TIMEOUT="60",
    )
    logs = Path(folder, "log")
    done = subprocess.run(
        [FLEETRUN, *places, f"--log_dir={logs}", HERE / "cases.py", *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
    )
    report = [done.stdout]
    report += [f"--- {f.name}:\n{f.read_text()}" for f in sorted(logs.glob("*log.*"))]
    assert done.returncode == 0, "\n".join(report)


@pytest.mark.parametrize(
    "num_workers, places",
    [
        (3, ["--nproc_per_node=3"]),
        (2, ["--worker_num=2", "--server_num=1"]),
        (3, ["--worker_num=3", "--server_num=2"]),
    ],
)
def test_a_global_shuffle_gives_every_sample_to_one_worker(
    tmp_path, num_workers, places
):
    run(tmp_path, places, "shuffle", str(tmp_path), str(len(places) == 1))
    parts = [np.load(tmp_path / f"numbers-{i}.npy") for i in range(num_workers)]
    total = num_workers * (num_workers - 1) // 2 * EACH
    assert np.sort(np.concatenate(parts)).tolist() == list(range(total))
    for i, part in enumerate(parts):
        assert total // num_workers <= len(part) <= total // num_workers + 1
        assert (np.diff(part) != 1).mean() > 0.9, "not shuffled"
        own = (part >= i * (i - 1) // 2 * EACH) & (part < i * (i + 1) // 2 * EACH)
        expected = i * EACH / total
        assert abs(own.mean() - expected) < 0.1, "not dealt at random"


@pytest.mark.parametrize("mode", ["async", "sync", "geo"])
@pytest.mark.parametrize("thread", [1, 2])
def test_threads_train_with_servers(tmp_path, mode, thread):
    places = ["--worker_num=2", "--server_num=2"]
    run(tmp_path, places, "train", str(tmp_path), mode, str(thread))
    for i in range(2):
        assert np.load(tmp_path / f"loss-{i}.npy") < 0.2  # it begins at 0.69
    if mode == "sync":  # whoever had the last batches
        first, second = (np.load(tmp_path / f"dense-{i}.npy") for i in range(2))
        assert (first == second).all()
