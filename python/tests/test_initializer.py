# SPDX-License-Identifier: Apache-2.0
"""Initializers: values, spread, and repeatability."""

import math

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import initializer as I


def fill(initializer, shape, dtype="float32"):
    return nn.Layer().create_parameter(shape, initializer, dtype=dtype)


def test_constant():
    np.testing.assert_array_equal(fill(I.Constant(2.5), [2, 2]).numpy(), 2.5)
    assert fill(I.Constant(1), [3], "float64").dtype == paddle.float64
    with pytest.raises(TypeError, match="value must be a number"):
        I.Constant("one")


def test_assign_takes_arrays_lists_and_tensors():
    values = np.arange(6, dtype="float64").reshape(2, 3)
    for source in (values, values.tolist(), paddle.to_tensor(values)):
        p = fill(I.Assign(source), [2, 3])
        assert p.dtype == paddle.float32
        np.testing.assert_array_equal(p.numpy(), values)
    with pytest.raises(ValueError, match=r"shape \[2, 3\], but .* \[3, 2\]"):
        fill(I.Assign(values), [3, 2])
    with pytest.raises(TypeError, match="Assign"):
        I.Assign("abc")


def test_assign_does_not_share_memory():
    source = paddle.ones([3])
    p = fill(I.Assign(source), [3])
    p.set_value(np.zeros(3, "float32"))
    np.testing.assert_array_equal(source.numpy(), 1)


def moments(initializer, shape=(400, 500), dtype="float32"):
    paddle.seed(7)
    values = fill(initializer, list(shape), dtype).numpy().astype("float64")
    return values.mean(), values.std(), values.min(), values.max()


def test_normal():
    mean, std, low, high = moments(I.Normal(1.0, 2.0))
    assert abs(mean - 1.0) < 0.02
    assert abs(std - 2.0) < 0.02
    assert low < -6 and high > 8
    with pytest.raises(ValueError, match="std must not be negative"):
        I.Normal(0.0, -1.0)


def test_truncated_normal_stays_within_two_deviations():
    mean, std, low, high = moments(I.TruncatedNormal(1.0, 2.0))
    assert abs(mean - 1.0) < 0.02
    # Deviation of a standard normal cut at two: 0.8796.
    assert abs(std - 2.0 * 0.8796) < 0.02
    assert low >= -3 and high <= 5
    assert low < -2.9 and high > 4.9


def test_uniform():
    mean, std, low, high = moments(I.Uniform(-1.0, 3.0))
    assert abs(mean - 1.0) < 0.02
    assert abs(std - 4 / math.sqrt(12)) < 0.01
    assert -1.0 <= low < -0.99 and 2.99 < high <= 3.0
    with pytest.raises(ValueError, match="below low"):
        I.Uniform(1.0, 0.0)


@pytest.mark.parametrize(
    "initializer, variance, uniform",
    [
        (I.XavierNormal(), 2.0 / 900, False),
        (I.XavierUniform(), 2.0 / 900, True),
        (I.XavierUniform(fan_in=10, fan_out=20), 2.0 / 30, True),
        (I.XavierNormal(fan_in=10, fan_out=20), 2.0 / 30, False),
        (I.KaimingNormal(), 2.0 / 400, False),
        (I.KaimingUniform(), 2.0 / 400, True),
        (I.KaimingNormal(fan_in=50), 2.0 / 50, False),
        (
            I.KaimingUniform(negative_slope=0.5, nonlinearity="leaky_relu"),
            2.0 / 1.25 / 400,
            True,
        ),
    ],
)
def test_fans_decide_the_spread(initializer, variance, uniform):
    mean, std, low, high = moments(initializer)
    assert abs(std - math.sqrt(variance)) < 0.01 * math.sqrt(variance)
    assert abs(mean) < 0.01 * math.sqrt(variance)
    if uniform:
        limit = math.sqrt(3 * variance)
        assert -limit <= low < -0.99 * limit and 0.99 * limit < high <= limit
    else:
        assert high > 3 * math.sqrt(variance)


def test_fans_of_a_convolution():
    # Weight [out, in, 3, 3]: fan_in 9 * 40, fan_out 9 * 60.
    _, std, _, _ = moments(I.XavierNormal(), [60, 40, 3, 3])
    assert abs(std - math.sqrt(2.0 / 900)) < 0.02 * math.sqrt(2.0 / 900)


