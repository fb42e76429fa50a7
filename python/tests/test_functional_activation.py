# SPDX-License-Identifier: Apache-2.0
"""Activations against torch: values, gradients, second derivatives."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
import torch.nn.functional as T
from op_check import check, floats

SMOOTH = {
    "relu": (F.relu, T.relu),
    "sigmoid": (F.sigmoid, torch.sigmoid),
    "tanh": (F.tanh, torch.tanh),
    "softmax": (F.softmax, lambda x: T.softmax(x, -1)),
    "softmax_axis": (lambda x: F.softmax(x, 0), lambda x: T.softmax(x, 0)),
    "log_softmax": (F.log_softmax, lambda x: T.log_softmax(x, -1)),
    "log_softmax_axis": (
        lambda x: F.log_softmax(x, axis=1),
        lambda x: T.log_softmax(x, 1),
    ),
    "gelu": (F.gelu, T.gelu),
    "gelu_tanh": (
        lambda x: F.gelu(x, True),
        lambda x: T.gelu(x, approximate="tanh"),
    ),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), lambda x: T.leaky_relu(x, 0.2)),
    "elu": (lambda x: F.elu(x, 0.7), lambda x: T.elu(x, 0.7)),
    "celu": (lambda x: F.celu(x, 0.7), lambda x: T.celu(x, 0.7)),
    "selu": (F.selu, T.selu),
    "relu6": (lambda x: F.relu6(4 * x), lambda x: T.relu6(4 * x)),
    "hardswish": (lambda x: F.hardswish(3 * x), lambda x: T.hardswish(3 * x)),
    "hardsigmoid": (
        lambda x: F.hardsigmoid(3 * x, 1 / 6),
        lambda x: torch.clamp(x / 2 + 0.5, 0, 1),
    ),
    "hardtanh": (
        lambda x: F.hardtanh(x, -0.5, 0.7),
        lambda x: T.hardtanh(x, -0.5, 0.7),
    ),
    "hardshrink": (F.hardshrink, T.hardshrink),
    "softshrink": (F.softshrink, T.softshrink),
    "softplus": (
        lambda x: F.softplus(x, 3, 2),
        lambda x: T.softplus(x, 3, 2),
    ),
    "softsign": (F.softsign, T.softsign),
    "swish": (F.swish, T.silu),
    "silu": (F.silu, T.silu),
    "mish": (F.mish, T.mish),
    "log_sigmoid": (F.log_sigmoid, T.logsigmoid),
    "tanhshrink": (F.tanhshrink, T.tanhshrink),
    "thresholded_relu": (
        lambda x: F.thresholded_relu(x, 0.3),
        lambda x: T.threshold(x, 0.3, 0.0),
    ),
    "glu": (lambda x: F.glu(x, 1), lambda x: T.glu(x, 1)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_is_what_torch_computes_up_to_the_second_derivative(name):
    ours, theirs = SMOOTH[name]
    check(ours, theirs, floats(3, 4, 5), second=True, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "softmax", "log_softmax"])
def test_small_floats_take_the_short_way_to_the_same_result(name):
    ours, theirs = SMOOTH[name]
    check(ours, theirs, floats(7, 9, dtype="float32"), rtol=1e-5, atol=1e-6)
    check(ours, theirs, floats(300, 70, dtype="float32"), rtol=1e-5, atol=1e-6)


def test_softmax_of_large_numbers_stays_finite():
    x = paddle.to_tensor([[1000.0, 1001.0], [-1000.0, -1001.0]])
    want = torch.softmax(torch.tensor([[1000.0, 1001.0], [-1000.0, -1001.0]]), -1)
    np.testing.assert_allclose(F.softmax(x).numpy(), want.numpy(), rtol=1e-6)


def test_softmax_of_nothing_is_nothing():
    x = paddle.to_tensor(np.zeros((0, 3), "float32"), stop_gradient=False)
    out = F.softmax(x)
    assert out.shape == [0, 3]
    out.sum().backward()
    assert x.grad.shape == [0, 3]


def test_softmax_converts_first_when_a_dtype_is_given():
    x = paddle.to_tensor(floats(2, 3, dtype="float32"))
    assert F.softmax(x, dtype="float64").dtype == paddle.float64
    assert F.log_softmax(x, dtype="float64").dtype == paddle.float64


def test_softmax_names_a_wrong_axis():
    with pytest.raises(ValueError, match="axis is 2 .*softmax|softmax.*axis is 2"):
        F.softmax(paddle.to_tensor(floats(2, 3)), axis=2)


@pytest.mark.parametrize("shape, count", [((2, 3, 4), 1), ((2, 3, 4), 3), ((5, 3), 3)])
def test_prelu(shape, count):
    check(F.prelu, T.prelu, floats(*shape), floats(count, seed=1), second=True)


def test_prelu_with_channels_last():
    x, w = floats(2, 4, 3), floats(3, seed=1)
    check(
        lambda x, w: F.prelu(x, w, "NLC"),
        lambda x, w: T.prelu(x.transpose(1, 2), w).transpose(1, 2),
        x,
        w,
    )


def test_prelu_wants_a_weight_for_each_channel():
    with pytest.raises(ValueError, match="one per channel"):
        F.prelu(paddle.to_tensor(floats(2, 3, 4)), paddle.to_tensor(floats(2)))


def test_maxout_takes_the_largest_of_each_group():
    check(
        lambda x: F.maxout(x, 2, 1),
        lambda x: x.reshape(2, 3, 2, 5).amax(2),
        floats(2, 6, 5),
    )
    with pytest.raises(ValueError, match="divide the 6 channels"):
        F.maxout(paddle.to_tensor(floats(2, 6, 5)), 4)


def test_gumbel_softmax_is_a_distribution_and_repeats_by_seed():
    x = paddle.to_tensor(floats(6, 5, dtype="float32"), stop_gradient=False)
    paddle.seed(3)
    one = F.gumbel_softmax(x, 0.5)
    paddle.seed(3)
    two = F.gumbel_softmax(x, 0.5)
    np.testing.assert_array_equal(one.numpy(), two.numpy())
    np.testing.assert_allclose(one.numpy().sum(-1), np.ones(6), rtol=1e-5)
    hard = F.gumbel_softmax(x, hard=True, axis=0)
    np.testing.assert_allclose(np.sort(hard.numpy(), 0)[-1], np.ones(5), rtol=1e-5)
    np.testing.assert_allclose(hard.numpy().sum(0), np.ones(5), rtol=1e-5)
    hard[0].sum().backward()
    assert np.abs(x.grad.numpy()).sum() > 0


def test_rrelu_draws_slopes_in_training_only():
    x = paddle.to_tensor(-np.ones((40, 5), "float32"))
    drawn = F.rrelu(x, 0.1, 0.3).numpy()
    assert drawn.min() >= -0.3 and drawn.max() <= -0.1 and drawn.std() > 0.01
    np.testing.assert_allclose(F.rrelu(x, 0.1, 0.3, False).numpy(), -0.2, rtol=1e-6)


def test_in_place_forms_replace_the_value():
    x = paddle.to_tensor([-1.0, 2.0])
    assert F.relu_(x) is x
    np.testing.assert_array_equal(x.numpy(), [0.0, 2.0])
    leaf = paddle.to_tensor([-1.0, 2.0], stop_gradient=False)
    with pytest.raises(ValueError, match="relu_.*in place"):
        F.relu_(leaf)


def test_bad_arguments_are_named():
    x = paddle.to_tensor(floats(2, 3))
    with pytest.raises(ValueError, match="glu: dimension -1 must be even"):
        F.glu(x)
    with pytest.raises(ValueError, match="min 1.* above max 0"):
        F.hardtanh(x, 1.0, 0.0)
    with pytest.raises(TypeError, match="must be a Tensor"):
        F.relu([1.0, 2.0])


OF_VIEWS = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate=True),
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "softplus": lambda x: F.softplus(x, 2.0, 5.0),
}


@pytest.mark.parametrize("name", OF_VIEWS)
def test_a_view_and_a_copy_of_it_have_equal_values_and_gradients(name):
    for seed in range(10):
        draw = np.random.default_rng(seed).standard_normal
        values, upstream = (draw((7, 12, 5)).astype("float32") for _ in range(2))
        results = []
        for of in (lambda x: paddle.split(x, [1, 11], 1)[1], lambda x: x):
            x = values if not results else np.ascontiguousarray(values[:, 1:])
            leaf = paddle.to_tensor(x, stop_gradient=False)
            out = OF_VIEWS[name](of(leaf))
            g = upstream if not results else np.ascontiguousarray(upstream[:, 1:])
            out.backward(of(paddle.to_tensor(g)))
            results.append((out.numpy(), leaf.grad.numpy()[:, -11:]))
        for view, copy in zip(*results):
            np.testing.assert_array_equal(view, copy)
