# SPDX-License-Identifier: Apache-2.0
"""The C++ example under fleetrun, and its file in Python."""

import pathlib
import subprocess
import sys

import numpy as np
import paddle
import pytest

FLEETRUN = pathlib.Path(sys.executable).parent / "fleetrun"
# `make` leaves fleetrun in .venv as a link to the build.
TRAIN_CNN = FLEETRUN.resolve().parent / "train_cnn"
PATIENCE = 120  # a job that takes longer hangs


def run(command, folder):
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def train(launcher, folder):
    flags = ["--epochs", "2", "--pictures", "1200", "--batch-size", "32"]
    return run([*launcher, TRAIN_CNN, *flags, "--save", "net.pdparams"], folder)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process and two ranks print and save."""
    alone, together = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    return [
        (train([], alone), alone / "net.pdparams"),
        (
            train([FLEETRUN, "--nproc_per_node", "2"], together),
            together / "net.pdparams",
        ),
    ]


def test_two_ranks_train_over_shared_memory_and_show_progress(results):
    done, _ = results[1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks over shared memory" in done.stdout
    assert "74/74  loss" in done.stdout
    assert "accuracy on 500 pictures never seen: 0." in done.stdout


def test_the_file_opens_in_python_and_fits_a_layer(results):
    done, path = results[1]
    state = paddle.load(str(path))
    assert state["conv2.weight"].shape == [24, 12, 3, 3]
    assert state["norm1.running_var"].dtype == paddle.float32
    # LibTorch keeps the weight of a linear layer the other way round.
    layer = paddle.nn.Linear(864, 5)
    weight, bias = state["classify.weight"], state["classify.bias"]
    layer.set_state_dict({"weight": paddle.transpose(weight, [1, 0]), "bias": bias})
    assert np.array_equal(layer.weight.numpy(), weight.numpy().T)


def test_two_ranks_learn_what_one_process_learns(results):
    one, two = (paddle.load(str(path)) for _, path in results)
    # Adam makes whole steps of rounding errors where a gradient is zero, as that of
    # a bias before batch norm is; so compare what the net computes with.
    for name in ("conv1.weight", "norm1.weight", "classify.weight"):
        a, b = one[name].numpy(), two[name].numpy()
        assert np.abs(a - b).max() < 0.02 * np.abs(a).max(), name


def test_wrong_flags_are_explained(tmp_path):
    done = run([TRAIN_CNN, "--speed", "9"], tmp_path)
    assert done.returncode == 2
    assert "usage: train_cnn" in done.stderr
