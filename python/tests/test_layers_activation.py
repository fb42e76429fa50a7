# SPDX-License-Identifier: Apache-2.0
"""Activations as layers against torch or numpy."""

import numpy as np
import paddle
import pytest
import torch
from layer_check import compare, random_array
from paddle import nn

T = torch.nn

PAIRS = [
    (nn.ReLU(), T.ReLU()),
    (nn.ReLU6(), T.ReLU6()),
    (nn.Sigmoid(), T.Sigmoid()),
    (nn.Tanh(), T.Tanh()),
    (nn.Silu(), T.SiLU()),
    (nn.Swish(), T.SiLU()),
    (nn.Mish(), T.Mish()),
    (nn.Softsign(), T.Softsign()),
    (nn.Tanhshrink(), T.Tanhshrink()),
    (nn.LogSigmoid(), T.LogSigmoid()),
    (nn.Hardsigmoid(), T.Hardsigmoid()),
    (nn.Hardswish(), T.Hardswish()),
    (nn.GELU(), T.GELU()),
    (nn.GELU(approximate=True), T.GELU(approximate="tanh")),
    (nn.ELU(0.7), T.ELU(0.7)),
    (nn.CELU(0.7), T.CELU(0.7)),
    (nn.SELU(), T.SELU()),
    (nn.LeakyReLU(0.1), T.LeakyReLU(0.1)),
    (nn.Hardshrink(0.4), T.Hardshrink(0.4)),
    (nn.Softshrink(0.4), T.Softshrink(0.4)),
    (nn.ThresholdedReLU(0.6), T.Threshold(0.6, 0.0)),
    (nn.Hardtanh(-0.5, 0.8), T.Hardtanh(-0.5, 0.8)),
    (nn.Softplus(2, 1), T.Softplus(2, 1)),
    (nn.Softmax(axis=1), T.Softmax(dim=1)),
    (nn.LogSoftmax(axis=0), T.LogSoftmax(dim=0)),
    (nn.GLU(axis=1), T.GLU(dim=1)),
]


@pytest.mark.parametrize("ours, theirs", PAIRS, ids=lambda layer: repr(layer))
def test_activation(ours, theirs):
    compare(ours, theirs, [2 * random_array(5, 6)], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("count", [1, 4])
def test_prelu(count):
    ours, theirs = nn.PReLU(count, init=0.3), T.PReLU(count, init=0.3)
    x = random_array(3, 4, 2)
    compare(ours, theirs, [x], [(ours.weight, theirs.weight, False)])
    assert list(ours.state_dict()) == ["_weight"]


def test_maxout():
    x = random_array(2, 6, 3)
    out = nn.Maxout(2)(paddle.to_tensor(x)).numpy()
    np.testing.assert_array_equal(out, x.reshape(2, 3, 2, 3).max(axis=2))


def test_printing():
    assert repr(nn.ReLU()) == "ReLU()"
    assert repr(nn.LeakyReLU()) == "LeakyReLU(negative_slope=0.01)"
    assert repr(nn.Softmax()) == "Softmax(axis=-1)"
