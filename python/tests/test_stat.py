# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import paddle
import pytest
import torch
from op_check import check, check_numpy, floats, ints


@pytest.mark.parametrize("axis", [None, 0, -1, [0, 2]])
@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("name", ["var", "std"])
def test_var_and_std(name, axis, unbiased, keepdim):
    axes = (0, 1, 2) if axis is None else axis
    check(
        lambda x: getattr(paddle, name)(x, axis, unbiased, keepdim),
        lambda x: getattr(torch, name)(x, axes, unbiased, keepdim),
        floats(3, 4, 2),
        second=True,
    )


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("size", [4, 5])
def test_median_is_numpys(axis, keepdim, size):
    check_numpy(
        lambda x: paddle.median(x, axis, keepdim),
        lambda x: np.median(x, axis, keepdims=keepdim),
        floats(3, size),
    )


def test_median_has_a_gradient():
    check(
        lambda x: paddle.median(x, 1),
        lambda x: torch.quantile(x, 0.5, 1),
        floats(3, 4),
    )


def test_median_of_integers_and_nan():
    assert paddle.median(paddle.to_tensor([1, 2, 3, 4])).tolist() == [2.5]
    assert paddle.median(paddle.to_tensor([1, 2])).dtype == paddle.float32
    assert math.isnan(paddle.median(paddle.to_tensor([1.0, math.nan, 3.0])).item())


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("q", [0.0, 0.3, 1.0, [0.25, 0.5, 0.9]])
def test_quantile(axis, q):
    def theirs(x):
        return torch.quantile(x, torch.tensor(q, dtype=x.dtype), axis)

    check(lambda x: paddle.quantile(x, q, axis), theirs, floats(5, 4))


def test_several_quantiles_of_the_only_axis():
    q = [0.25, 0.4]
    check(
        lambda x: paddle.quantile(x, q, 0),
        lambda x: torch.quantile(x, torch.tensor(q, dtype=x.dtype), 0),
        floats(5),
    )


def test_quantile_over_several_axes():
    check_numpy(
        lambda x: paddle.quantile(x, 0.3, [0, 2], keepdim=True),
        lambda x: np.quantile(x, 0.3, (0, 2), keepdims=True),
        floats(2, 3, 4),
    )


def test_histogram():
    x = floats(50)
    check_numpy(lambda x: paddle.histogram(x, 5), lambda x: np.histogram(x, 5)[0], x)
    check_numpy(
        lambda x: paddle.histogram(x, 4, -1, 1),
        lambda x: np.histogram(x, 4, (-1, 1))[0],
        x,
    )
    check_numpy(
        lambda x: paddle.histogram(x, 4, 0, 3),
        lambda x: np.histogram(x, 4, (0, 3))[0],
        ints(50),
    )


def test_bincount():
    x, w = ints(20, low=0, high=7), floats(20)
    check_numpy(paddle.bincount, np.bincount, x)
    check_numpy(paddle.bincount, np.bincount, x, w)
    check_numpy(
        lambda x: paddle.bincount(x, minlength=12),
        lambda x: np.bincount(x, minlength=12),
        x,
    )


def test_bad_input():
    x = paddle.ones([2, 3])
    with pytest.raises(ValueError, match="axis is 5"):
        paddle.median(x, 5)
    with pytest.raises(ValueError, match=r"q must lie in \[0, 1\]"):
        paddle.quantile(x, 1.5)
    with pytest.raises(ValueError, match="q is empty"):
        paddle.quantile(x, [])
    with pytest.raises(ValueError, match="bins must be positive"):
        paddle.histogram(x, 0)
    with pytest.raises(ValueError, match="one dimension"):
        paddle.bincount(paddle.ones([2, 2], "int64"))
    with pytest.raises(ValueError, match="bincount"):
        paddle.bincount(paddle.to_tensor([-1]))
    with pytest.raises(ValueError, match="empty"):
        paddle.median(paddle.zeros([0]))
    with pytest.raises(ValueError, match="floating-point"):
        paddle.var(paddle.to_tensor([1, 2]))
