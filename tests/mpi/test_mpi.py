# SPDX-License-Identifier: Apache-2.0
"""`mpirun -np 2 python train.py`, with no other flag."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_row

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "python"
MPIRUN = shutil.which("mpirun")


def mpirun(*arguments, ranks=2, **env):
    """(exit code, standard output, standard error) of a run of train.py."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("FLEET_")},
        "PYTHONPATH": str(PACKAGE),
        "OMP_NUM_THREADS": "1",
        # Open MPI asks root whether it is meant, and here are few cores.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        **env,
    }
    run = subprocess.run(
        [MPIRUN, "-np", str(ranks), sys.executable, str(HERE / "train.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return run.returncode, run.stdout, run.stderr


def results(output):
    """The parameters that each rank ended with, by rank."""
    return dict(re.findall(r"rank (\d+ of \d+): ([0-9a-f]{16})", output))


# By Fleet's own shared memory, and by MPI's collectives.
@pytest.fixture(params=["auto", "mpi"])
def backend(request):
    assert MPIRUN, "no mpirun: tools/bootstrap installs Open MPI"
    return request.param


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_of_mpirun_train_together(backend, ranks):
    code, out, err = mpirun(ranks=ranks, FLEET_COMM=backend)
    assert code == 0, out + err
    found = results(out)
    assert sorted(found) == [f"{i} of {ranks}" for i in range(ranks)], out + err
    assert len(set(found.values())) == 1, found
    assert "finalize" not in err.lower(), err


@pytest.mark.parametrize("master", [False, True])
def test_ranks_of_mpirun_have_a_secret(master):
    """Inside a host by a name, and over the network: without one they would refuse."""
    env = {"FLEET_REQUIRE_SECRET": "1", "FLEET_COMM": "tcp"}
    if master:
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_row(1))}
    code, out, err = mpirun(**env)
    assert code == 0, out + err
    assert len(results(out)) == 2, out + err


def test_a_rank_that_fails_ends_the_job(backend):
    code, out, err = mpirun("fail", FLEET_COMM=backend)
    assert code == 1, out + err
    assert "RuntimeError: the disk is full" in err
