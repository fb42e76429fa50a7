# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest

N = 20000


def draw(function):
    paddle.seed(7)
    return function().numpy().astype("float64")


FUNCTIONS = {
    "rand": lambda: paddle.rand([N]),
    "randn": lambda: paddle.randn([N]),
    "standard_normal": lambda: paddle.standard_normal([N]),
    "normal": lambda: paddle.normal(2.0, 3.0, [N]),
    "uniform": lambda: paddle.uniform([N], min=-2.0, max=4.0),
    "randint": lambda: paddle.randint(-1, 5, [N]),
    "randint_like": lambda: paddle.randint_like(paddle.zeros([N]), -1, 5),
    "randperm": lambda: paddle.randperm(N),
    "bernoulli": lambda: paddle.bernoulli(paddle.full([N], 0.3)),
    "poisson": lambda: paddle.poisson(paddle.full([N], 4.0)),
    "multinomial": lambda: paddle.multinomial(
        paddle.to_tensor([1.0, 0.0, 3.0]), N, True
    ),
}

# Mean and variance of each.
MOMENTS = {
    "rand": (0.5, 1 / 12),
    "randn": (0, 1),
    "standard_normal": (0, 1),
    "normal": (2, 9),
    "uniform": (1, 3),
    "randint": (1.5, 35 / 12),
    "randint_like": (1.5, 35 / 12),
    "randperm": ((N - 1) / 2, (N**2 - 1) / 12),
    "bernoulli": (0.3, 0.21),
    "poisson": (4, 4),
    "multinomial": (1.5, 0.75),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_seed_decides_what_is_drawn(name):
    first, again = draw(FUNCTIONS[name]), draw(FUNCTIONS[name])
    np.testing.assert_array_equal(first, again)
    assert (FUNCTIONS[name]().numpy() != again).any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_moments_are_those_of_the_distribution(name):
    x = draw(FUNCTIONS[name])
    mean, variance = MOMENTS[name]
    # Six standard errors; the fourth moments here are below ten variances squared.
    assert abs(x.mean() - mean) <= 6 * (variance / N) ** 0.5
    assert abs(x.var() - variance) <= 6 * variance * (10 / N) ** 0.5


def test_ranges():
    assert 0 <= draw(FUNCTIONS["rand"]).min() and draw(FUNCTIONS["rand"]).max() < 1
    assert set(draw(FUNCTIONS["randint"])) == {-1, 0, 1, 2, 3, 4}
    assert set(draw(FUNCTIONS["multinomial"])) == {0, 2}
    assert sorted(draw(FUNCTIONS["randperm"])) == list(range(N))


def test_types():
    assert paddle.randn([10, 10], "float32").dtype == paddle.float32
    assert paddle.rand([2], "float64").dtype == paddle.float64
    assert paddle.uniform([2], "float64").dtype == paddle.float64
    assert paddle.randint(3, dtype="int32").dtype == paddle.int32
    assert paddle.randint(3).shape == [1]
    assert paddle.randint(3).dtype == paddle.int64
    assert paddle.randperm(3, "int32").dtype == paddle.int32
    assert paddle.randint_like(paddle.zeros([2]), 5).dtype == paddle.float32
    assert paddle.bernoulli(paddle.zeros([2], "float64")).dtype == paddle.float64


def test_random_tensors_carry_no_gradient():
    p = paddle.full([2], 0.5)
    p.stop_gradient = False
    assert paddle.bernoulli(p).stop_gradient and paddle.randn([2]).stop_gradient


def test_uniform_with_a_seed_of_its_own():
    first = paddle.uniform([5], seed=3)
    paddle.rand([7])
    np.testing.assert_array_equal(first.numpy(), paddle.uniform([5], seed=3).numpy())
    assert (first.numpy() != paddle.uniform([5], seed=4).numpy()).any()
    paddle.seed(1)
    want = paddle.rand([3]).numpy()
    paddle.seed(1)
    paddle.uniform([5], seed=3)
    np.testing.assert_array_equal(paddle.rand([3]).numpy(), want)


def test_normal_with_tensors():
    paddle.seed(5)
    mean = paddle.full([N, 2], 10.0)
    std = paddle.to_tensor(np.tile(np.float32([1, 3]), (N, 1)))
    x = paddle.normal(mean, std).numpy()
    np.testing.assert_allclose(x.mean(0), [10, 10], atol=0.15)
    np.testing.assert_allclose(x.std(0), [1, 3], rtol=0.05)
    assert paddle.normal(mean, 2.0).shape == [N, 2]
    assert paddle.normal(0.0, std).shape == [N, 2]
    assert paddle.normal().shape == [1]


def test_multinomial_rows_and_no_replacement():
    x = paddle.to_tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 1.0]])
    got = paddle.multinomial(x, 2).numpy()
    assert sorted(got[0]) == [1, 2] and sorted(got[1]) == [0, 2]


def test_truncated_normal_stays_within_two_deviations():
    x = paddle._ops.truncated_gaussian_random(shape=[N], mean=1.0, std=0.5).numpy()
    assert 0 <= x.min() and x.max() <= 2
    # The variance of the standard normal cut at two is 0.7737.
    np.testing.assert_allclose(x.mean(), 1.0, atol=0.02)
    np.testing.assert_allclose(x.var(), 0.25 * 0.7737, rtol=0.06)


def test_bad_input():
    with pytest.raises(ValueError, match="floating-point type, not"):
        paddle.rand([2], "int32")
    with pytest.raises(ValueError, match="low 5 must be below high 5"):
        paddle.randint(5, 5)
    with pytest.raises(TypeError, match="int32 or int64, not float32"):
        paddle.randint(5, dtype="float32")
    with pytest.raises(ValueError, match="n is 0"):
        paddle.randperm(0)
    with pytest.raises(ValueError, match="bernoulli.*outside of"):
        paddle.bernoulli(paddle.full([2], 1.5))
    with pytest.raises(ValueError, match="negative rate"):
        paddle.poisson(paddle.full([2], -1.0))
    with pytest.raises(ValueError, match="num_samples 4 without replacement from 3"):
        paddle.multinomial(paddle.ones([3]), 4)
    with pytest.raises(ValueError, match="min 1 is above max 0"):
        paddle.uniform([2], min=1.0, max=0.0)
    with pytest.raises(TypeError, match="'std' must be a number or a Tensor"):
        paddle.normal(0.0, "1")
    with pytest.raises(ValueError, match="shape .*-1"):
        paddle.randn([-1])
    with pytest.raises(TypeError, match="randint_like"):
        paddle.randint_like([1], 5)
