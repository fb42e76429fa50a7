# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest
import torch
from op_check import check, floats

# ---- to_tensor


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        (1.5, "float32", [1]),
        (3, "int64", [1]),
        (True, "bool", [1]),
        ([1.0, 2.0], "float32", [2]),
        ([1, 2.5], "float32", [2]),
        ([[1, 2], [3, 4]], "int64", [2, 2]),
        ((True, False), "bool", [2]),
        (1 + 2j, "complex64", [1]),
        (np.float64(1.5), "float32", [1]),
        (np.int32(3), "int32", [1]),
        (np.zeros([2, 0]), "float64", [2, 0]),
        (np.zeros(3, "float16"), "float16", [3]),
        (np.array(5), "int64", []),
        ([], "float32", [0]),
        ([np.zeros(2), np.ones(2)], "float32", [2, 2]),
    ],
)
def test_to_tensor_picks_type_and_shape(data, dtype, shape):
    x = paddle.to_tensor(data)
    assert x.dtype.name == dtype and x.shape == shape
    assert x.stop_gradient
    np.testing.assert_array_equal(x.numpy(), np.array(data).reshape(shape))


def test_to_tensor_with_dtype_and_gradient():
    x = paddle.to_tensor([1, 2], dtype="float64", stop_gradient=False)
    assert x.dtype == paddle.float64 and not x.stop_gradient and x.is_leaf
    assert paddle.to_tensor([1.7], "int32").numpy().tolist() == [1]
    assert paddle.to_tensor(np.zeros(2), np.float32).dtype == paddle.float32


def test_to_tensor_follows_the_default_dtype():
    paddle.set_default_dtype("float64")
    try:
        assert paddle.to_tensor([1.5]).dtype == paddle.float64
        assert paddle.zeros([1]).dtype == paddle.float64
        assert paddle.rand([1]).dtype == paddle.float64
        assert paddle.to_tensor([1j]).dtype == paddle.complex128
        paddle.set_default_dtype("bfloat16")
        assert paddle.to_tensor([1.5]).dtype == paddle.bfloat16
    finally:
        paddle.set_default_dtype("float32")


def test_to_tensor_copies():
    array = np.zeros(2, "float32")
    x = paddle.to_tensor(array)
    array[0] = 1
    assert x.numpy().tolist() == [0, 0]
    y = paddle.to_tensor(x)
    x[1] = 2.0
    assert y.numpy().tolist() == [0, 0]
    assert paddle.to_tensor(x, dtype="int64").dtype == paddle.int64


def test_to_tensor_of_strided_arrays():
    array = np.arange(12).reshape(3, 4)
    for view in (array[::2, 1:], array.T, array[::-1, ::-2]):
        np.testing.assert_array_equal(paddle.to_tensor(view).numpy(), view)


def test_to_tensor_of_a_list_of_tensors():
    a, b = paddle.to_tensor([1.0]), paddle.to_tensor([2.0])
    assert paddle.to_tensor([a, b]).numpy().tolist() == [1, 2]
    rows = paddle.to_tensor([paddle.zeros([2]), paddle.ones([2])])
    assert rows.numpy().tolist() == [[0, 0], [1, 1]]
    assert paddle.to_tensor([3.0, a]).numpy().tolist() == [3, 1]
    assert paddle.to_tensor([[a, b], [b, a]]).numpy().tolist() == [[1, 2], [2, 1]]


def test_to_tensor_place():
    assert paddle.to_tensor([1.0], place=paddle.CPUPlace()).place.is_cpu_place()
    assert paddle.to_tensor([1.0], place="cpu").place.is_cpu_place()
    with pytest.raises(ValueError, match="unknown device"):
        paddle.to_tensor([1.0], place="abacus")
    with pytest.raises(TypeError, match="place"):
        paddle.to_tensor([1.0], place=3)


def test_to_tensor_of_unsigned_integers():
    assert paddle.to_tensor(np.array([7], "uint8")).dtype == paddle.uint8
    assert paddle.to_tensor(np.array([2**32 - 1], "uint32")).item() == 2**32 - 1
    with pytest.raises(ValueError, match="does not fit int64"):
        paddle.to_tensor(np.array([2**63], "uint64"))


def test_to_tensor_bad_input():
    with pytest.raises(ValueError, match="regular array"):
        paddle.to_tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match="got object"):
        paddle.to_tensor(object())
    with pytest.raises(TypeError, match="to_tensor"):
        paddle.to_tensor("text")
    with pytest.raises(TypeError, match="to_tensor"):
        paddle.to_tensor(["a", "b"])
    with pytest.raises(TypeError, match="to_tensor"):
        paddle.to_tensor([None, 1])
    with pytest.raises(TypeError, match="'complex32' is no element type"):
        paddle.to_tensor([1], dtype="complex32")


def test_assign_and_clone_copy_and_pass_gradients():
    check(paddle.assign, lambda x: x.clone(), floats(2, 3), second=True)
    check(paddle.clone, lambda x: x.clone(), floats(2, 3))
    x = paddle.zeros([2])
    for copy in (paddle.assign(x), paddle.clone(x)):
        copy[0] = 1.0
        assert x.numpy().tolist() == [0, 0]


