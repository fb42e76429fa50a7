# SPDX-License-Identifier: Apache-2.0
"""`srun -n 2 python train.py`, with no other flag, on a cluster of this machine.

tools/bootstrap installs Slurm. Where it is missing all the same a line says so; with CI
in the environment the tests fail.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing, wanted

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/mpi/train.py"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    assert not missing(), missing()
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


if wanted():

    @pytest.mark.parametrize("ranks", [1, 2, 3])
    def test_tasks_of_srun_train_together(cluster, ranks):
        run = cluster.srun("-n", ranks, sys.executable, SCRIPT, **ENVIRONMENT)
        assert run.returncode == 0, run.stdout + run.stderr + cluster.logs()
        found = dict(re.findall(r"rank (\d+ of \d+): ([0-9a-f]{16})", run.stdout))
        assert sorted(found) == [f"{i} of {ranks}" for i in range(ranks)], run.stdout
        assert len(set(found.values())) == 1, found

    def test_a_task_that_fails_ends_the_job(cluster):
        run = cluster.srun("-n", 2, sys.executable, SCRIPT, "fail", **ENVIRONMENT)
        assert run.returncode == 1, run.stdout + run.stderr + cluster.logs()
        assert "RuntimeError: the disk is full" in run.stderr
        assert re.search(r"ConnectionError: .*rank 1", run.stderr), run.stderr
