# SPDX-License-Identifier: Apache-2.0
"""Ten places of the engine made wrong on purpose (wrong_kernels.cc): the models of
`make test` find each of them."""

import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

HERE = Path(__file__).resolve().parent

# What stands in the text of models that can find it.
PLACES = {
    "tanh_grad": r"tanh",
    "softmax": r"softmax\(",
    "matmul_float": r"matmul",
    "add_grad_broadcast": r" \+ w",
    "sparse_rows": r"sparse=True",
    "conv2d_filter_grad": r"conv2d\(|Conv2D",
    "direct_matmul": r"matmul|Linear",
    "fused": r"paddle\.exp|Linear",
    "direct_update": r"",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_wrong_place_is_found(place):
    done = subprocess.run(
        [sys.executable, HERE / "wrong.py", "find", PLACES[place]],
        env={**os.environ, "WRONG_KERNEL": place},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_reduction_is_found_by_two_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("WRONG_KERNEL", "reduction")
    found = [line["failures"] for line in jobs.two_ranks(tmp_path, range(1, 6))]
    assert any(found)


def test_nothing_is_found_where_nothing_is_wrong():
    done = subprocess.run(
        [sys.executable, HERE / "wrong.py", "find", r"matmul"],
        env={**os.environ, "WRONG_KERNEL": "nothing"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not found by" in done.stdout
