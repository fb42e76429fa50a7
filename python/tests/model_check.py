# SPDX-License-Identifier: Apache-2.0
"""What the tests of models on disk share."""

import pathlib

import numpy as np
import paddle
import pytest
from paddle import static

PEERS = pathlib.Path(__file__).parent / "data" / "saved_models"
NEW, OLD = PEERS / "paddle_2_6", PEERS / "paddle_1_8"


@pytest.fixture
def static_mode():
    paddle.enable_static()
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        paddle.utils.unique_name.guard(),
    ):
        yield
    paddle.disable_static()


@pytest.fixture
def exe():
    return static.Executor(paddle.CPUPlace())


def examples(path):
    """The inputs by name, and the outputs that Paddle computed."""
    with np.load(str(path) + ".npz") as arrays:
        arrays = dict(arrays)
    outputs = [arrays.pop(f"output_{i}") for i in range(9) if f"output_{i}" in arrays]
    return arrays, outputs


def check(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-5)


def net(size=3):
    x = static.data("x", [None, 4])
    label = static.data("label", [None, 1], "int64")
    hidden = static.nn.fc(x, 8, activation="tanh")
    y = paddle.nn.functional.softmax(static.nn.fc(hidden, size))
    loss = paddle.mean(paddle.nn.functional.cross_entropy(y, label))
    return x, label, y, loss


def started(exe):
    exe.run(static.default_startup_program())
    return np.random.RandomState(1).rand(6, 4).astype("float32")
