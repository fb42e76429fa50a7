# SPDX-License-Identifier: Apache-2.0
"""The demo, on less data: both trainings, their speeds and the picture."""

import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "python" / "demo.py"


def test_demo(tmp_path):
    run = subprocess.run(
        [sys.executable, DEMO, "--out", tmp_path, "--pictures", "2400"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    row = r"processe?s? +\d+ pictures/s   accuracy 0\.9\d+"
    assert len(re.findall(row, run.stdout)) == 2, run.stdout
    assert re.search(r"two processes are \d\.\d+ times as fast as one", run.stdout)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
