# SPDX-License-Identifier: Apache-2.0
"""Losses as layers against torch."""

import numpy as np
import paddle
import pytest
import torch
from layer_check import compare, random_array
from paddle import nn

T = torch.nn
REDUCTIONS = ["mean", "sum", "none"]


def probabilities(*shape, seed=0):
    return (1 / (1 + np.exp(-random_array(*shape, seed=seed)))).astype("float32")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "ours, theirs", [(nn.MSELoss, T.MSELoss), (nn.L1Loss, T.L1Loss)]
)
def test_differences(ours, theirs, reduction):
    x, y = random_array(4, 3), random_array(4, 3, seed=1)
    compare(ours(reduction=reduction), theirs(reduction=reduction), [x, y])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_smooth_l1(reduction):
    x, y = 2 * random_array(4, 3), random_array(4, 3, seed=1)
    # Paddle's formula is Huber's: delta times torch's smooth L1.
    compare(
        nn.SmoothL1Loss(reduction, delta=0.7),
        T.HuberLoss(reduction=reduction, delta=0.7),
        [x, y],
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy(reduction):
    x, labels = random_array(5, 4), np.array([0, 3, 1, 1, 2])
    compare(
        nn.CrossEntropyLoss(reduction=reduction),
        T.CrossEntropyLoss(reduction=reduction),
        [x, labels],
    )
    theirs = T.CrossEntropyLoss(reduction=reduction)
    compare(
        nn.CrossEntropyLoss(reduction=reduction),
        lambda logits, label: theirs(logits, label.squeeze(1)),
        [x, labels[:, None]],
    )


def test_cross_entropy_with_weights_and_ignored_labels():
    x, labels = random_array(5, 4), np.array([0, 3, -1, 1, 2])
    weight = np.array([0.5, 1.0, 2.0, 1.5], "float32")
    compare(
        nn.CrossEntropyLoss(weight=paddle.to_tensor(weight), ignore_index=-1),
        T.CrossEntropyLoss(weight=torch.tensor(weight), ignore_index=-1),
        [x, labels],
    )


def test_cross_entropy_with_soft_labels():
    x = random_array(5, 4)
    y = probabilities(5, 4, seed=1)
    y = y / y.sum(axis=1, keepdims=True)
    label = paddle.to_tensor(y)
    compare(
        lambda t: nn.CrossEntropyLoss(soft_label=True)(t, label),
        lambda t: T.CrossEntropyLoss()(t, torch.tensor(y)),
        [x],
    )


def test_cross_entropy_refuses_a_label_out_of_range():
    with pytest.raises(ValueError) as error:
        nn.CrossEntropyLoss()(paddle.ones([2, 3]), paddle.to_tensor([0, 3]))
    assert "3" in str(error.value)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction):
    x, y = probabilities(4, 3), probabilities(4, 3, seed=1)
    weight = probabilities(3, seed=2)
    label = paddle.to_tensor(y)
    for own, other in ((None, None), (paddle.to_tensor(weight), torch.tensor(weight))):
        ours = nn.BCELoss(weight=own, reduction=reduction)
        theirs = T.BCELoss(weight=other, reduction=reduction)
        compare(
            lambda t, f=ours: f(t, label),
            lambda t, f=theirs: f(t, torch.tensor(y)),
            [x],
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_with_logits(reduction):
    x, y = random_array(4, 3), np.float32(random_array(4, 3, seed=1) > 0)
    pos = probabilities(3, seed=2)
    label = paddle.to_tensor(y)
    ours = nn.BCEWithLogitsLoss(reduction=reduction, pos_weight=paddle.to_tensor(pos))
    theirs = T.BCEWithLogitsLoss(reduction=reduction, pos_weight=torch.tensor(pos))
    compare(lambda t: ours(t, label), lambda t: theirs(t, torch.tensor(y)), [x])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll(reduction):
    x = np.log(probabilities(5, 4))
    labels = np.array([0, 3, 1, 1, 2])
    compare(
        nn.NLLLoss(reduction=reduction), T.NLLLoss(reduction=reduction), [x, labels]
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "batchmean"])
def test_kl_div(reduction):
    x, y = np.log(probabilities(4, 3)), probabilities(4, 3, seed=1)
    target = paddle.to_tensor(y)
    ours, theirs = nn.KLDivLoss(reduction), T.KLDivLoss(reduction=reduction)
    compare(lambda t: ours(t, target), lambda t: theirs(t, torch.tensor(y)), [x])