def test_assign_takes_arrays_and_an_output():
    assert paddle.assign(np.array([1, 2], "float32")).numpy().tolist() == [1, 2]
    assert paddle.assign([1, 2]).dtype == paddle.int64
    out = paddle.zeros([3])
    assert paddle.assign(paddle.ones([2]), out) is out
    assert out.numpy().tolist() == [1, 1]
    with pytest.raises(TypeError, match="'output'"):
        paddle.assign(out, [1])


def test_assign_leaves_a_parameter_a_parameter():
    weight = paddle.nn.Linear(2, 2).weight
    place = weight._data_ptr()
    with paddle.no_grad():
        paddle.assign(paddle.ones([2, 2]), weight)
    assert weight.numpy().tolist() == [[1, 1], [1, 1]]
    assert weight._data_ptr() == place and weight.is_leaf and not weight.stop_gradient
    with pytest.raises(ValueError, match=r"has shape \[2, 2\] but the value has \[3\]"):
        paddle.assign(paddle.ones([3]), weight)


# ---- constants


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_full_zeros_ones(dtype):
    for got, want in [
        (paddle.full([2, 3], 1, dtype), np.full((2, 3), 1, dtype)),
        (paddle.zeros((2,), dtype), np.zeros(2, dtype)),
        (paddle.ones([1, 2], dtype), np.ones((1, 2), dtype)),
    ]:
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(got.numpy(), want)


def test_full_takes_many_kinds_of_values():
    assert paddle.full([2], 2.5).dtype == paddle.float32
    assert paddle.full([2], 3).dtype == paddle.float32
    assert paddle.full([1], 2**62 + 1, "int64").item() == 2**62 + 1
    assert paddle.full([1], -(2**62) - 1, "int64").item() == -(2**62) - 1
    assert paddle.full([2], paddle.to_tensor([7.0])).numpy().tolist() == [7, 7]
    assert paddle.full([2], np.float32(1.5)).numpy().tolist() == [1.5, 1.5]
    assert np.isinf(paddle.full([1], float("inf")).item())
    assert paddle.full([], 1.0).shape == []


@pytest.mark.parametrize(
    "shape",
    [
        [2, 3],
        (2, 3),
        np.array([2, 3]),
        [np.int64(2), 3],
    ],
)
def test_shapes_of_numbers(shape):
    for x in (paddle.zeros(shape), paddle.empty(shape), paddle.randn(shape)):
        assert x.shape == [2, 3]


def test_shapes_of_tensors():
    two = paddle.to_tensor([2], dtype="int32")
    shape = paddle.to_tensor([2, 3])
    for make in (paddle.zeros, paddle.ones, paddle.empty, paddle.rand, paddle.randn):
        assert make([two, 3]).shape == [2, 3]
        assert make(shape).shape == [2, 3]
    assert paddle.full(paddle.shape(paddle.zeros([4, 5])), 1.0).shape == [4, 5]
    assert paddle.randint(0, 5, [two, two]).shape == [2, 2]
    assert paddle.zeros(4).shape == [4]


def test_bad_shapes():
    with pytest.raises(ValueError, match=r"fill_constant.*\[2, -1\] has -1"):
        paddle.zeros([2, -1])
    with pytest.raises(TypeError, match=r"zeros\(\).*'shape' must hold integers"):
        paddle.zeros([2.5])
    with pytest.raises(TypeError, match=r"ones\(\): argument 'shape' must be a list"):
        paddle.ones(None)
    with pytest.raises(ValueError, match="tensor of integers"):
        paddle.zeros(paddle.to_tensor([2.0]))
    with pytest.raises(TypeError, match="'fill_value'"):
        paddle.full([1], "one")
    with pytest.raises(ValueError, match="2 elements instead of one"):
        paddle.full([1], paddle.zeros([2]))
    with pytest.raises(TypeError, match="no element type"):
        paddle.zeros([1], "float31")
    with pytest.raises(ValueError, match="no integer"):
        paddle.full([1], float("nan"), "int32")


def test_like():
    x = paddle.to_tensor(floats(2, 3))
    assert paddle.zeros_like(x).dtype == paddle.float64
    np.testing.assert_array_equal(
        paddle.full_like(x, 2.5).numpy(), np.full((2, 3), 2.5)
    )
    np.testing.assert_array_equal(
        paddle.ones_like(x, dtype="int32").numpy(), np.ones((2, 3), "int32")
    )
    assert paddle.full_like(paddle.zeros([1], "int64"), 2**60 + 1).item() == 2**60 + 1
    assert paddle.empty_like(x).shape == [2, 3]
    assert paddle.empty_like(x, "int64").dtype == paddle.int64
    x.stop_gradient = False
    assert paddle.zeros_like(x).stop_gradient
    with pytest.raises(TypeError, match="must be a Tensor"):
        paddle.zeros_like([1])


