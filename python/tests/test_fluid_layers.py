# SPDX-License-Identifier: Apache-2.0
"""The layers of paddle.fluid in static mode."""

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle.fluid import layers
from static_check import drawn, fresh_programs, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")


def test_data_prepends_the_batch_only_where_it_is_missing():
    assert layers.data("a", [3, 4]).shape == [-1, 3, 4]
    assert layers.data("b", [-1, 4]).shape == [-1, 4]
    assert layers.data("c", [None, 4]).shape == [-1, 4]
    assert layers.data("d", [3, 4], append_batch_size=False).shape == [3, 4]
    assert not layers.data("e", [3], stop_gradient=False).stop_gradient
    assert fluid.data("f", [None, 3], "int64").dtype == paddle.int64


def test_embedding_drops_the_last_one_and_fluid_embedding_keeps_it():
    ids = layers.data("ids", [1], dtype="int64")
    old = layers.embedding(ids, [5, 2], param_attr="t", padding_idx=1)
    new = fluid.embedding(ids, [5, 2], param_attr="t", padding_idx=1)
    assert (old.shape, new.shape) == ([-1, 2], [-1, 1, 2])
    start()
    a, b = run([old, new], {"ids": np.array([[1], [3]])})
    np.testing.assert_array_equal(a, b[:, 0])
    assert not a[0].any() and a[1].any()
    with pytest.raises(ValueError, match="padding_idx 7"):
        layers.embedding(ids, [5, 2], padding_idx=7)


@pytest.mark.parametrize(
    "name, of",
    [
        ("elementwise_add", np.add),
        ("elementwise_sub", np.subtract),
        ("elementwise_mul", np.multiply),
        ("elementwise_div", np.divide),
        ("elementwise_max", np.maximum),
        ("elementwise_min", np.minimum),
    ],
)
def test_elementwise_with_axis_and_activation(name, of):
    x, y = layers.data("x", [3, 4]), layers.data("y", [3], append_batch_size=False)
    out = getattr(layers, name)(x, y, axis=1, act="relu")
    a, b = drawn(2, 3, 4), drawn(3, seed=1)
    (got,) = run([out], {"x": a, "y": b})
    np.testing.assert_allclose(got, np.maximum(of(a, b[:, None]), 0), 1e-5)


def test_functions_of_open_batches():
    x, y = layers.data("x", [3, 4]), layers.data("y", [12])
    outs = {
        "flat": layers.flatten(x),
        "whole": layers.flatten(x, axis=0),
        "mul": layers.mul(x, layers.create_parameter([12, 2], "float32", name="w")),
        "reshaped": layers.reshape(x, [-1, 12]),
        "normal": layers.l2_normalize(y, axis=1),
        "cos": layers.cos_sim(y, layers.reshape(x, [-1, 12])),
        "like": layers.fill_constant_batch_size_like(x, [-1, 5], "float32", 2.5),
        "pool": layers.pool2d(layers.reshape(x, [-1, 3, 2, 2]), global_pooling=True),
        "concat": layers.concat([y, layers.flatten(x)], axis=1),
        "sum": layers.reduce_sum(x, dim=[1, 2]),
        "mean": layers.reduce_mean(x, dim=-1, keep_dim=True),
        "top": layers.topk(y, k=2)[0],
        "softsign": layers.softsign(y),
        "floor": layers.ops.floor(layers.ops.cos(y)),
        "log": layers.log_loss(layers.sigmoid(y), layers.sigmoid(y)),
        "cost": layers.square_error_cost(y, layers.square(y)),
    }
    start()
    a, b = drawn(2, 3, 4), drawn(2, 12, seed=1)
    got = dict(zip(outs, run(list(outs.values()), {"x": a, "y": b})))
    flat = a.reshape(2, 12)
    np.testing.assert_array_equal(got["flat"], flat)
    np.testing.assert_array_equal(got["whole"], a.reshape(1, 24))
    np.testing.assert_allclose(got["mul"], flat @ value_of("w"), 1e-5)
    np.testing.assert_array_equal(got["reshaped"], flat)
    length = np.sqrt((b**2).sum(1, keepdims=True))
    np.testing.assert_allclose(got["normal"], b / length, 1e-5)
    cosine = (b * flat).sum(1) / (length[:, 0] * np.sqrt((flat**2).sum(1)))
    np.testing.assert_allclose(got["cos"], cosine[:, None], 1e-5)
    np.testing.assert_array_equal(got["like"], np.full((2, 5), 2.5))
    np.testing.assert_array_equal(got["pool"][:, :, 0, 0], a.max(2))
    np.testing.assert_array_equal(got["concat"], np.concatenate([b, flat], 1))
    np.testing.assert_allclose(got["sum"], a.sum((1, 2)), 1e-5)
    np.testing.assert_allclose(got["mean"], a.mean(-1, keepdims=True), 1e-5, 1e-6)
    np.testing.assert_array_equal(got["top"], -np.sort(-b, 1)[:, :2])
    np.testing.assert_allclose(got["softsign"], b / (1 + np.abs(b)), 1e-5)
    np.testing.assert_array_equal(got["floor"], np.floor(np.cos(b)))
    s = 1 / (1 + np.exp(-b))
    wanted = -s * np.log(s + 1e-4) - (1 - s) * np.log(1 - s + 1e-4)
    np.testing.assert_allclose(got["log"], wanted, 1e-4)
    np.testing.assert_allclose(got["cost"], (b - b**2) ** 2, 1e-4, 1e-5)


