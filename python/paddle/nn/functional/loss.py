# SPDX-License-Identifier: Apache-2.0
"""What training makes small. Unless said otherwise a loss is the mean over all
elements, of shape [1]; reduction='sum' adds up, 'none' keeps them."""

import paddle

from ... import _names, _ops
from ..._lib.generated.nn_functional_loss import *
from ..._lib.generated.nn_functional_loss import cross_entropy
from ...tensor.shape_argument import differ, size


def _reduce(loss, reduction, function):
    if reduction == "mean":
        return _ops.reduce_mean(loss)
    if reduction == "sum":
        return _ops.reduce_sum(loss)
    if reduction == "none":
        return loss
    raise ValueError(
        f"{function}: reduction must be 'mean', 'sum' or 'none', but is '{reduction}'"
    )


def softmax_with_cross_entropy(
    logits,
    label,
    soft_label=False,
    ignore_index=-100,
    numeric_stable_mode=True,
    return_softmax=False,
    axis=-1,
):
    """-log(softmax(logits)) at the label, one per sample, with a one at `axis`.

    return_softmax: also returns the softmax, which carries no gradient.
    """
    softmax, loss = _ops.softmax_with_cross_entropy(
        logits, label, soft_label, ignore_index, numeric_stable_mode, axis
    )
    return (loss, softmax) if return_softmax else loss


def binary_cross_entropy(input, label, weight=None, reduction="mean", name=None):
    """-label log(input) - (1 - label) log(1 - input), input a probability."""
    loss = _ops.bce_loss(input, label)
    if weight is not None:
        loss = loss * weight
    return _reduce(loss, reduction, "binary_cross_entropy")


def binary_cross_entropy_with_logits(
    logit, label, weight=None, reduction="mean", pos_weight=None, name=None
):
    """binary_cross_entropy() of sigmoid(logit), computed without loss.

    pos_weight: how much more a positive label counts.
    """
    loss = _ops.sigmoid_cross_entropy_with_logits(logit, label)
    if pos_weight is not None:
        loss = loss * (label * (pos_weight - 1.0) + 1.0)
    if weight is not None:
        loss = loss * weight
    return _reduce(loss, reduction, "binary_cross_entropy_with_logits")


def kl_div(input, label, reduction="mean", name=None):
    """label (log(label) - input), input a logarithm of probabilities. 'batchmean'
    divides the sum by the batch."""
    if reduction == "batchmean":
        total = _ops.kldiv_loss(input, label, "sum")
        if input.shape[0] == -1:
            return total / paddle.cast(size(input, 0), total.dtype)
        return _ops.scale(total, 1.0 / max(input.shape[0], 1))
    return _ops.kldiv_loss(input, label, reduction)


def margin_ranking_loss(input, other, label, margin=0.0, reduction="mean", name=None):
    """max(0, -label (input - other) + margin); label is 1 or -1."""
    loss = _ops.relu(label * (other - input) + margin)
    return _reduce(loss, reduction, "margin_ranking_loss")


def hinge_embedding_loss(input, label, margin=1.0, reduction="mean", name=None):
    """input where label is 1, max(0, margin - input) where it is -1."""
    zeros = paddle.zeros_like(input)
    loss = paddle.where(label == 1.0, input, zeros) + paddle.where(
        label == -1.0, _ops.relu(margin - input), zeros
    )
    return _reduce(loss, reduction, "hinge_embedding_loss")


def cosine_embedding_loss(input1, input2, label, margin=0, reduction="mean", name=None):
    """1 - cosine where label is 1, max(0, cosine - margin) where it is -1."""
    if len(label.shape) != 1:
        raise ValueError(
            "cosine_embedding_loss: label must have one dimension, but has shape "
            f"{list(label.shape)}"
        )
    tiny = 1e-12
    dot = _ops.reduce_sum(input1 * input2, [-1])
    squares = (_ops.reduce_sum(input1 * input1, [-1]) + tiny) * (
        _ops.reduce_sum(input2 * input2, [-1]) + tiny
    )
    cosine = dot / _ops.sqrt(squares)
    zeros = paddle.zeros_like(cosine)
    loss = paddle.where(label == 1, 1.0 - cosine, zeros) + paddle.where(
        label == -1, _ops.relu(cosine - margin), zeros
    )
    return _reduce(loss, reduction, "cosine_embedding_loss")


def triplet_margin_loss(
    input,
    positive,
    negative,
    margin=1.0,
    p=2,
    epsilon=1e-6,
    swap=False,
    reduction="mean",
    name=None,
):
    """max(0, distance to positive - distance to negative + margin). With `swap` the
    negative's distance to the positive counts if it is smaller."""
    from .distance import pairwise_distance

    if margin < 0:
        raise ValueError(f"triplet_margin_loss: margin must be positive, not {margin}")
    near = pairwise_distance(input, positive, p, epsilon)
    far = pairwise_distance(input, negative, p, epsilon)
    if swap:
        far = _ops.elementwise_min(
            far, pairwise_distance(positive, negative, p, epsilon)
        )
    return _reduce(_ops.relu(near - far + margin), reduction, "triplet_margin_loss")


