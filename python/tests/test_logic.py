# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import paddle
import pytest
import torch
from op_check import check, check_numpy, ints

COMPARISONS = [
    (paddle.equal, np.equal),
    (paddle.not_equal, np.not_equal),
    (paddle.less_than, np.less),
    (paddle.less_equal, np.less_equal),
    (paddle.greater_than, np.greater),
    (paddle.greater_equal, np.greater_equal),
]


@pytest.mark.parametrize("ours, numpys", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_comparisons(ours, numpys, dtype):
    x = ints(3, 4, low=0, high=3).astype(dtype)
    y = ints(4, low=0, high=3, seed=4).astype(dtype)
    check_numpy(ours, numpys, x, y)
    check_numpy(lambda x: ours(x, 1), lambda x: numpys(x, 1), x)


def test_comparisons_stop_gradients():
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    assert (x > 1).stop_gradient
    assert paddle.equal(x, x).dtype == paddle.bool


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_logic_of_two(name, dtype):
    x = ints(3, 4, low=0, high=2).astype(dtype)
    y = ints(4, low=0, high=2, seed=4).astype(dtype)
    check_numpy(getattr(paddle, name), getattr(np, name), x, y)


def test_logical_not():
    check_numpy(paddle.logical_not, np.logical_not, ints(5, low=0, high=2))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_bitwise_of_two(name, dtype):
    x = ints(3, 4, low=0, high=9).astype(dtype)
    y = ints(4, low=0, high=9, seed=4).astype(dtype)
    check(getattr(paddle, name), getattr(torch, name), x, y, grad=False)


def test_bitwise_not_and_operators():
    x, y = np.array([1, 6, -3]), np.array([3, 5, 2])
    check_numpy(paddle.bitwise_not, np.bitwise_not, x)
    check_numpy(lambda x, y: x & y, lambda x, y: x & y, x, y)
    check_numpy(lambda x, y: x | y, lambda x, y: x | y, x, y)
    check_numpy(lambda x, y: x ^ y, lambda x, y: x ^ y, x, y)
    check_numpy(lambda x: (~x) & 6 | 1, lambda x: (~x) & 6 | 1, x)
    check_numpy(lambda x: 6 & x ^ 1, lambda x: 6 & x ^ 1, x)


def test_mask_operators():
    x = np.array([1.0, 5.0, 9.0])
    check_numpy(
        lambda x: (x > 2) & ~(x > 8) | (x == 1), lambda x: np.array([1, 1, 0], bool), x
    )


def test_the_result_can_go_to_a_given_tensor():
    x, out = paddle.to_tensor([True, False]), paddle.to_tensor([True, True])
    assert paddle.logical_not(x, out=out) is out
    assert out.tolist() == [False, True]


def test_kinds_of_numbers():
    x = np.array([1.0, math.nan, math.inf, -math.inf], "float32")
    check_numpy(paddle.isnan, np.isnan, x)
    check_numpy(paddle.isinf, np.isinf, x)
    check_numpy(paddle.isfinite, np.isfinite, x)
    check_numpy(paddle.isfinite, np.isfinite, ints(3))


def test_isclose_and_allclose():
    x = np.array([1.0, 2.0, math.nan, math.inf])
    y = np.array([1.0 + 1e-7, 2.1, math.nan, math.inf])
    check_numpy(paddle.isclose, np.isclose, x, y)
    check_numpy(
        lambda x, y: paddle.isclose(x, y, 0.1, equal_nan=True),
        lambda x, y: np.isclose(x, y, 0.1, equal_nan=True),
        x,
        y,
    )
    check_numpy(paddle.allclose, np.allclose, x[:1], y[:1])
    check_numpy(paddle.allclose, np.allclose, x, y)
    assert paddle.allclose(paddle.ones([2]), paddle.ones([2])).shape == [1]


def test_equal_all():
    x = paddle.to_tensor([1, 2])
    assert paddle.equal_all(x, paddle.to_tensor([1, 2])).tolist() == [True]
    assert paddle.equal_all(x, paddle.to_tensor([1, 3])).tolist() == [False]
    assert paddle.equal_all(x, paddle.to_tensor([1, 2, 3])).tolist() == [False]


def test_is_empty():
    assert bool(paddle.is_empty(paddle.zeros([0, 3])))
    assert not bool(paddle.is_empty(paddle.zeros([1])))


def test_a_tensor_differs_from_what_it_cannot_be_compared_with():
    x = paddle.to_tensor([1.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(TypeError):
        x < "a"


def test_bad_input():
    with pytest.raises(ValueError, match="do not broadcast"):
        paddle.equal(paddle.ones([2]), paddle.ones([3]))
    with pytest.raises(ValueError, match="bitwise_and"):
        paddle.bitwise_and(paddle.ones([2]), paddle.ones([2]))
    with pytest.raises(TypeError, match="one of them must be a Tensor"):
        paddle.less_than(1, 2)
    with pytest.raises(TypeError, match="is_empty"):
        paddle.is_empty([1])