def test_shape_is_a_tensor():
    s = paddle.shape(paddle.zeros([4, 0, 5]))
    assert s.dtype == paddle.int32 and s.numpy().tolist() == [4, 0, 5]


# ---- sequences and patterns


@pytest.mark.parametrize(
    "args",
    [(5,), (2, 7), (7, 2), (7, 2, -2), (0, 1, 0.25), (0.5, 3.0), (5, 5), (-3, 3, 2)],
)
def test_arange(args):
    got = paddle.arange(*args)
    want = np.arange(*args)
    assert got.dtype.name == ("int64" if want.dtype.kind == "i" else "float32")
    np.testing.assert_allclose(got.numpy(), want)


def test_arange_types():
    assert paddle.arange(3, dtype="float64").numpy().dtype == np.float64
    assert paddle.arange(0, 3, dtype="int32").numpy().tolist() == [0, 1, 2]
    got = paddle.arange(paddle.to_tensor([1]), paddle.to_tensor([4]))
    assert got.dtype == paddle.int64 and got.numpy().tolist() == [1, 2, 3]
    assert paddle.arange(0, 2, 0.5, "int64").numpy().tolist() == [0, 0, 1, 1]
    assert paddle.arange(end=3).numpy().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="step is 0"):
        paddle.arange(0, 3, 0)
    with pytest.raises(ValueError, match=r"'end' is \d+, but must lie within 2\*\*53"):
        paddle.arange(2**60)
    with pytest.raises(TypeError, match="'end' must be a number"):
        paddle.arange("3")


def test_linspace():
    np.testing.assert_allclose(paddle.linspace(0, 10, 5).numpy(), np.linspace(0, 10, 5))
    assert paddle.linspace(0, 10, 5, "int32").numpy().tolist() == [0, 2, 5, 7, 10]
    assert paddle.linspace(3, 9, paddle.to_tensor([1])).numpy().tolist() == [3]
    start = paddle.to_tensor([1.0])
    assert paddle.linspace(start, 2.0, 2).numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="num is 0"):
        paddle.linspace(0, 1, 0)


def test_eye():
    np.testing.assert_array_equal(paddle.eye(3).numpy(), np.eye(3))
    got = paddle.eye(2, 3, dtype="int32")
    assert got.dtype == paddle.int32
    np.testing.assert_array_equal(got.numpy(), np.eye(2, 3))
    with pytest.raises(ValueError, match="'num_rows' is -1"):
        paddle.eye(-1)
    with pytest.raises(TypeError, match="'num_rows'"):
        paddle.eye(2.5)


@pytest.mark.parametrize("diagonal", [0, 1, -2])
def test_tril_triu(diagonal):
    for name in ("tril", "triu"):
        check(
            lambda x: getattr(paddle, name)(x, diagonal),
            lambda x: getattr(torch, name)(x, diagonal),
            floats(2, 3, 4),
            second=True,
        )
    for function in (paddle.tril, paddle.triu):
        with pytest.raises(ValueError, match="at least two dimensions"):
            function(paddle.zeros([3]))


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_diag(offset):
    check(
        lambda x: paddle.diag(x, offset),
        lambda x: torch.diag(x, offset),
        floats(3),
        second=True,
    )
    check(
        lambda x: paddle.diag(x, offset),
        lambda x: torch.diag(x, offset),
        floats(3, 4),
        second=True,
    )
    check(
        lambda x: paddle.diagflat(x, offset),
        lambda x: torch.diagflat(x, offset),
        floats(2, 2),
    )


def test_diag_with_padding():
    got = paddle.diag(paddle.to_tensor([1, 2]), padding_value=9)
    assert got.numpy().tolist() == [[1, 9], [9, 2]]
    with pytest.raises(ValueError, match="one or two dimensions"):
        paddle.diag(paddle.zeros([1, 1, 1]))


def test_meshgrid():
    check(
        lambda a, b: paddle.meshgrid(a, b),
        lambda a, b: torch.meshgrid(a, b, indexing="ij"),
        floats(3),
        floats(4, seed=1),
        second=True,
    )
    a, b = paddle.meshgrid([paddle.arange(2), paddle.arange(3)])
    assert a.shape == b.shape == [2, 3]
    with pytest.raises(ValueError, match="one dimension"):
        paddle.meshgrid(paddle.zeros([2, 2]))
    with pytest.raises(TypeError, match="unknown argument 'sparse'"):
        paddle.meshgrid(a, sparse=True)


@pytest.mark.parametrize("dtype", "? i2 i4 i8 f2 f4 f8 c8 c16".split())
def test_arrays_that_begin_anywhere_in_a_buffer(dtype):
    memory = np.arange(40).astype(dtype).tobytes()
    for offset in (1, 2, 4, 8):
        array = np.frombuffer(bytes(offset) + memory, dtype, offset=offset)
        same = paddle.to_tensor(array).numpy()
        np.testing.assert_array_equal(same, array)
        np.testing.assert_array_equal(paddle.to_tensor(array[::-2]), array[::-2])