def ctc_loss(
    log_probs,
    labels,
    input_lengths,
    label_lengths,
    blank=0,
    reduction="mean",
    norm_by_times=False,
):
    """Connectionist temporal classification.

    log_probs: [time, batch, classes], not yet normalised: softmax is applied.
    labels: [batch, longest]. The mean is over losses divided by label lengths.
    """
    loss = _ops.warpctc(log_probs, labels, input_lengths, label_lengths, blank)[0]
    if norm_by_times:
        loss = loss / paddle.cast(paddle.reshape(input_lengths, [-1]), loss.dtype)
    if reduction == "mean":
        lengths = paddle.cast(paddle.reshape(label_lengths, [-1]), loss.dtype)
        return _ops.reduce_mean(loss / _ops.clip(lengths, 1.0, float("inf")))
    return _reduce(loss, reduction, "ctc_loss")


def sigmoid_focal_loss(
    logit,
    label,
    normalizer=None,
    alpha=0.25,
    gamma=2.0,
    reduction="sum",
    name=None,
):
    """binary_cross_entropy_with_logits() in which what is already right counts
    little: times (1 - p of the label) ** gamma."""
    loss = _ops.sigmoid_cross_entropy_with_logits(logit, label)
    p = _ops.sigmoid(logit)
    right = p * label + (1.0 - p) * (1.0 - label)
    weight = alpha * label + (1.0 - alpha) * (1.0 - label)
    loss = weight * loss * _ops.pow(1.0 - right, gamma)
    if normalizer is not None:
        loss = loss / normalizer
    return _reduce(loss, reduction, "sigmoid_focal_loss")


def dice_loss(input, label, epsilon=1e-05, name=None):
    """1 - the share of overlap of input [N, ..., C] with the classes label
    [N, ..., 1]."""
    pairs = list(zip(input.shape[:-1], label.shape[:-1]))
    if (
        len(input.shape) != len(label.shape)
        or any(differ(a, b) for a, b in pairs)
        or label.shape[-1] != 1
    ):
        raise ValueError(
            f"dice_loss: label has shape {list(label.shape)} but must have "
            f"{list(input.shape[:-1]) + [1]}"
        )
    one_hot = _ops.one_hot_v2(paddle.squeeze(label, [-1]), input.shape[-1])
    one_hot = paddle.cast(one_hot, input.dtype)
    axes = list(range(1, len(input.shape)))
    overlap = _ops.reduce_sum(input * one_hot, axes)
    both = _ops.reduce_sum(input, axes) + _ops.reduce_sum(one_hot, axes)
    return _ops.reduce_mean(1.0 - overlap * 2.0 / (both + epsilon))


def npair_loss(anchor, positive, labels, l2_reg=0.002):
    """Cross entropy of anchor positive' against which labels are equal, plus a
    penalty on the size of both."""
    labels = paddle.cast(paddle.reshape(labels, [-1, 1]), "float32")
    same = paddle.cast(
        paddle.equal(labels, paddle.transpose(labels, [1, 0])), "float32"
    )
    target = same / _ops.reduce_sum(same, [1], True)
    size = _ops.reduce_mean(_ops.reduce_sum(_ops.square(anchor), [1])) + (
        _ops.reduce_mean(_ops.reduce_sum(_ops.square(positive), [1]))
    )
    logits = _ops.matmul_v2(anchor, positive, trans_y=True)
    entropy = cross_entropy(logits, target, soft_label=True)
    return size * (0.25 * l2_reg) + entropy


def hsigmoid_loss(
    input,
    label,
    num_classes,
    weight,
    bias=None,
    path_table=None,
    path_code=None,
    is_sparse=False,
    name=None,
):
    """Hierarchical sigmoid: -log of the probability of the path to the label in a
    binary tree, [N, 1].

    weight: [num_classes - 1, size], one row per inner node. path_table, path_code:
    [N, L], the nodes and turns of each path, -1 behind its end; by default those of a
    complete tree.
    """
    if (path_table is None) != (path_code is None):
        raise ValueError("hsigmoid_loss: give both path_table and path_code or none")
    if path_table is None:
        path_table, path_code = _complete_tree_paths(label, num_classes)
    inside = paddle.cast(path_table >= 0, input.dtype)
    nodes = _ops.elementwise_max(path_table, paddle.zeros_like(path_table))
    code = paddle.cast(path_code, input.dtype) * inside
    rows = _ops.lookup_table_v2(weight, nodes, -1, is_sparse)
    logits = _ops.reduce_sum(rows * paddle.unsqueeze(input, [1]), [-1])
    if bias is not None:
        flat = paddle.reshape(bias, [-1, 1])
        logits = logits + paddle.squeeze(_ops.lookup_table_v2(flat, nodes), [-1])
    loss = _ops.sigmoid_cross_entropy_with_logits(logits, code) * inside
    return _ops.reduce_sum(loss, [1], True)


def _complete_tree_paths(label, num_classes):
    """Nodes and turns from the root to each label in a tree whose leaves are numbered
    num_classes .. 2 num_classes - 1 and whose node i has the children 2 i, 2 i + 1."""
    label = paddle.cast(paddle.reshape(label, [-1, 1]), "int64") + num_classes
    depth = max((2 * num_classes - 1).bit_length() - 1, 1)
    nodes, turns = [], []
    for level in range(depth):
        # Whole numbers of this size divide exactly as float64.
        at = _ops.floor(paddle.cast(label, "float64") / float(2**level))
        parent = _ops.floor(at / 2.0)
        # The root, 1, has row 0; above it lies nothing, which is row -1.
        nodes.append(paddle.cast(parent - 1.0, "int64"))
        turns.append(paddle.cast(at - parent * 2.0, "int64"))
    return paddle.concat(nodes, 1), paddle.concat(turns, 1)


__all__ = _names.own(globals())
