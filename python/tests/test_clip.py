# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping, inside an optimizer and by itself, against numpy."""

import numpy as np
import paddle
import pytest
from paddle import nn, optimizer

TOLERANCE = dict(rtol=1e-6, atol=1e-7)

GRADIENTS = [
    np.array([[3.0, -0.5], [0.25, -4.0]], "float32"),
    np.array([0.1, -0.2, 5.0], "float32"),
    np.array([0.01], "float32"),
]


def by_value(low, high):
    return [np.minimum(np.maximum(g, low), high) for g in GRADIENTS]


def by_norm(limit):
    norms = [np.sqrt((g.astype("float64") ** 2).sum()) for g in GRADIENTS]
    return [g * min(1.0, limit / n) for g, n in zip(GRADIENTS, norms)]


def by_global_norm(limit, counted=(0, 1, 2)):
    squares = sum((GRADIENTS[i].astype("float64") ** 2).sum() for i in counted)
    factor = min(1.0, limit / np.sqrt(squares))
    return [g * factor if i in counted else g for i, g in enumerate(GRADIENTS)]


CASES = {
    "value": (lambda: nn.ClipGradByValue(0.3), by_value(-0.3, 0.3)),
    "value_range": (lambda: nn.ClipGradByValue(max=1.0, min=0.0), by_value(0.0, 1.0)),
    "norm": (lambda: nn.ClipGradByNorm(0.5), by_norm(0.5)),
    "norm_not_reached": (lambda: nn.ClipGradByNorm(100.0), GRADIENTS),
    "global_norm": (lambda: nn.ClipGradByGlobalNorm(0.5), by_global_norm(0.5)),
    "global_norm_not_reached": (lambda: nn.ClipGradByGlobalNorm(100.0), GRADIENTS),
}


def zero_parameters():
    parameters = []
    for i, g in enumerate(GRADIENTS):
        p = paddle.to_tensor(np.zeros_like(g), stop_gradient=False)
        p.name = f"p{i}"
        p.grad = paddle.to_tensor(g)
        parameters.append(p)
    return parameters


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_an_optimizer_applies_clipped_gradients(name, foreach):
    make, expected = CASES[name]
    parameters = zero_parameters()
    sgd = optimizer.SGD(1.0, parameters=parameters, grad_clip=make())
    sgd._foreach = foreach
    sgd.step()
    for p, want, raw in zip(parameters, expected, GRADIENTS):
        # From zero, with a rate of one, the step is the clipped gradient.
        np.testing.assert_allclose(p.numpy(), -want, **TOLERANCE)
        np.testing.assert_array_equal(p.grad.numpy(), raw)


@pytest.mark.parametrize("name", CASES)
def test_a_clip_can_be_called(name):
    make, expected = CASES[name]
    pairs = [(p, p.grad) for p in zero_parameters()]
    pairs.append((pairs[0][0], None))
    clipped = make()(pairs)
    for (p, g), want, (before, _) in zip(clipped, expected, pairs):
        assert p is before
        np.testing.assert_allclose(g.numpy(), want, **TOLERANCE)
    assert clipped[-1][1] is None


def test_need_clip_false_is_neither_counted_nor_clipped():
    parameters = zero_parameters()
    parameters[1].need_clip = False
    clip = nn.ClipGradByGlobalNorm(0.5)
    expected = by_global_norm(0.5, counted=(0, 2))
    for (_, g), want in zip(clip([(p, p.grad) for p in parameters]), expected):
        np.testing.assert_allclose(g.numpy(), want, **TOLERANCE)
    optimizer.SGD(1.0, parameters=parameters, grad_clip=clip).step()
    for p, want in zip(parameters, expected):
        np.testing.assert_allclose(p.numpy(), -want, **TOLERANCE)


def test_clipping_comes_before_weight_decay():
    p = paddle.to_tensor(np.array([2.0], "float32"), stop_gradient=False)
    p.grad = paddle.to_tensor(np.array([8.0], "float32"))
    sgd = optimizer.SGD(
        0.1, parameters=[p], weight_decay=0.25, grad_clip=nn.ClipGradByValue(1.0)
    )
    sgd.step()
    np.testing.assert_allclose(p.numpy(), [2.0 - 0.1 * (1.0 + 0.25 * 2.0)], **TOLERANCE)


def test_the_norm_is_taken_in_double():
    # In float32 the sum of squares would overflow.
    p = paddle.to_tensor(np.zeros(4, "float32"), stop_gradient=False)
    p.grad = paddle.to_tensor(np.full(4, 1e15, "float32"))
    optimizer.SGD(1.0, parameters=[p], grad_clip=nn.ClipGradByGlobalNorm(2.0)).step()
    np.testing.assert_allclose(p.numpy(), -np.ones(4), rtol=1e-6)


def test_clips_say_what_they_are():
    assert str(nn.ClipGradByValue(0.3)) == (
        "Clip Gradient By Value, min = -0.300000, max=0.300000"
    )
    assert str(nn.ClipGradByNorm(0.2)) == "Gradient Clip By Norm, clip_norm=0.200000"
    assert str(nn.ClipGradByGlobalNorm(0.1)) == (
        "Gradient Clip By GlobalNorm, global_norm=0.100000"
    )


def test_bad_clips_are_refused():
    with pytest.raises(ValueError, match="max must be above 0"):
        nn.ClipGradByValue(-1.0)
    with pytest.raises(ValueError, match="larger than max"):
        nn.ClipGradByValue(max=1.0, min=2.0)
    with pytest.raises(TypeError, match="grad_clip must be"):
        optimizer.SGD(0.1, grad_clip=0.5)
