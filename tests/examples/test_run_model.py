# SPDX-License-Identifier: Apache-2.0
"""The C++ example that runs a saved model, against the same in Python."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import paddle
import pytest

RUN_MODEL = (
    pathlib.Path(sys.executable).parent / "fleetrun"
).resolve().parent / "run_model"
MODELS = pathlib.Path(__file__).parents[2] / "python/tests/data/saved_models"


def run(path):
    return subprocess.run([RUN_MODEL, path], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["paddle_1_8/mlp", "paddle_2_6/mlp"])
def test_the_outputs_are_those_of_python(name):
    done = run(MODELS / name)
    assert done.returncode == 0, done.stderr
    predictor = paddle.inference.create_predictor(
        paddle.inference.Config(str(MODELS / name))
    )
    wanted = predictor.run([np.ones((2, 6), "float32")])[0].numpy()
    first = done.stdout.split("[ CPUFloatType")[0]
    numbers = [float(text) for text in re.findall(r"-?\d+\.\d+", first)]
    assert numbers[-6:] == pytest.approx(wanted.ravel().tolist(), abs=1e-3)


def test_a_model_that_is_not_there():
    done = run(MODELS / "absent")
    assert done.returncode == 1
    assert "there is no model at" in done.stderr