def test_dropout_is_off_in_programs_for_tests():
    x = layers.data("x", [50])
    out = layers.dropout(x, 0.5)
    test = fluid.default_main_program().clone(for_test=True)
    value = np.ones((4, 50), "float32")
    (trained,) = run([out], {"x": value})
    assert 0 < (trained == 0).sum() < 200 and set(np.unique(trained)) == {0.0, 1.0}
    (tested,) = run([out.name], {"x": value}, test)
    np.testing.assert_allclose(tested, value * 0.5)  # downgrade_in_infer


def test_seeds_of_layers():
    drawn_twice = [layers.gaussian_random([3, 4], 1.0, 2.0, seed=5) for _ in range(2)]
    other = layers.gaussian_random([3, 4], 1.0, 2.0, seed=6, dtype="float64")
    first, second, third = run([*drawn_twice, other])
    np.testing.assert_array_equal(first, second)
    assert third.dtype == np.float64 and not np.array_equal(first, third)
    x = layers.data("x", [3])
    with pytest.raises(ValueError, match="dropout: a seed of its own .3.*paddle.seed"):
        layers.dropout(x, 0.5, seed=3)
    with pytest.raises(ValueError, match="Dropout: a seed"):
        fluid.dygraph.Dropout(0.5, seed=3)


def test_auc_and_metrics_over_batches():
    x, y = layers.data("x", [2]), layers.data("y", [1], dtype="int64")
    area, last, states = layers.auc(input=x, label=y, num_thresholds=255)
    assert len(states) == 4
    start()
    scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], "float32")
    labels = np.array([[0], [1], [1], [0]])
    got = run([area, last], {"x": scores, "y": labels})
    np.testing.assert_allclose(got, [[0.5], [0.5]], 1e-6)
    metric = fluid.metrics.Auc("auc", num_thresholds=255)
    metric.update(scores, labels)
    np.testing.assert_allclose(metric.eval(), 0.5, 1e-6)


def test_nets():
    img = layers.data("img", [4, 8, 8])
    group = fluid.nets.img_conv_group(
        img, [3, 5], 2, conv_act="relu", conv_with_batchnorm=True, pool_stride=2
    )
    assert group.shape == [-1, 5, 4, 4]
    glu = fluid.nets.glu(layers.data("x", [6]))
    start()
    value = drawn(2, 6)
    (got,) = run([glu], {"x": value, "img": drawn(2, 4, 8, 8)})
    np.testing.assert_allclose(
        got, value[:, :3] / (1 + np.exp(-value[:, 3:])), 1e-5, 1e-6
    )
    with pytest.raises(ValueError, match="2 convolutions"):
        fluid.nets.img_conv_group(img, [3, 5], 2, conv_padding=[1])
