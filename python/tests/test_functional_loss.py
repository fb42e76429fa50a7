# SPDX-License-Identifier: Apache-2.0
"""Losses against torch and numpy: values, gradients, bad labels."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
import torch.nn.functional as T
from op_check import check, floats

DTYPES = ["float32", "float64"]


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-7}


def labels(*shape, classes=5, seed=0):
    return np.random.default_rng(seed).integers(0, classes, shape)


def probabilities(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).uniform(0.05, 0.95, shape).astype(dtype)


# ---- cross entropy


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("column", [False, True])
def test_cross_entropy(dtype, reduction, column):
    y = labels(7)

    def ours(x):
        label = paddle.to_tensor(y[:, None] if column else y)
        loss = F.cross_entropy(x, label, reduction=reduction)
        if reduction != "none":
            assert loss.shape == [1]
            return loss
        assert loss.shape == ([7, 1] if column else [7])
        return loss.reshape([7])

    check(
        ours,
        lambda x: T.cross_entropy(x, torch.from_numpy(y), reduction=reduction),
        floats(7, 5, dtype=dtype),
        **tolerance(dtype),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_has_a_second_derivative(dtype):
    y = labels(7)
    check(
        lambda x: F.cross_entropy(x, paddle.to_tensor(y)),
        lambda x: T.cross_entropy(x, torch.from_numpy(y)),
        floats(7, 5, dtype=dtype),
        second=True,
        **tolerance(dtype),
    )


def test_cross_entropy_over_a_batch_larger_than_a_block():
    y = labels(5000, classes=9)
    check(
        lambda x: F.cross_entropy(x, paddle.to_tensor(y)),
        lambda x: T.cross_entropy(x, torch.from_numpy(y)),
        floats(5000, 9, dtype="float32"),
        rtol=1e-4,
        atol=1e-7,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_does_not_count_ignored_labels(dtype, reduction):
    y = labels(7)
    y[[1, 4]] = 2
    check(
        lambda x: F.cross_entropy(
            x, paddle.to_tensor(y), ignore_index=2, reduction=reduction
        ),
        lambda x: T.cross_entropy(
            x, torch.from_numpy(y), ignore_index=2, reduction=reduction
        ),
        floats(7, 5, dtype=dtype),
        **tolerance(dtype),
    )


def test_cross_entropy_of_ignored_labels_only_is_zero():
    x = paddle.to_tensor(floats(3, 5, dtype="float32"), stop_gradient=False)
    loss = F.cross_entropy(x, paddle.to_tensor(np.full(3, -100)))
    assert loss.numpy() == [0.0]
    loss.backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((3, 5)))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_class_weights(reduction):
    y = labels(7)
    y[3] = -100
    w = probabilities(5, seed=4)
    check(
        lambda x: F.cross_entropy(
            x, paddle.to_tensor(y), paddle.to_tensor(w), reduction=reduction
        ),
        lambda x: T.cross_entropy(
            x, torch.from_numpy(y), torch.from_numpy(w), reduction=reduction
        ),
        floats(7, 5),
        second=True,
    )


def test_cross_entropy_with_soft_labels():
    p = probabilities(7, 5)
    p /= p.sum(1, keepdims=True)
    check(
        lambda x: F.cross_entropy(x, paddle.to_tensor(p), soft_label=True),
        lambda x: T.cross_entropy(x, torch.from_numpy(p)),
        floats(7, 5),
        second=True,
    )
    none = F.cross_entropy(
        paddle.to_tensor(floats(7, 5)),
        paddle.to_tensor(p),
        soft_label=True,
        reduction="none",
    )
    assert none.shape == [7, 1]


@pytest.mark.parametrize("one", [False, True])
def test_cross_entropy_with_classes_in_the_middle(one):
    y = labels(2, 3, 4)
    check(
        lambda x: F.cross_entropy(
            x, paddle.to_tensor(y[:, None] if one else y), axis=1
        ),
        lambda x: T.cross_entropy(x, torch.from_numpy(y)),
        floats(2, 5, 3, 4),
        second=True,
    )


def test_cross_entropy_without_softmax_takes_probabilities():
    y = labels(7)
    check(
        lambda x: F.cross_entropy(x, paddle.to_tensor(y), use_softmax=False),
        lambda x: T.nll_loss(x.log(), torch.from_numpy(y)),
        probabilities(7, 5),
        second=True,
    )


def test_labels_may_be_int32():
    x, y = floats(7, 5, dtype="float32"), labels(7)
    np.testing.assert_allclose(
        F.cross_entropy(paddle.to_tensor(x), paddle.to_tensor(y)).numpy(),
        F.cross_entropy(
            paddle.to_tensor(x), paddle.to_tensor(y.astype("int32"))
        ).numpy(),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [7, 5, -1])
def test_a_label_out_of_range_is_named_with_its_row(dtype, bad):
    y = labels(6)
    y[3] = bad
    x, label = paddle.to_tensor(floats(6, 5, dtype=dtype)), paddle.to_tensor(y)
    message = rf"label {bad} at row 3 is outside \[0, 5\)"
    with pytest.raises(ValueError, match=message):
        F.cross_entropy(x, label)
    with pytest.raises(ValueError, match=message):
        F.softmax_with_cross_entropy(x, label.reshape([6, 1]))
    with pytest.raises(ValueError, match=message):
        F.nll_loss(x, label)


def test_labels_of_the_wrong_type_or_shape_are_named():
    x = paddle.to_tensor(floats(6, 5, dtype="float32"))
    with pytest.raises(ValueError, match="label must be an integer type, not float32"):
        F.cross_entropy(x, paddle.to_tensor(floats(6, dtype="float32")))
    with pytest.raises(ValueError, match=r"label has shape \[4\] but must have \[6\]"):
        F.cross_entropy(x, paddle.to_tensor(labels(4)))
    with pytest.raises(ValueError, match="soft label must have the shape"):
        F.cross_entropy(x, paddle.to_tensor(floats(6, 4)), soft_label=True)
    with pytest.raises(ValueError, match="weight .* each of the 5 classes"):
        F.cross_entropy(x, paddle.to_tensor(labels(6)), paddle.to_tensor(floats(4)))
    with pytest.raises(ValueError, match="reduction must be"):
        F.cross_entropy(x, paddle.to_tensor(labels(6)), reduction="average")


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_batch_sums_to_zero(dtype):
    x = paddle.to_tensor(np.zeros((0, 5), dtype), stop_gradient=False)
    y = paddle.to_tensor(np.zeros((0,), "int64"))
    loss = F.cross_entropy(x, y, reduction="sum")
    assert loss.numpy() == [0.0]
    loss.backward()
    assert x.grad.shape == [0, 5]
    assert F.cross_entropy(x, y, reduction="none").shape == [0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("column", [False, True])
def test_softmax_with_cross_entropy_keeps_a_one(dtype, column):
    y = labels(7)
    given = paddle.to_tensor(y[:, None] if column else y)
    x = floats(7, 5, dtype=dtype)

    def ours(x):
        loss = F.softmax_with_cross_entropy(x, given)
        assert loss.shape == [7, 1]
        return loss.reshape([7])

    check(
        ours,
        lambda x: T.cross_entropy(x, torch.from_numpy(y), reduction="none"),
        x,
        second=True,
        **tolerance(dtype),
    )
    _, softmax = F.softmax_with_cross_entropy(
        paddle.to_tensor(x), given, return_softmax=True
    )
    np.testing.assert_allclose(
        softmax.numpy(), torch.softmax(torch.from_numpy(x), 1).numpy(), rtol=1e-5
    )


def test_softmax_with_cross_entropy_of_soft_labels():
    p = probabilities(7, 5)
    check(
        lambda x: F.softmax_with_cross_entropy(x, paddle.to_tensor(p), soft_label=True),
        lambda x: -(torch.from_numpy(p) * T.log_softmax(x, 1)).sum(1, keepdim=True),
        floats(7, 5),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(7, 5), (2, 5, 3, 4)])
def test_nll_loss(reduction, shape):
    y = labels(shape[0], *shape[2:])
    w = probabilities(5, seed=4)
    check(
        lambda x: F.nll_loss(x, paddle.to_tensor(y), paddle.to_tensor(w), 2, reduction),
        lambda x: T.nll_loss(
            x, torch.from_numpy(y), torch.from_numpy(w), None, 2, None, reduction
        ),
        floats(*shape),
    )


# ---- of pairs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (F.mse_loss, T.mse_loss),
        (F.l1_loss, T.l1_loss),
        (
            lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction, 0.7),
            lambda x, y, reduction: T.huber_loss(x, y, reduction=reduction, delta=0.7),
        ),
    ],
    ids=["mse", "l1", "smooth_l1"],
)
def test_losses_of_a_difference(ours, theirs, reduction, dtype):
    check(
        lambda x, y: ours(x, y, reduction=reduction),
        lambda x, y: theirs(x, y, reduction=reduction),
        floats(4, 6, dtype=dtype),
        floats(4, 6, seed=1, dtype=dtype),
        second=True,
        **tolerance(dtype),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_mse_loss_with_a_fixed_label_takes_the_short_way(reduction):
    y = floats(9, 1, seed=1, dtype="float32")
    check(
        lambda x: F.mse_loss(x, paddle.to_tensor(y), reduction),
        lambda x: T.mse_loss(x, torch.from_numpy(y), reduction=reduction),
        floats(9, 1, dtype="float32"),
        second=True,
        rtol=1e-5,
    )


def test_square_error_cost_keeps_elements_and_broadcasts():
    check(
        F.square_error_cost,
        lambda x, y: (x - y) ** 2,
        floats(4, 3),
        floats(1, 3, seed=1),
    )


def test_mse_loss_of_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\[4, 3\] and \[5, 3\] do not broadcast"):
        F.mse_loss(paddle.to_tensor(floats(4, 3)), paddle.to_tensor(floats(5, 3)))


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "batchmean"])
def test_kl_div(reduction):
    check(
        lambda x, y: F.kl_div(x, y, reduction),
        lambda x, y: T.kl_div(x, y, reduction=reduction),
        floats(4, 5),
        probabilities(4, 5),
        second=True,
    )


def test_kl_div_of_a_target_of_zero_is_zero():
    x = paddle.to_tensor(floats(2, 2), stop_gradient=False)
    loss = F.kl_div(x, paddle.to_tensor(np.zeros((2, 2))), "sum")
    assert loss.numpy() == [0.0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_binary_cross_entropy(reduction):
    w = probabilities(4, 5, seed=9)
    check(
        lambda x, y: F.binary_cross_entropy(x, y, paddle.to_tensor(w), reduction),
        lambda x, y: T.binary_cross_entropy(
            x, y, torch.from_numpy(w), reduction=reduction
        ),
        probabilities(4, 5),
        probabilities(4, 5, seed=1),
    )


def test_binary_cross_entropy_has_a_second_derivative():
    y = probabilities(4, 5, seed=1)
    check(
        lambda x: F.binary_cross_entropy(x, paddle.to_tensor(y)),
        lambda x: T.binary_cross_entropy(x, torch.from_numpy(y)),
        probabilities(4, 5),
        second=True,
    )


def test_binary_cross_entropy_wants_probabilities_and_equal_shapes():
    y = paddle.to_tensor(probabilities(4, 1))
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.binary_cross_entropy(paddle.to_tensor(probabilities(4, 1) + 1), y)
    with pytest.raises(ValueError, match=r"\[4, 2\] but label has \[4, 1\]"):
        F.binary_cross_entropy(paddle.to_tensor(probabilities(4, 2)), y)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_binary_cross_entropy_with_logits(reduction):
    w = probabilities(4, 5, seed=9)
    pos = probabilities(5, seed=10) + 1
    y = labels(4, 5, classes=2).astype("float64")
    check(
        lambda x: F.binary_cross_entropy_with_logits(
            x,
            paddle.to_tensor(y),
            paddle.to_tensor(w),
            reduction,
            paddle.to_tensor(pos),
        ),
        lambda x: T.binary_cross_entropy_with_logits(
            x,
            torch.from_numpy(y),
            torch.from_numpy(w),
            reduction=reduction,
            pos_weight=torch.from_numpy(pos),
        ),
        floats(4, 5),
        second=True,
    )


def test_binary_cross_entropy_with_large_logits_stays_finite():
    x = paddle.to_tensor([1000.0, -1000.0])
    loss = F.binary_cross_entropy_with_logits(
        x, paddle.to_tensor([0.0, 1.0]), reduction="none"
    )
    np.testing.assert_allclose(loss.numpy(), [1000.0, 1000.0])


def test_log_loss():
    e = 1e-3

    def theirs(p, y):
        return -y * torch.log(p + e) - (1 - y) * torch.log(1 - p + e)

    check(
        lambda p, y: F.log_loss(p, y, e),
        theirs,
        probabilities(6, 1),
        probabilities(6, 1, seed=1),
        second=True,
    )


# ---- of vectors and sequences


def test_margin_ranking_loss():
    y = np.sign(floats(6, seed=3))
    check(
        lambda a, b: F.margin_ranking_loss(a, b, paddle.to_tensor(y), 0.3),
        lambda a, b: T.margin_ranking_loss(a, b, torch.from_numpy(y), 0.3),
        floats(6),
        floats(6, seed=1),
    )


def test_hinge_embedding_loss():
    y = np.sign(floats(6, seed=3))
    check(
        lambda a: F.hinge_embedding_loss(a, paddle.to_tensor(y), 0.8),
        lambda a: T.hinge_embedding_loss(a, torch.from_numpy(y), 0.8),
        floats(6),
    )


def test_cosine_embedding_loss():
    y = np.sign(floats(6, seed=3))
    check(
        lambda a, b: F.cosine_embedding_loss(a, b, paddle.to_tensor(y), 0.1),
        lambda a, b: T.cosine_embedding_loss(a, b, torch.from_numpy(y), 0.1),
        floats(6, 4),
        floats(6, 4, seed=1),
        rtol=1e-5,
    )


@pytest.mark.parametrize("swap", [False, True])
def test_triplet_margin_loss(swap):
    check(
        lambda a, p, n: F.triplet_margin_loss(a, p, n, swap=swap),
        lambda a, p, n: T.triplet_margin_loss(a, p, n, swap=swap),
        floats(6, 4),
        floats(6, 4, seed=1),
        floats(6, 4, seed=2),
        rtol=1e-5,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_loss(reduction):
    y = labels(3, 4, classes=5) + 1
    times, lengths = np.array([8, 7, 6]), np.array([4, 2, 3])
    check(
        lambda x: F.ctc_loss(
            x,
            paddle.to_tensor(y.astype("int32")),
            paddle.to_tensor(times),
            paddle.to_tensor(lengths),
            reduction=reduction,
        ),
        lambda x: T.ctc_loss(
            T.log_softmax(x, 2),
            torch.from_numpy(y),
            torch.from_numpy(times),
            torch.from_numpy(lengths),
            reduction=reduction,
        ),
        floats(8, 3, 6),
        rtol=1e-6,
        atol=1e-9,
    )


def test_sigmoid_focal_loss():
    y = labels(4, 5, classes=2).astype("float64")

    def theirs(x):
        t = torch.from_numpy(y)
        p = torch.sigmoid(x)
        right = p * t + (1 - p) * (1 - t)
        weight = 0.25 * t + 0.75 * (1 - t)
        entropy = T.binary_cross_entropy_with_logits(x, t, reduction="none")
        return (weight * entropy * (1 - right) ** 2).sum() / 3

    check(
        lambda x: F.sigmoid_focal_loss(
            x, paddle.to_tensor(y), paddle.to_tensor([3.0], dtype="float64")
        ),
        theirs,
        floats(4, 5),
    )


def test_dice_loss():
    y = labels(4, 3, 1, classes=2)

    def theirs(p):
        one = T.one_hot(torch.from_numpy(y[..., 0]), 2).double()
        overlap, both = (p * one).sum((1, 2)), p.sum((1, 2)) + one.sum((1, 2))
        return (1 - 2 * overlap / (both + 1e-5)).mean()

    check(lambda p: F.dice_loss(p, paddle.to_tensor(y)), theirs, probabilities(4, 3, 2))


def test_npair_loss():
    y = np.array([0, 1, 0, 2])

    def theirs(a, p):
        same = torch.from_numpy((y[:, None] == y).astype("float32"))
        target = same / same.sum(1, keepdim=True)
        size = 0.25 * 0.002 * ((a**2).sum(1).mean() + (p**2).sum(1).mean())
        return size + T.cross_entropy(a @ p.T, target)

    check(
        lambda a, p: F.npair_loss(a, p, paddle.to_tensor(y)),
        theirs,
        floats(4, 3, dtype="float32"),
        floats(4, 3, seed=1, dtype="float32"),
        rtol=1e-4,
        atol=1e-6,
    )


def test_hsigmoid_loss_makes_a_distribution_over_the_classes():
    x, w, b = floats(1, 3), floats(6, 3, seed=1), floats(6, seed=2)
    total = 0
    for label in range(7):
        loss = F.hsigmoid_loss(
            paddle.to_tensor(x),
            paddle.to_tensor([[label]]),
            7,
            paddle.to_tensor(w),
            paddle.to_tensor(b),
        )
        assert loss.shape == [1, 1]
        total += np.exp(-loss.numpy().item())
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)


def test_hsigmoid_loss_along_a_path_of_the_users():
    x, w = floats(2, 3), floats(4, 3, seed=1)
    table, code = np.array([[0, 2], [1, -1]]), np.array([[1, 0], [0, -1]])

    def theirs(x, w):
        def turn(i, node, bit):
            s = x[i] @ w[node]
            return T.softplus(s) - s * bit

        return torch.stack([turn(0, 0, 1) + turn(0, 2, 0), turn(1, 1, 0)])[:, None]

    check(
        lambda x, w: F.hsigmoid_loss(
            x,
            paddle.to_tensor([0, 1]),
            5,
            w,
            path_table=paddle.to_tensor(table),
            path_code=paddle.to_tensor(code),
        ),
        theirs,
        x,
        w,
    )