def test_layers_use_xavier_and_zeros():
    paddle.seed(3)
    linear = nn.Linear(300, 500)
    values = linear.weight.numpy()
    limit = math.sqrt(6.0 / 800)
    assert np.abs(values).max() <= limit
    assert abs(values.std() - limit / math.sqrt(3)) < 0.01 * limit
    np.testing.assert_array_equal(linear.bias.numpy(), 0)
    conv = nn.Conv2D(50, 60, 3)
    assert abs(conv.weight.numpy().std() - math.sqrt(2.0 / 450)) < 1e-3
    np.testing.assert_array_equal(conv.bias.numpy(), 0)


def test_the_seed_decides_everything():
    def draw():
        paddle.seed(11)
        return [
            fill(i, [20, 30]).numpy()
            for i in (
                I.Normal(),
                I.Uniform(),
                I.TruncatedNormal(),
                I.XavierUniform(),
                I.KaimingNormal(),
                I.Orthogonal(),
            )
        ]

    for first, second in zip(draw(), draw()):
        np.testing.assert_array_equal(first, second)
    paddle.seed(12)
    assert (fill(I.Normal(), [20, 30]).numpy() != draw()[0]).any()


def test_an_initializer_fills_again_in_place():
    p = fill(I.Constant(0.0), [4, 5])
    address = p._data_ptr()
    I.Normal()(p)
    assert p._data_ptr() == address
    assert p.numpy().std() > 0.1
    assert not p.stop_gradient


@pytest.mark.parametrize("shape", [[6, 4], [4, 6], [8, 2, 3, 3]])
def test_orthogonal(shape):
    q = fill(I.Orthogonal(gain=2.0), shape).numpy().reshape(shape[0], -1)
    if q.shape[0] > q.shape[1]:
        q = q.T
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(len(q)), atol=1e-5)
    with pytest.raises(ValueError, match="two dimensions"):
        fill(I.Orthogonal(), [3])


def test_dirac_passes_the_input_on():
    x = np.random.RandomState(0).randn(2, 3, 5, 5).astype("float32")
    conv = nn.Conv2D(3, 4, 3, padding=1, weight_attr=I.Dirac())
    out = conv(paddle.to_tensor(x)).numpy()
    np.testing.assert_allclose(out[:, :3], x, atol=1e-6)
    np.testing.assert_array_equal(out[:, 3], 0)
    grouped = fill(I.Dirac(groups=2), [4, 2, 3]).numpy()
    expected = np.zeros([4, 2, 3])
    for i, j in ((0, 0), (1, 1), (2, 0), (3, 1)):
        expected[i, j, 1] = 1
    np.testing.assert_array_equal(grouped, expected)
    with pytest.raises(ValueError, match="3, 4 or 5 dimensions"):
        fill(I.Dirac(), [3, 3])
    with pytest.raises(ValueError, match="2 groups"):
        fill(I.Dirac(groups=2), [3, 3, 3])


def test_bilinear_enlarges():
    weight = fill(I.Bilinear(), [1, 1, 4, 4]).numpy()[0, 0]
    line = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(weight, np.outer(line, line))
    with pytest.raises(ValueError, match="Bilinear"):
        fill(I.Bilinear(), [2, 2])


def test_calculate_gain():
    assert I.calculate_gain("tanh") == pytest.approx(5 / 3)
    assert I.calculate_gain("relu") == pytest.approx(math.sqrt(2))
    assert I.calculate_gain("leaky_relu", 1.0) == pytest.approx(1.0)
    assert I.calculate_gain("leaky_relu") == pytest.approx(math.sqrt(2 / 1.0001))
    assert I.calculate_gain("conv2d") == 1.0
    with pytest.raises(ValueError, match="unknown nonlinearity 'step'"):
        I.calculate_gain("step")


def test_global_initializer_is_used_where_none_is_named():
    I.set_global_initializer(I.Constant(2.0), I.Constant(3.0))
    try:
        layer = nn.Linear(2, 2)
        np.testing.assert_array_equal(layer.weight.numpy(), 2)
        np.testing.assert_array_equal(layer.bias.numpy(), 3)
        named = nn.Linear(2, 2, weight_attr=I.Constant(5.0))
        np.testing.assert_array_equal(named.weight.numpy(), 5)
    finally:
        I.set_global_initializer(None)
    np.testing.assert_array_equal(nn.Linear(2, 2).bias.numpy(), 0)
    with pytest.raises(TypeError, match="takes initializers"):
        I.set_global_initializer(0.5)
