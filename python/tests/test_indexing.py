# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest
import torch
from op_check import check, floats

DATA = np.arange(60.0).reshape(3, 4, 5)

INDICES = {
    "int": 1,
    "negative int": -1,
    "two ints": (1, 2),
    "slice": slice(1, 3),
    "open slice": slice(None, -1),
    "step": slice(None, None, 2),
    "slices": (slice(0, 2), slice(1, None), slice(None, 3)),
    "int and slice": (0, slice(1, 3)),
    "ellipsis": (Ellipsis, 0),
    "ellipsis in the middle": (0, Ellipsis, slice(1, 3)),
    "none": (None, 1),
    "none after": (slice(None), None, 2),
    "list": [0, 2],
    "list twice": ([0, 2], [1, 3]),
    "list and slice": ([0, 2], slice(None), [1, 1]),
    "array": np.array([2, 0]),
    "array 2d": np.array([[0, 1], [2, 0]]),
    "mask": DATA[:, 0, 0] > 10,
    "mask of all": DATA > 30,
    "bool list": [True, False, True],
    "empty list": [],
    "empty slice": slice(2, 2),
    "numpy int": np.int64(2),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
def test_reading_as_numpy_does(index):
    got = paddle.to_tensor(DATA)[index]
    want = DATA[index if not (isinstance(index, list) and not index) else slice(0, 0)]
    assert got.shape == (list(want.shape) or [1])
    np.testing.assert_array_equal(got.numpy().reshape(want.shape), want)


@pytest.mark.parametrize(
    "index",
    [slice(None, None, -1), (1, slice(3, 0, -2)), (Ellipsis, slice(4, None, -1))],
)
def test_negative_steps(index):
    np.testing.assert_array_equal(paddle.to_tensor(DATA)[index].numpy(), DATA[index])


def test_tensors_as_indices():
    x = paddle.to_tensor(DATA)
    np.testing.assert_array_equal(x[paddle.to_tensor([2, 0])].numpy(), DATA[[2, 0]])
    np.testing.assert_array_equal(
        x[paddle.to_tensor(DATA > 30)].numpy(), DATA[DATA > 30]
    )
    np.testing.assert_array_equal(x[x > 30].numpy(), DATA[DATA > 30])
    one = paddle.to_tensor([1])
    np.testing.assert_array_equal(x[one].numpy(), DATA[1])
    np.testing.assert_array_equal(x[:one, 0].numpy(), DATA[:1, 0])


@pytest.mark.parametrize(
    "index",
    [1, (slice(1, 3), 2), [0, 2, 0], (Ellipsis, None, slice(0, 4, 2)), DATA > 30],
)
def test_reading_has_gradients(index):
    their_index = torch.from_numpy(index) if isinstance(index, np.ndarray) else index
    check(lambda x: x[index], lambda x: x[their_index], floats(3, 4, 5))


def test_what_is_read_is_a_copy():
    x = paddle.to_tensor(DATA)
    y = x[0]
    y[0] = 100.0
    np.testing.assert_array_equal(x.numpy(), DATA)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
def test_assigning_a_number(index):
    if isinstance(index, list) and not index:
        index = np.zeros(0, "int64")
    x, expected = paddle.to_tensor(DATA), DATA.copy()
    x[index] = -1.5
    expected[index] = -1.5
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize(
    "index, shape",
    [
        (1, [4, 5]),
        (1, [5]),
        ((slice(0, 2), slice(None), slice(1, 4)), [3]),
        ((slice(0, 2), slice(None), slice(1, 4)), [2, 4, 3]),
        ([0, 2], [2, 4, 5]),
        ((Ellipsis, 0), [3, 4]),
    ],
)
def test_assigning_tensors_and_arrays(index, shape):
    value = floats(*shape)
    for given in (value, paddle.to_tensor(value), value.astype("float32")):
        x, expected = paddle.to_tensor(DATA), DATA.copy()
        x[index] = given
        expected[index] = np.asarray(given)
        np.testing.assert_array_equal(x.numpy(), expected)


def test_assigning_by_mask():
    x, expected = paddle.to_tensor(DATA), DATA.copy()
    x[x > 30] = 0
    expected[expected > 30] = 0
    np.testing.assert_array_equal(x.numpy(), expected)


def test_assignment_has_gradients():
    def assign(module):
        def function(x, v):
            y = x * 2
            y[1] = v
            y[:, 0] = v[:1] * 3
            return y * y

        return function

    check(assign(paddle), assign(torch), floats(3, 4), floats(4))


def test_assignment_leaves_others_alone():
    x = paddle.to_tensor(DATA)
    y = x.reshape([3, 20])
    z = x.detach()
    x[0] = 0.0
    np.testing.assert_array_equal(y.numpy(), DATA.reshape(3, 20))
    np.testing.assert_array_equal(z.numpy(), DATA)


def test_bad_indices():
    x = paddle.to_tensor(DATA)
    for bad in (3, -4, (0, 4), [0, 5], paddle.to_tensor([7, 0])):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0, 0]
    with pytest.raises(IndexError, match="str"):
        x["a"]
    with pytest.raises(IndexError, match="integers"):
        x[paddle.to_tensor([1.0, 2.0])]
    with pytest.raises(IndexError):
        x[paddle.to_tensor([True, False])]
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        x[:2] = paddle.zeros([3, 3])


def test_assigning_to_a_leaf_that_wants_its_gradient_is_refused():
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    with pytest.raises(ValueError, match="no_grad"):
        x[0] = 1.0
    with paddle.no_grad():
        x[0] = 5.0
    assert x.tolist() == [5.0, 2.0]
    assert not x.stop_gradient
