# SPDX-License-Identifier: Apache-2.0
"""Normalisation and distances against torch and numpy."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
import torch.nn.functional as T
from op_check import check, floats
from paddle import static
from static_check import fresh_programs  # noqa: F401

CLOSE = {"rtol": 1e-6, "atol": 1e-9}


def fixed(*arrays):
    return [paddle.to_tensor(a) for a in arrays]


def running(channels, dtype="float64"):
    return np.full(channels, 0.3, dtype), np.full(channels, 2.0, dtype)


@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5), (4, 3, 5, 6), (2, 3, 2, 3, 4)])
def test_batch_norm_in_training(shape):
    check(
        lambda x, w, b: F.batch_norm(x, *fixed(*running(3)), w, b, training=True),
        lambda x, w, b: T.batch_norm(x, None, None, w, b, training=True),
        floats(*shape),
        floats(3, seed=1),
        floats(3, seed=2),
        second=True,
        **CLOSE,
    )


def test_batch_norm_outside_training():
    mean, var = running(3)
    check(
        lambda x, w, b: F.batch_norm(x, *fixed(mean, var), w, b),
        lambda x, w, b: T.batch_norm(
            x, torch.from_numpy(mean), torch.from_numpy(var), w, b
        ),
        floats(4, 3, 5, 6),
        floats(3, seed=1),
        floats(3, seed=2),
        second=True,
        **CLOSE,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_statistics_move_as_paddle_moves_them(dtype):
    x = floats(4, 3, 5, 6, dtype=dtype)
    mean, var = fixed(*running(3, dtype))
    F.batch_norm(paddle.to_tensor(x), mean, var, training=True, momentum=0.8)
    np.testing.assert_allclose(
        mean.numpy(), 0.8 * 0.3 + 0.2 * x.mean((0, 2, 3)), rtol=1e-4
    )
    # The variance of the batch itself, not the unbiased estimate.
    np.testing.assert_allclose(
        var.numpy(), 0.8 * 2.0 + 0.2 * x.var((0, 2, 3)), rtol=1e-4
    )


def test_running_statistics_stay_with_global_stats():
    mean, var = fixed(*running(3))
    x = paddle.to_tensor(floats(4, 3, 5, 6))
    one = F.batch_norm(x, mean, var, training=True, use_global_stats=True)
    two = F.batch_norm(x, mean, var)
    np.testing.assert_array_equal(one.numpy(), two.numpy())
    np.testing.assert_array_equal(mean.numpy(), running(3)[0])


def test_the_statistics_of_the_batch_can_be_had_outside_training():
    x = paddle.to_tensor(floats(4, 3, 5, 6))
    trained = F.batch_norm(x, *fixed(*running(3)), training=True)
    asked = F.batch_norm(x, *fixed(*running(3)), use_global_stats=False)
    np.testing.assert_array_equal(asked.numpy(), trained.numpy())


def test_two_forward_passes_before_one_backward():
    mean, var = fixed(*running(3, "float32"))
    x = paddle.to_tensor(floats(4, 3, dtype="float32"), stop_gradient=False)
    one = F.batch_norm(x, mean, var, training=True)
    two = F.batch_norm(x * 2.0, mean, var, training=True)
    evaluated = F.batch_norm(x, mean, var)
    F.batch_norm(x, mean, var, training=True)
    (one + two + evaluated).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_batch_norm_with_channels_last():
    check(
        lambda x, w, b: F.batch_norm(
            x, *fixed(*running(3)), w, b, training=True, data_format="NHWC"
        ),
        lambda x, w, b: T.batch_norm(
            x.permute(0, 3, 1, 2), None, None, w, b, training=True
        ).permute(0, 2, 3, 1),
        floats(4, 5, 6, 3),
        floats(3, seed=1),
        floats(3, seed=2),
        **CLOSE,
    )


def test_batch_norm_of_an_empty_batch_changes_nothing():
    mean, var = fixed(*running(3, "float32"))
    x = paddle.to_tensor(np.zeros((0, 3, 4), "float32"), stop_gradient=False)
    out = F.batch_norm(x, mean, var, training=True)
    assert out.shape == [0, 3, 4]
    out.sum().backward()
    np.testing.assert_array_equal(mean.numpy(), running(3, "float32")[0])


def test_batch_norm_names_what_does_not_fit():
    x = paddle.to_tensor(floats(4, 3, 5))
    with pytest.raises(ValueError, match="Mean has 4 elements but the input has 3"):
        F.batch_norm(x, *fixed(*running(4)))
    with pytest.raises(ValueError, match="Scale has 2 elements"):
        F.batch_norm(x, *fixed(*running(3)), paddle.to_tensor(floats(2)))
    with pytest.raises(ValueError, match="needs a batch and a channel"):
        F.batch_norm(x[0, 0], *fixed(*running(3)))


@pytest.mark.parametrize("shape", [5, [5], [4, 5]])
def test_layer_norm(shape):
    dims = [shape] if isinstance(shape, int) else shape
    check(
        lambda x, w, b: F.layer_norm(x, shape, w, b, 1e-3),
        lambda x, w, b: T.layer_norm(x, dims, w, b, 1e-3),
        floats(2, 3, 4, 5),
        floats(*dims, seed=1),
        floats(*dims, seed=2),
        second=True,
        **CLOSE,
    )


def test_layer_norm_without_weights():
    check(
        lambda x: F.layer_norm(x, 5),
        lambda x: T.layer_norm(x, [5]),
        floats(3, 5),
        second=True,
        **CLOSE,
    )


def test_layer_norm_names_what_does_not_fit():
    x = paddle.to_tensor(floats(2, 3))
    with pytest.raises(ValueError, match=r"normalized_shape \[4\] must be the last"):
        F.layer_norm(x, 4)
    with pytest.raises(ValueError, match="Scale .* as many elements"):
        F.layer_norm(x, 3, paddle.to_tensor(floats(2)))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups):
    check(
        lambda x, w, b: F.group_norm(x, groups, weight=w, bias=b),
        lambda x, w, b: T.group_norm(x, groups, w, b),
        floats(2, 6, 3, 4),
        floats(6, seed=1),
        floats(6, seed=2),
        second=True,
        **CLOSE,
    )


def test_group_norm_with_channels_last():
    check(
        lambda x, w, b: F.group_norm(x, 2, 1e-5, w, b, "NHWC"),
        lambda x, w, b: T.group_norm(x.permute(0, 3, 1, 2), 2, w, b).permute(
            0, 2, 3, 1
        ),
        floats(2, 3, 4, 6),
        floats(6, seed=1),
        floats(6, seed=2),
        **CLOSE,
    )
    with pytest.raises(ValueError, match="must divide the 6 channels"):
        F.group_norm(paddle.to_tensor(floats(2, 6, 3)), 4)


def test_instance_norm():
    check(
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: T.instance_norm(x, weight=w, bias=b),
        floats(2, 3, 5, 4),
        floats(3, seed=1),
        floats(3, seed=2),
        second=True,
        **CLOSE,
    )


@pytest.mark.parametrize("size", [3, 4])
def test_local_response_norm(size):
    check(
        lambda x: F.local_response_norm(x, size, 0.1, 0.7, 1.5),
        lambda x: T.local_response_norm(x, size, 0.1, 0.7, 1.5),
        floats(2, 6, 3, 4),
        **CLOSE,
    )
    check(
        lambda x: F.local_response_norm(x, size, data_format="NHWC"),
        lambda x: T.local_response_norm(x.permute(0, 3, 1, 2), size).permute(
            0, 2, 3, 1
        ),
        floats(2, 3, 4, 6),
        **CLOSE,
    )


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
def test_normalize(p):
    check(
        lambda x: F.normalize(x, p, 1),
        lambda x: T.normalize(x, p, 1),
        floats(3, 4, 5),
        **CLOSE,
    )


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
def test_the_gradient_of_normalize_at_a_row_of_zeros(p):
    """Such a row is divided by epsilon, and so is its gradient."""
    values = np.array([[0, 0], [3, -4]], "float32")
    weights = np.array([[1, 2], [1, 2]], "float32")
    x = paddle.to_tensor(values, stop_gradient=False)
    (F.normalize(x, p) * paddle.to_tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[0], [1e12, 2e12], rtol=1e-6)
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.usefixtures("fresh_programs")
def test_the_gradient_of_normalize_at_a_row_of_zeros_in_a_program():
    x = static.data("x", [None, 2])
    x.stop_gradient = False
    w = static.data("w", [2])
    (dx,) = static.gradients([(F.normalize(x) * w).sum()], [x])
    exe = static.Executor()
    feed = {
        "x": np.array([[0, 0], [3, 4]], "float32"),
        "w": np.array([1, 2], "float32"),
    }
    for _ in range(3):
        (got,) = exe.run(feed=feed, fetch_list=[dx])
        # For x / |x|: (w - y (w y)) / |x|, with w = (1, 2) and y = (0.6, 0.8).
        wanted = [[1e12, 2e12], [(1 - 0.6 * 2.2) / 5, (2 - 0.8 * 2.2) / 5]]
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cosine_similarity(axis):
    check(
        lambda a, b: F.cosine_similarity(a, b, axis),
        lambda a, b: T.cosine_similarity(a, b, axis),
        floats(3, 4, 5),
        floats(3, 4, 5, seed=1),
        **CLOSE,
    )


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
@pytest.mark.parametrize("keepdim", [False, True])
def test_pairwise_distance(p, keepdim):
    check(
        lambda a, b: F.pairwise_distance(a, b, p, keepdim=keepdim),
        lambda a, b: T.pairwise_distance(a, b, p, keepdim=keepdim),
        floats(3, 5),
        floats(3, 5, seed=1),
        **CLOSE,
    )


def test_linear():
    check(
        F.linear,
        lambda x, w, b: x @ w + b,
        floats(2, 3, 4),
        floats(4, 5, seed=1),
        floats(5, seed=2),
        second=True,
        **CLOSE,
    )
    check(F.linear, lambda x, w: x @ w, floats(3, 4), floats(4, 5, seed=1))
    with pytest.raises(ValueError, match="in_features 5"):
        F.linear(paddle.to_tensor(floats(2, 4)), paddle.to_tensor(floats(5, 3)))


def test_bilinear():
    check(
        F.bilinear,
        T.bilinear,
        floats(3, 4),
        floats(3, 5, seed=1),
        floats(6, 4, 5, seed=2),
        floats(6, seed=3),
        **CLOSE,
    )
