# SPDX-License-Identifier: Apache-2.0
"""Embedding, dropout, masks."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
import torch.nn.functional as T
from op_check import check, floats


def dense_of(grad):
    """The values of a gradient, also of one that holds rows."""
    return (paddle.zeros(grad.shape, grad.dtype) + grad).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_embedding_adds_up_the_gradients_of_a_row(dtype, kind):
    ids = np.array([[1, 3, 1], [0, 4, 1]], kind)
    check(
        lambda w: F.embedding(paddle.to_tensor(ids), w),
        lambda w: T.embedding(torch.from_numpy(ids), w),
        floats(5, 3, dtype=dtype),
        rtol=1e-6,
    )


def test_embedding_has_a_second_derivative():
    ids = np.array([1, 3, 1])
    check(
        lambda w: F.embedding(paddle.to_tensor(ids), w),
        lambda w: T.embedding(torch.from_numpy(ids), w),
        floats(5, 3),
        second=True,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("padding", [1, -4])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_padding_is_zero_and_learns_nothing(dtype, padding, sparse):
    w = paddle.to_tensor(floats(5, 3, dtype=dtype), stop_gradient=False)
    ids = paddle.to_tensor(np.array([1, 3, 1, 3]))
    out = F.embedding(ids, w, padding, sparse)
    np.testing.assert_array_equal(out.numpy()[[0, 2]], np.zeros((2, 3)))
    np.testing.assert_array_equal(out.numpy()[1], w.numpy()[3])
    out.sum().backward()
    assert w.grad.is_sparse() == sparse
    want = np.zeros((5, 3))
    want[3] = 2
    np.testing.assert_array_equal(dense_of(w.grad), want)


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_a_table_may_have_a_sparse_and_a_dense_gradient(order):
    w = paddle.to_tensor(floats(5, 2, dtype="float32"), stop_gradient=False)
    ids = paddle.to_tensor(np.array([1, 3, 1]))
    one, two = (F.embedding(ids, w, sparse=sparse) for sparse in order)
    (one * 2.0 + two).sum().backward()
    want = np.zeros([5, 2], "float32")
    want[1], want[3] = 6.0, 3.0
    np.testing.assert_array_equal(dense_of(w.grad), want)


def test_a_sparse_gradient_holds_the_rows_that_were_named():
    w = paddle.to_tensor(floats(1000, 3, dtype="float32"), stop_gradient=False)
    out = F.embedding(paddle.to_tensor(np.array([[7, 2], [7, 9]])), w, sparse=True)
    out.sum().backward()
    assert w.grad.is_sparse()
    assert w.grad.shape == [1000, 3]
    dense = dense_of(w.grad)
    want = np.zeros((1000, 3))
    want[[2, 9]] = 1
    want[7] = 2
    np.testing.assert_array_equal(dense, want)


def test_embedding_names_an_id_out_of_range():
    w = paddle.to_tensor(floats(5, 3))
    with pytest.raises(ValueError, match=r"id 5 at position 2 is outside \[0, 5\)"):
        F.embedding(paddle.to_tensor(np.array([0, 1, 5])), w)
    with pytest.raises(ValueError, match=r"id -1 at position 0"):
        F.embedding(paddle.to_tensor(np.array([-1])), w)
    with pytest.raises(ValueError, match="ids must be int64 or int32, not float64"):
        F.embedding(paddle.to_tensor(floats(3)), w)
    with pytest.raises(ValueError, match="padding_idx 5 must lie in"):
        F.embedding(paddle.to_tensor(np.array([0])), w, 5)


def test_embedding_of_nothing():
    w = paddle.to_tensor(floats(5, 3), stop_gradient=False)
    out = F.embedding(paddle.to_tensor(np.zeros((0, 2), "int64")), w)
    assert out.shape == [0, 2, 3]
    out.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros((5, 3)))


def test_one_hot():
    x = np.array([[1, 0], [3, 2]])
    out = F.one_hot(paddle.to_tensor(x), 4)
    assert out.dtype == paddle.float32
    np.testing.assert_array_equal(out.numpy(), np.eye(4)[x])
    with pytest.raises(ValueError, match=r"index 3 at position 2 is outside \[0, 3\)"):
        F.one_hot(paddle.to_tensor(x), 3)


# ---- dropout


def ones(*shape):
    return paddle.to_tensor(np.ones(shape, "float32"), stop_gradient=False)


def test_dropout_scales_up_what_it_keeps():
    paddle.seed(1)
    x = ones(200, 100)
    out = F.dropout(x, 0.25)
    values = np.unique(out.numpy())
    np.testing.assert_allclose(values, [0, 1 / 0.75], rtol=1e-6)
    assert abs((out.numpy() == 0).mean() - 0.25) < 0.02
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.numpy())


def test_dropout_repeats_by_seed():
    paddle.seed(5)
    one = F.dropout(ones(50, 50)).numpy()
    two = F.dropout(ones(50, 50)).numpy()
    paddle.seed(5)
    np.testing.assert_array_equal(F.dropout(ones(50, 50)).numpy(), one)
    assert (one != two).any()


def test_dropout_outside_training():
    x = ones(4, 5)
    out = F.dropout(x, 0.3, training=False)
    np.testing.assert_array_equal(out.numpy(), x.numpy())
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones((4, 5)))
    down = F.dropout(x, 0.3, training=False, mode="downscale_in_infer")
    np.testing.assert_allclose(down.numpy(), np.full((4, 5), 0.7), rtol=1e-6)
    kept = F.dropout(x, 0.3, mode="downscale_in_infer").numpy()
    assert set(np.unique(kept)) <= {0.0, 1.0}


def test_dropout_along_an_axis_drops_whole_rows():
    paddle.seed(2)
    rows = F.dropout(ones(64, 5), 0.5, axis=0).numpy()
    assert (rows == rows[:, :1]).all() and set(np.unique(rows)) == {0.0, 2.0}
    columns = F.dropout(ones(5, 64), 0.5, axis=[1]).numpy()
    assert (columns == columns[:1]).all()


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_all_or_nothing(p):
    np.testing.assert_array_equal(
        F.dropout(ones(3, 3), p).numpy(), np.full((3, 3), 1 - p)
    )


def test_dropout_of_channels():
    paddle.seed(3)
    images = F.dropout2d(ones(8, 16, 3, 3)).numpy()
    assert (images == images[:, :, :1, :1]).all()
    assert set(np.unique(images)) == {0.0, 2.0}
    last = F.dropout2d(ones(8, 3, 3, 16), data_format="NHWC").numpy()
    assert (last == last[:, :1, :1]).all()
    grids = F.dropout3d(ones(8, 16, 2, 2, 2)).numpy()
    assert (grids == grids[:, :, :1, :1, :1]).all()


def test_alpha_dropout_keeps_mean_and_variance():
    paddle.seed(4)
    x = paddle.randn([400, 200])
    out = F.alpha_dropout(x, 0.3).numpy()
    assert abs(out.mean()) < 0.02 and abs(out.std() - 1) < 0.02
    assert F.alpha_dropout(x, 0.3, training=False) is x


def test_dropout_names_bad_arguments():
    with pytest.raises(ValueError, match=r"p is 1.5 but must lie in \[0, 1\]"):
        F.dropout(ones(2), 1.5)
    with pytest.raises(ValueError, match="mode must be"):
        F.dropout(ones(2), mode="upscale")
    with pytest.raises(ValueError, match="dropout2d: x must have 4 dimensions"):
        F.dropout2d(ones(2, 3))


# ---- labels and masks


def test_label_smooth():
    y = np.eye(4)[[1, 3]]
    np.testing.assert_allclose(
        F.label_smooth(paddle.to_tensor(y), epsilon=0.2).numpy(), 0.8 * y + 0.05
    )
    prior = np.array([[0.1, 0.2, 0.3, 0.4]])
    np.testing.assert_allclose(
        F.label_smooth(paddle.to_tensor(y), paddle.to_tensor(prior)).numpy(),
        0.9 * y + 0.1 * prior,
    )


def test_sequence_mask():
    lengths = np.array([[2, 0], [3, 1]])
    want = np.arange(3) < lengths[..., None]
    mask = F.sequence_mask(paddle.to_tensor(lengths))
    assert mask.dtype == paddle.int64
    np.testing.assert_array_equal(mask.numpy(), want)
    wide = F.sequence_mask(paddle.to_tensor(lengths), 5, "float32").numpy()
    np.testing.assert_array_equal(wide, np.arange(5) < lengths[..., None])


@pytest.mark.parametrize("offset", [0, 1, -2])
@pytest.mark.parametrize("dims", [(-2, -1), (0, 2), (2, 0), (1, 3)])
def test_diag_embed(offset, dims):
    check(
        lambda x: F.diag_embed(x, offset, *dims),
        lambda x: torch.diag_embed(x, offset, *dims),
        floats(2, 4, 3),
    )


def test_sequence_pool_says_what_to_use_instead():
    with pytest.raises(TypeError, match="which eager tensors do not carry"):
        F.sequence_pool(paddle.to_tensor(floats(3, 2)), "sum")
