# SPDX-License-Identifier: Apache-2.0
"""The C++ example that builds, differentiates and runs a program."""

import pathlib
import re
import subprocess
import sys

TRAIN_STATIC = (
    pathlib.Path(sys.executable).parent / "fleetrun"
).resolve().parent / "train_static"


def test_it_learns():
    done = subprocess.run(
        [TRAIN_STATIC, "500"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"step \d+ loss ([\d.e-]+)", done.stdout)]
    assert len(losses) == 6
    assert 0.5 < losses[0] < 1.0  # two classes, unknown: about ln 2
    assert losses[-1] < losses[0] / 3