def test_margin_ranking():
    x, y = random_array(6), random_array(6, seed=1)
    sign = np.array([1, -1, 1, 1, -1, -1], "float32")
    label = paddle.to_tensor(sign)
    for reduction in REDUCTIONS:
        ours = nn.MarginRankingLoss(0.3, reduction)
        theirs = T.MarginRankingLoss(0.3, reduction=reduction)
        compare(
            lambda a, b, f=ours: f(a, b, label),
            lambda a, b, f=theirs: f(a, b, torch.tensor(sign)),
            [x, y],
        )


def test_embedding_losses():
    x, y = random_array(5, 4), random_array(5, 4, seed=1)
    z = random_array(5, 4, seed=2)
    sign = np.array([1, -1, 1, -1, -1], "float32")
    label = paddle.to_tensor(sign)
    compare(
        lambda a, b: nn.CosineEmbeddingLoss(0.1)(a, b, label),
        lambda a, b: T.CosineEmbeddingLoss(0.1)(a, b, torch.tensor(sign)),
        [x, y],
    )
    signs = np.sign(random_array(5, 4, seed=3))
    compare(
        lambda a: nn.HingeEmbeddingLoss(0.8)(a, paddle.to_tensor(signs)),
        lambda a: T.HingeEmbeddingLoss(0.8)(a, torch.tensor(signs)),
        [x],
    )
    compare(nn.TripletMarginLoss(0.5), T.TripletMarginLoss(0.5), [x, y, z])


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_ctc(reduction):
    x = random_array(7, 2, 5)
    labels = np.array([[1, 2, 2], [3, 1, 0]], "int32")
    input_lengths = np.array([7, 6])
    label_lengths = np.array([3, 2])

    def ours(logits):
        return nn.CTCLoss(blank=0, reduction=reduction)(
            logits,
            paddle.to_tensor(labels),
            paddle.to_tensor(input_lengths),
            paddle.to_tensor(label_lengths),
        )

    def theirs(logits):
        out = T.CTCLoss(blank=0, reduction="none")(
            torch.log_softmax(logits, -1),
            torch.tensor(labels),
            torch.tensor(input_lengths),
            torch.tensor(label_lengths),
        )
        return out.sum() if reduction == "sum" else out

    compare(ours, theirs, [x], rtol=1e-3, atol=1e-4)


def test_hsigmoid_follows_the_tree():
    loss = nn.HSigmoidLoss(3, 4)
    x, labels = random_array(4, 3), np.arange(4)
    out = loss(paddle.to_tensor(x), paddle.to_tensor(labels)).numpy().reshape(-1)
    weight, bias = loss.weight.numpy(), loss.bias.numpy().reshape(-1)
    for i, label in enumerate(labels):
        # A complete tree: the path of class c is that of c + 4 from the root 1.
        code = int(label) + 4
        total = 0.0
        for depth in range(code.bit_length() - 1):
            node = (code >> (depth + 1)) - 1
            bit = (code >> depth) & 1
            score = x[i] @ weight[node] + bias[node]
            total += np.log1p(np.exp(score)) - bit * score
        np.testing.assert_allclose(out[i], total, rtol=1e-4)


def test_reduction_is_checked():
    for name in ("MSELoss", "L1Loss", "CrossEntropyLoss", "BCELoss", "NLLLoss"):
        with pytest.raises(ValueError, match=f"{name}: reduction must be one of"):
            getattr(nn, name)(reduction="average")


def test_mismatched_shapes_are_named():
    with pytest.raises(ValueError) as error:
        nn.MSELoss()(paddle.ones([2, 3]), paddle.ones([4, 5]))
    assert "[2, 3]" in str(error.value) and "[4, 5]" in str(error.value)
