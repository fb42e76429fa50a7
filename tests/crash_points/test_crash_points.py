# SPDX-License-Identifier: Apache-2.0
"""Processes end at their calls; what was acknowledged is there. README.md says how."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of the points of a scenario, one of so many is tried, drawn by the seed.
ONE_OF = {
    "files": 2,
    "saves": 8,
    "save-of-0": 12,
    "save-of-1": 12,
    "log": 8,
    "log-sync": 8,
    "recovery": 16,
    "take-over": 24,
}
SEED = 1


def crash_points(*words):
    done = subprocess.run(
        [ROOT / "build/release/bin/crash_points", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("scenario", ONE_OF)
def test_every_point_is_survived(scenario, monkeypatch):
    monkeypatch.setenv("FLEET_LOG_LEVEL", "ERROR")
    code, text = crash_points(scenario, "--one-of", ONE_OF[scenario], "--seed", SEED)
    assert code == 0, text
    assert " 0 not survived" in text
