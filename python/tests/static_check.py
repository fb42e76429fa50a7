# SPDX-License-Identifier: Apache-2.0
"""What tests of programs share."""

import numpy as np
import paddle
import pytest
import torch
from paddle import static


@pytest.fixture
def fresh_programs():
    """Static mode, programs and values of its own for each test."""
    paddle.enable_static()
    with (
        paddle.utils.unique_name.guard(),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        yield
    paddle.disable_static()


def run(fetch, feed=None, program=None):
    return static.Executor(paddle.CPUPlace()).run(program, feed, fetch)


def start():
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())


def value_of(name):
    return np.array(static.global_scope().find_var(name).get_tensor())


def peers(*names):
    """Torch's copies of values, which take gradients."""
    return [torch.tensor(value_of(name), requires_grad=True) for name in names]


def feed_of(name, array, **more):
    """The data variable for an array, of which the number of rows is open."""
    return static.data(name, [None, *array.shape[1:]], str(array.dtype), **more)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def op_types(program=None):
    program = static.default_main_program() if program is None else program
    return [op.type for op in program.global_block().ops]
