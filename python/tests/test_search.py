# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest
import torch
from op_check import check, floats
from paddle.tensor import search as s

X = floats(2, 3, 4)


def tensor(data, **kwargs):
    return paddle.to_tensor(data, **kwargs)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_argmin(name, axis, keepdim):
    check(
        lambda x: getattr(s, name)(x, axis, keepdim),
        lambda x: getattr(torch, name)(x, axis, keepdim),
        X,
    )


def test_argmax_of_all():
    got = s.argmax(tensor(X))
    assert got.shape == [1] and got.dtype == paddle.int64
    assert got.item() == X.argmax()
    assert s.argmax(tensor(X), keepdim=True).shape == [1, 1, 1]
    assert s.argmin(tensor(X), dtype="int32").dtype == paddle.int32
    assert s.argmax(tensor([3, 7, 5]), axis=0).shape == [1]


def test_argmax_bad_input():
    x = tensor(X)
    with pytest.raises(
        ValueError, match=r"arg_max\(X float64 \[2, 3, 4\]\).*axis is 3"
    ):
        s.argmax(x, 3)
    with pytest.raises(ValueError, match="int32 or int64, not float32"):
        s.argmax(x, 0, dtype="float32")
    with pytest.raises(ValueError, match="None"):
        s.argmax(x, dtype=None)
    with pytest.raises(TypeError, match="must be a Tensor"):
        s.argmax([1, 2])
    with pytest.raises(ValueError, match="x is empty"):
        s.argmax(paddle.zeros([0]))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_topk(axis, largest):
    check(
        lambda x: s.topk(x, 2, axis, largest),
        lambda x: torch.topk(x, 2, -1 if axis is None else axis, largest),
        X,
        second=True,
    )


def test_topk_takes_a_tensor_for_k():
    values, indices = s.topk(tensor([1.0, 4.0, 5.0, 7.0]), tensor([2]))
    assert values.numpy().tolist() == [7, 5] and indices.numpy().tolist() == [3, 2]
    assert indices.stop_gradient and indices.dtype == paddle.int64


def test_topk_bad_input():
    with pytest.raises(
        ValueError, match=r"top_k_v2.*k is 5 but dimension 2 of x has 4"
    ):
        s.topk(tensor(X), 5)
    with pytest.raises(ValueError, match="k is 0"):
        s.topk(tensor(X), 0)
    with pytest.raises(TypeError, match="'k' must be an integer, but got str"):
        s.topk(tensor(X), "2")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [-1, 0])
def test_sort_and_argsort(axis, descending):
    check(
        lambda x: s.sort(x, axis, descending),
        lambda x: torch.sort(x, axis, descending)[0],
        X,
        second=True,
    )
    check(
        lambda x: s.argsort(x, axis, descending),
        lambda x: torch.sort(x.detach(), dim=axis, descending=descending)[1],
        X,
    )


def test_sort_keeps_the_order_of_equals():
    got = s.argsort(tensor([2, 1, 2, 1, 2]))
    assert got.numpy().tolist() == [1, 3, 0, 2, 4]
    with pytest.raises(ValueError, match="argsort.*axis is 1"):
        s.sort(tensor([1, 2]), 1)


def test_nonzero():
    x = np.array([[0, 1.5], [2, 0], [0, 0]], "float32")
    got = s.nonzero(tensor(x))
    np.testing.assert_array_equal(got.numpy(), np.argwhere(x))
    assert got.dtype == paddle.int64
    rows, columns = s.nonzero(tensor(x), as_tuple=True)
    assert rows.shape == [2, 1]
    assert rows.numpy().tolist() == [[0], [1]]
    assert columns.numpy().tolist() == [[1], [0]]
    assert s.nonzero(paddle.zeros([2, 3])).shape == [0, 2]


def test_where_with_one_argument_is_nonzero():
    condition = tensor([False, True, True])
    (got,) = s.where(condition)
    assert got.numpy().tolist() == [[1], [2]]


def test_where():
    condition = floats(2, 3) > 0
    check(
        s.where,
        torch.where,
        condition,
        floats(2, 3, seed=1),
        floats(2, 3, seed=2),
        second=True,
    )


def test_where_broadcasts_and_takes_numbers():
    check(s.where, torch.where, floats(2, 1) > 0, floats(3), floats(1, 1, seed=1))
    got = s.where(tensor([True, False]), tensor([1.0, 2.0]), 0.0)
    assert got.numpy().tolist() == [1, 0] and got.dtype == paddle.float32
    got = s.where(tensor([True, False]), 5, tensor([1, 2]))
    assert got.numpy().tolist() == [5, 2] and got.dtype == paddle.int64


def test_where_bad_input():
    x, y = paddle.zeros([2]), paddle.zeros([3])
    with pytest.raises(ValueError, match="both of x and y"):
        s.where(tensor([True, False]), x)
    with pytest.raises(ValueError, match="condition must be bool, not float32"):
        s.where(x, x, x)
    with pytest.raises(ValueError, match="x is float32 but y is int64"):
        s.where(tensor([True, False]), x, paddle.zeros([2], "int64"))
    with pytest.raises(ValueError, match="do not broadcast: 2 against 3"):
        s.where(tensor([True, False]), x, y)


def test_masked_select():
    check(s.masked_select, torch.masked_select, X, X > 0.2, second=True)
    with pytest.raises(ValueError, match=r"mask \[3\] must have the shape of x"):
        s.masked_select(paddle.zeros([2, 3]), tensor([True, False, True]))
    with pytest.raises(ValueError, match="mask must be bool, not int64"):
        s.masked_select(paddle.zeros([2]), tensor([1, 0]))


def test_unique():
    x = np.array([[2, 3, 3], [1, 5, 3]])
    got = s.unique(tensor(x), True, True, True)
    want = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w.reshape(-1))
        assert g.dtype == paddle.int64
    np.testing.assert_array_equal(s.unique(tensor(x)).numpy(), want[0])
    values, counts = s.unique(tensor(x), return_counts=True, dtype="int32")
    assert counts.dtype == paddle.int32 and counts.numpy().tolist() == [1, 1, 3, 1]


def test_unique_along_an_axis():
    x = np.array([[2.0, 1, 2], [0, 0, 0], [2, 1, 2]])
    got = s.unique(tensor(x), True, True, True, axis=0)
    want = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=0
    )
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w)
    got = s.unique(tensor(x), axis=1)
    np.testing.assert_array_equal(got.numpy(), np.unique(x, axis=1))


def test_unique_bad_input():
    with pytest.raises(ValueError, match="axis is 2"):
        s.unique(paddle.zeros([2, 2]), axis=2)
    with pytest.raises(ValueError, match="int32 or int64"):
        s.unique(paddle.zeros([2, 2]), dtype="float32")


def test_functions_are_methods_too():
    x = tensor([[1.0, 3.0, 2.0]])
    assert x.argmax().item() == 1
    assert x.argsort().numpy().tolist() == [[0, 2, 1]]
    assert x.topk(1)[0].item() == 3
    assert (x > 1.5).nonzero().shape == [2, 2]
