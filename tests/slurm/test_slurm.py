# SPDX-License-Identifier: Apache-2.0
"""`srun -n 2 python train.py`, with no other flag, on a cluster of this machine.

tools/bootstrap installs Slurm. Where it is missing all the same a line says so; with CI
in the environment the tests fail.
"""

import re
import socket
import struct
import sys
import time
from pathlib import Path

import pytest

from tests.ports import free_row
from tests.slurm.cluster import Cluster, missing, wanted

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/mpi/train.py"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


# Rank 0 of two, which listens and waits for a rank 1 that never comes.
RANK_0 = """
import os
os.environ["SLURM_STEP_NUM_TASKS"] = "2"
import paddle.distributed as dist
dist.init_parallel_env()
"""


def over_the_network(cluster, **more):
    """The ranks meet at a port, as on several hosts, and go on with a secret or not."""
    return {
        **ENVIRONMENT,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_row(1)),
        "FLEET_COMM": "tcp",
        "FLEET_REQUIRE_SECRET": "1",
        "FLEET_MUNGE_SOCKET": str(cluster.munge_socket),
        **more,
    }


def ask_for_the_sealed_secret(port):
    """What any stranger may ask: a hello with flag 16 (docs/wire.md)."""
    hello = struct.pack("<8sIIIiQ32x", b"FLEETHI\n", 2, 16, 0, 1, 0)
    end = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port), 5)
            break
        except OSError:
            assert time.monotonic() < end, "rank 0 does not listen"
            time.sleep(0.05)
    with peer, peer.makefile("rb") as answer:
        peer.sendall(hello)
        flags = struct.unpack("<8sII", answer.read(64)[:16])[2]
        assert flags & 16, flags
        return answer.read(*struct.unpack("<I", answer.read(4)))


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

    def test_tasks_that_meet_over_the_network_have_a_secret_by_munge(cluster):
        run = cluster.srun("-n", 2, sys.executable, SCRIPT, **over_the_network(cluster))
        assert run.returncode == 0, run.stdout + run.stderr + cluster.logs()
        found = dict(re.findall(r"rank (\d+ of \d+): ([0-9a-f]{16})", run.stdout))
        assert sorted(found) == ["0 of 2", "1 of 2"], run.stdout
        assert "no secret" not in run.stdout + run.stderr

    def test_without_munge_a_job_that_requires_a_secret_does_not_begin(cluster):
        env = over_the_network(cluster, FLEET_MUNGE_SOCKET="/no/such/socket")
        run = cluster.srun("-n", 2, sys.executable, SCRIPT, **env)
        assert run.returncode != 0
        assert "no job secret by MUNGE" in run.stderr, run.stderr
        assert "FLEET_REQUIRE_SECRET" in run.stderr, run.stderr

    def test_the_secret_that_rank_0_seals_is_for_its_user_alone(cluster):
        """Everybody who reaches the port may have it, and another user cannot open it."""
        env = over_the_network(cluster)
        with cluster.start_srun("-n", 1, sys.executable, "-c", RANK_0, **env):
            sealed = ask_for_the_sealed_secret(int(env["MASTER_PORT"]))
            assert sealed.startswith(b"MUNGE:"), sealed
            code, text = cluster.unmunge(sealed, user=65534)
            assert code != 0 and "Unauthorized" in text, text
            assert "fleet job secret" not in text
            code, text = cluster.unmunge(sealed, user=0)
            assert re.search("fleet job secret: [0-9a-f]{64}", text), text
