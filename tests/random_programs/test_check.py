# SPDX-License-Identifier: Apache-2.0
"""What the comparisons allow: errors of float32 where terms cancel, edges of a loss."""

import dataclasses

import check
import numpy as np
import run
from draw import Draw
from model import Feed, Line, Model, Parameter, parameter_array

SGD = "paddle.optimizer.SGD(rate, parameters=PARAMETERS)"


def _model(lines, term, parameters=(), feeds=(), layers=()):
    return Model(
        number=5,
        batch=4,
        feeds=tuple(feeds),
        parameters=tuple(parameters),
        layers=tuple(Line((name,), text) for name, text in layers),
        lines=tuple(Line((name,), text) for name, text in lines),
        terms=(term,),
        rate="0.1",
        optimizer=SGD,
        steps=1,
    )


def _movement(model, name):
    """By how much errors of float32 move a gradient."""
    return max(
        check.movements(
            model, lambda a, b: np.abs(a.gradients[name] - b.gradients[name]).max()
        )
    )


def test_a_gradient_that_cancels_has_errors_of_the_size_of_its_terms():
    twice = _model(
        [("v2", "ops.cross(w1, w1, dim=1)")],
        "paddle.sum(v2)",
        [Parameter("w1", (2, 3))],
    )
    assert 1e-8 < _movement(twice, "w1") < 1e-5
    normed = _model(
        [("v4", "l2(x1)"), ("v5", "l3(v4)")],
        "paddle.mean(v5)",
        feeds=[Feed("x1", (4, 1, 5, 5))],
        layers=[("l2", "nn.Conv2D(1, 1, 1)"), ("l3", "nn.BatchNorm2D(1)")],
    )
    for name in ("l2.p0", "l2.p1"):
        assert 1e-9 < _movement(normed, name) < 1e-5


def test_what_cancels_inside_of_a_layer_has_errors_too():
    """A bias of all keys moves all scores of a row alike, which a softmax does not see."""
    model = _model(
        [("v4", "l2(x1)")],
        "paddle.mean(v4 * v4)",
        feeds=[Feed("x1", (4, 3, 4))],
        layers=[("l2", "nn.MultiHeadAttention(4, 2)")],
    )
    assert 1e-10 < _movement(model, "l2.p3") < 1e-6


def test_a_gradient_of_errors_alone_may_be_zero():
    """Lars takes the whole rate for a parameter whose gradient is zero."""
    model = _model(
        [("v4", "l2(x1)"), ("v5", "l3(v4)")],
        "paddle.mean(v5)",
        feeds=[Feed("x1", (4, 1, 5, 5))],
        layers=[("l2", "nn.Conv2D(1, 1, 1)"), ("l3", "nn.BatchNorm2D(1)")],
    )
    lars = SGD.replace("SGD(rate, ", "Lars(rate, epsilon=0.01, ")
    assert check.sensitivity(dataclasses.replace(model, optimizer=lars)) > 1e-6


def test_a_gradient_that_does_not_cancel_has_errors_of_its_own_size():
    plain = _model(
        [("v2", "paddle.exp(w1)")], "paddle.mean(v2) * 1e-3", [Parameter("w1", (2, 3))]
    )
    assert _movement(plain, "w1") < 1e-9


def test_an_edge_near_by_is_no_finding_and_a_wrong_slope_is_one():
    weight = Parameter("w1", (1,))
    model = _model([], "paddle.sum(w1)", [weight])
    edge = float(parameter_array(model, weight, "float64")[0]) + 7e-5
    near = _model(
        [("v2", f"w1 + F.relu(w1 - {edge!r}) * 1e-3")], "paddle.sum(v2)", [weight]
    )
    assert check.check(near, modes=("slope",)).failures == []
    # A gradient that is not that of the value.
    wrong = _model(
        [("v2", "w1 * 3.0 - w1.detach() * 3.0 + w1.detach()")],
        "paddle.sum(v2)",
        [weight],
    )
    found = check.check(wrong, modes=("slope",)).failures
    assert [failure.mode for failure in found] == ["slope"]


def test_layers_are_drawn_with_the_values_that_they_train_from():
    d = Draw(17)
    layer = d.layer("nn.Linear(3, 2)")
    drawn = [p.numpy() for p in d.envs[0][layer].parameters()]
    model = d.finish("0.1", SGD)
    env = run.environment("float32")
    first = run.first_values(
        model, run.make_parameters(model, env, "float32"), "float32"
    )
    for i, array in enumerate(drawn):
        np.testing.assert_array_equal(first[f"{layer}.p{i}"], array)
