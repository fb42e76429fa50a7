# SPDX-License-Identifier: Apache-2.0
"""The examples run as a user would run them, on less data."""

import json
import os
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def test_the_shapes_are_learned(tmp_path):
    report = tmp_path / "report.json"
    run = subprocess.run(
        [
            sys.executable,
            EXAMPLES / "train_shapes.py",
            *("--pictures", "2400", "--epochs", "8", "--report", report),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    accuracy = re.search(r"never seen: ([0-9.]+)", run.stdout).group(1)
    assert float(accuracy) > 0.9
    assert re.search(r"loss \d.*accuracy \d.*steps/s.*left", run.stdout)
    figures = json.loads(report.read_text())
    assert figures["speed"] > 0
    assert len(figures["losses"]) == 8 * (2400 // 64)
    assert figures["losses"][-1] < figures["losses"][0] / 2


def test_glad_sentences_are_told_from_sad_ones():
    run = subprocess.run(
        [sys.executable, EXAMPLES / "train_words.py", "--epochs", "2"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert float(re.search(r"never seen: ([0-9.]+)", run.stdout).group(1)) > 0.9
    assert float(re.search(r"differs by ([0-9.e+-]+)", run.stdout).group(1)) < 1e-5
