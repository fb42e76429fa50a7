# SPDX-License-Identifier: Apache-2.0
import copy
import pickle

import numpy as np
import paddle
import pytest
from op_check import floats


def leaf(data, dtype="float32"):
    return paddle.to_tensor(data, dtype=dtype, stop_gradient=False)


# ---- reading


def test_item():
    assert paddle.to_tensor([2.5]).item() == 2.5
    assert isinstance(paddle.to_tensor([2]).item(), int)
    assert paddle.to_tensor([True]).item() is True
    x = paddle.to_tensor([[1, 2, 3], [4, 5, 6]])
    assert x.item(4) == 5
    assert x.item(-1) == 6
    assert x.item(1, 0) == 4
    assert x.item((0, 2)) == 3
    with pytest.raises(ValueError, match="6 elements"):
        x.item()
    with pytest.raises(IndexError, match="outside"):
        x.item(6)
    with pytest.raises(ValueError, match="3 indices"):
        x.item(0, 0, 0)


def test_tolist_and_numpy():
    x = paddle.to_tensor([[1, 2], [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]]
    array = x.numpy()
    array[0, 0] = 9
    assert x.tolist() == [[1, 2], [3, 4]]


def test_array_protocol():
    x = paddle.to_tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32
    assert np.array(x, dtype="float64").dtype == np.float64
    np.testing.assert_allclose(np.exp(x), np.exp([1.0, 2.0]), rtol=1e-6)
    if x.place.is_cpu_place():
        view = x.__array__(copy=False)
        assert np.shares_memory(view, x.__array__(copy=False))
        with pytest.raises(ValueError, match="without a copy"):
            x.__array__("float64", copy=False)


def test_conversion_to_python():
    x = paddle.to_tensor([3])
    assert int(x) == 3 and float(x) == 3.0 and complex(x) == 3
    assert list(range(5))[x] == 3
    assert bool(paddle.to_tensor([0.0])) is False
    with pytest.raises(ValueError, match="bool"):
        bool(paddle.ones([2]))
    with pytest.raises(ValueError, match="float"):
        float(paddle.ones([2]))
    with pytest.raises(TypeError, match="index"):
        list(range(5))[paddle.to_tensor([1.0])]


def test_len_iteration_and_membership():
    x = paddle.to_tensor([[1, 2], [3, 4], [5, 6]])
    assert len(x) == 3
    assert [row.tolist() for row in x] == [[1, 2], [3, 4], [5, 6]]
    assert 4 in x
    assert 7 not in x
    a, b, c = x
    assert b.tolist() == [3, 4]


def test_tensors_are_keys_by_identity():
    x, y = paddle.ones([1]), paddle.ones([1])
    table = {x: "x", y: "y"}
    assert table[x] == "x" and table[y] == "y"


def test_shape_and_type_members():
    x = paddle.zeros([2, 3], "float64")
    assert x.shape == [2, 3]
    assert (x.ndim, x.dim(), x.ndimension(), x.size) == (2, 2, 2, 6)
    assert x.element_size() == 8
    assert paddle.rank(x).tolist() == [2]
    assert x.numel().item() == 6
    assert x.is_floating_point() and not x.is_integer() and not x.is_complex()
    assert paddle.is_integer(paddle.to_tensor([1]))
    assert not paddle.is_integer(paddle.to_tensor([True]))
    assert paddle.is_complex(paddle.to_tensor([1j]))
    assert paddle.is_tensor(x) and not paddle.is_tensor(x.numpy())
    with pytest.raises(TypeError, match="is_floating_point"):
        paddle.is_floating_point(1.0)


def test_transpose_member():
    x = paddle.to_tensor(floats(2, 3, 4))
    assert x.T.shape == [4, 3, 2]
    np.testing.assert_array_equal(x.T.numpy(), x.numpy().T)


def test_every_function_is_a_method():
    from paddle import tensor

    modules = (tensor.math, tensor.logic, tensor.stat, tensor.linalg, tensor.inplace)
    x = paddle.ones([1])
    for module in modules:
        for name in module.__all__:
            assert callable(getattr(x, name)), name


# ---- copies, types and places


def test_clone_is_a_copy_with_gradient():
    x = leaf([1.0, 2.0])
    y = x.clone()
    (y * y).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    with paddle.no_grad():
        y[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


def test_astype_and_cast():
    x = leaf([1.7, -1.7])
    assert x.astype("int32").tolist() == [1, -1]
    assert x.astype(paddle.float64).dtype == paddle.float64
    assert x.cast(np.int64).dtype == paddle.int64
    x.astype("float64").sum().backward()
    assert x.grad.dtype == paddle.float32
    with pytest.raises(TypeError, match="no element type"):
        x.astype("float33")


def test_places():
    x = paddle.ones([2])
    assert x.cpu().place.is_cpu_place()
    assert x.pin_memory().tolist() == [1.0, 1.0]
    assert x.to("cpu").place == paddle.CPUPlace()
    assert x.to("float64").dtype == paddle.float64
    assert x.to("cpu", "int32").dtype == paddle.int32
    assert x.to(device=paddle.CPUPlace(), dtype="int64").dtype == paddle.int64
    assert x.to(paddle.zeros([1], "float64")).dtype == paddle.float64
    assert x.to(x.dtype).dtype is x.dtype
    with pytest.raises(TypeError, match="unknown argument"):
        x.to(devices="cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_deepcopy_and_pickle(dtype):
    x = paddle.to_tensor([1.0, 0.0]).astype(dtype)
    x.stop_gradient = dtype != "float32"
    x.note = ["kept"]
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.astype("float32").tolist() == [1.0, 0.0]
        assert twin.dtype == x.dtype
        assert twin.stop_gradient == x.stop_gradient
        assert twin.note == ["kept"]
        with paddle.no_grad():
            twin[0] = 0
        assert x.astype("float32").tolist() == [1.0, 0.0]


def test_element_types_can_be_pickled():
    assert pickle.loads(pickle.dumps(paddle.float32)) is paddle.float32


def test_deepcopy_of_a_result_is_refused():
    with pytest.raises(RuntimeError, match="leaf"):
        copy.deepcopy(leaf([1.0]) * 2)


def test_trainable_is_the_opposite_of_stop_gradient():
    x = leaf([1.0])
    assert x.trainable
    x.trainable = False
    assert x.stop_gradient


# ---- in place


def test_in_place_arithmetic():
    x = paddle.to_tensor([1.0, 4.0])
    same = x
    assert x.add_(paddle.to_tensor([1.0, 1.0])) is x
    assert same.tolist() == [2.0, 5.0]
    x.subtract_(paddle.to_tensor([1.0])).multiply_(paddle.to_tensor([4.0]))
    assert x.tolist() == [4.0, 16.0]
    assert x.sqrt_().tolist() == [2.0, 4.0]
    assert x.scale_(2.0, 1.0).tolist() == [5.0, 9.0]
    assert x.clip_(6.0, 8.0).tolist() == [6.0, 8.0]
    assert x.fill_(2.0).tolist() == [2.0, 2.0]
    assert x.zero_().tolist() == [0.0, 0.0]
    assert x.exp_().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "name", ["exp", "sqrt", "rsqrt", "tanh", "floor", "ceil", "round", "reciprocal"]
)
def test_in_place_functions_do_what_their_namesakes_do(name):
    data = floats(5, low=0.3, dtype="float32")
    x = paddle.to_tensor(data)
    getattr(x, name + "_")()
    expected = getattr(paddle, name)(paddle.to_tensor(data))
    np.testing.assert_array_equal(x.numpy(), expected.numpy())


def test_in_place_keeps_the_memory_of_parameters():
    x = leaf([1.0, 2.0])
    x.persistable = True
    where = x._data_ptr()
    with paddle.no_grad():
        x.add_(paddle.ones([2]))
        x.scale_(2.0)
        x.zero_()
        x.fill_(3.0)
        x.uniform_()
    assert x._data_ptr() == where


def test_gradients_flow_through_in_place_changes():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.add_(paddle.ones([2])).multiply_(y)
    y.sum().backward()
    # y = (2x + 1)^2
    assert x.grad.tolist() == [12.0, 20.0]


def test_in_place_on_a_leaf_that_wants_its_gradient_is_refused():
    x = leaf([1.0])
    for change in (lambda: x.add_(x), lambda: x.zero_(), lambda: x.uniform_()):
        with pytest.raises(ValueError, match="no_grad"):
            change()
    assert x.tolist() == [1.0]


def test_the_version_counts_changes_in_place():
    x = paddle.zeros([2])
    before = x.inplace_version
    x[0] = 1.0
    assert x.inplace_version > before


def test_in_place_cannot_change_the_shape():
    with pytest.raises(ValueError, match="cannot grow"):
        paddle.ones([1]).add_(paddle.ones([3]))


def test_in_place_keeps_the_type():
    x = paddle.to_tensor([1, 2])
    x.add_(paddle.to_tensor([0.6]))
    assert x.dtype == paddle.int64
    assert x.tolist() == [1, 2]


def test_random_in_place():
    paddle.seed(3)
    x = paddle.zeros([20000])
    u = x.uniform_(1.0, 3.0).numpy().copy()
    assert u.min() >= 1 and u.max() < 3 and abs(u.mean() - 2) < 0.02
    n = x.normal_(1.0, 2.0).numpy().copy()
    assert abs(n.mean() - 1) < 0.06 and abs(n.std() - 2) < 0.06
    e = x.exponential_(2.0).numpy()
    assert e.min() >= 0 and abs(e.mean() - 0.5) < 0.02


def test_fill_diagonal():
    x = paddle.zeros([3, 2])
    x.fill_diagonal_(1.0)
    assert x.tolist() == [[1, 0], [0, 1], [0, 0]]
    x = paddle.zeros([5, 2])
    x.fill_diagonal_(1.0, wrap=True)
    expected = np.zeros((5, 2))
    np.fill_diagonal(expected, 1.0, wrap=True)
    np.testing.assert_array_equal(x.numpy(), expected)
    with pytest.raises(ValueError, match="matrix"):
        paddle.zeros([3]).fill_diagonal_(1.0)


def test_set_value_checks_the_shape():
    x = paddle.zeros([2])
    x.set_value(np.array([1.0, 2.0], "float32"))
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="shape"):
        x.set_value(np.zeros((3,), "float32"))
