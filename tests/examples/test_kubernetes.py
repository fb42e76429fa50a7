# SPDX-License-Identifier: Apache-2.0
"""What the manifest gives to its pods makes them a job with a secret."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.ports import free_row

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = (ROOT / "examples/kubernetes.yaml").read_text()
TRAIN = ROOT / "tests/mpi/train.py"


def test_pods_of_the_manifest_train_together(tmp_path):
    given = dict(re.findall(r'- name: ([A-Z_]+).*\n\s+value: "?([^"\n]+)', MANIFEST))
    assert re.search(rf"completions: {given['FLEET_WORLD_SIZE']}\n", MANIFEST)
    mount = re.search(r"mountPath: (\S+)", MANIFEST).group(1)
    mode = int(re.search(r"defaultMode: (\d+)", MANIFEST).group(1), 8)
    assert given["FLEET_SECRET_FILE"] == f"{mount}/key"
    assert given["FLEET_REQUIRE_SECRET"] == "1"
    key = tmp_path / "key"
    key.write_text("5f" * 32)
    key.chmod(mode)
    # Two pods on this machine.
    given["FLEET_WORLD_SIZE"] = "2"
    given["FLEET_SECRET_FILE"] = str(key)
    given["MASTER_ADDR"], given["MASTER_PORT"] = "127.0.0.1", str(free_row(1))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
    pods = [
        subprocess.Popen(
            [sys.executable, TRAIN],
            env={
                **kept,
                **given,
                "JOB_COMPLETION_INDEX": str(i),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(ROOT / "python"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]
    outputs = [pod.communicate(timeout=120)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], outputs
    sums = [re.search(r"of 2: (\w+)", text).group(1) for text in outputs]
    assert sums[0] == sums[1]
