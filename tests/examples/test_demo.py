# SPDX-License-Identifier: Apache-2.0
"""The demo, on less data: its trainings, their speeds and the picture."""

import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "python" / "demo.py"


def test_demo(tmp_path):
    run = subprocess.run(
        [sys.executable, DEMO, "--out", tmp_path, "--small"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    shapes = re.findall(r"\d+ pictures/s   accuracy (\d\.\d+)", run.stdout)
    assert len(shapes) == 2 and all(float(value) > 0.9 for value in shapes), run.stdout
    clicks = re.findall(r"\d+ examples/s   auc (\d\.\d+)", run.stdout)
    assert len(clicks) == 2 and all(float(value) > 0.6 for value in clicks), run.stdout
    assert "two workers, two servers: " in run.stdout
    assert re.search(r"at most \d+ steps behind", run.stdout)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
