# SPDX-License-Identifier: Apache-2.0
"""The C++ example of a program with servers that reads files, under fleetrun."""

import pathlib
import re
import subprocess
import sys

import pytest

FLEETRUN = pathlib.Path(sys.executable).parent / "fleetrun"
# `make` leaves fleetrun in .venv as a link to the build.
TRAIN_CLICKS = FLEETRUN.resolve().parent / "train_clicks"
PATIENCE = 120  # a job that takes longer hangs


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_it_learns_from_files(mode, tmp_path):
    command = [FLEETRUN, "--server_num", "2", "--worker_num", "2", TRAIN_CLICKS]
    done = subprocess.run(
        [*map(str, command), "clicks", "--mode", mode],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout + "".join(
        path.read_text() for path in (tmp_path / "log").glob("workerlog.*")
    )
    for worker in (0, 1):
        assert f"worker {worker} epoch 2: 8000 samples" in text, text
    (share,) = set(re.findall(r"right about ([\d.]+) of 4000", text))
    assert float(share) > 0.7
    files = sorted(path.name for path in (tmp_path / "clicks").glob("part-*"))
    assert files == ["part-0", "part-1", "part-2", "part-3"]
    assert list((tmp_path / "clicks" / "model").iterdir())
