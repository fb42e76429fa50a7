# SPDX-License-Identifier: Apache-2.0
"""The examples run as a user would run them, on less data."""

import os
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def test_the_demo_learns_the_shapes_and_draws_its_loss(tmp_path):
    picture = tmp_path / "loss.png"
    run = subprocess.run(
        [
            sys.executable,
            EXAMPLES / "train_shapes.py",
            *("--pictures", "2400", "--epochs", "4", "--picture", picture),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    accuracy = re.search(r"never seen: ([0-9.]+)", run.stdout).group(1)
    assert float(accuracy) > 0.9
    assert re.search(r"loss \d.*accuracy \d.*steps/s.*left", run.stdout)
    assert picture.read_bytes().startswith(b"\x89PNG")
