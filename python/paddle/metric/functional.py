# SPDX-License-Identifier: Apache-2.0
"""Metrics of one batch, as ops."""

import paddle
from paddle import _ops


def accuracy(input, label, k=1, correct=None, total=None, name=None):
    """The share of rows whose label is among the `k` largest values, shape [1].

    Args:
        input: scores [N, classes]; ValueError where one of the largest is NaN.
        label: the right class of each row, [N, 1] or [N].
        correct, total: int Tensors of shape [1] that receive the number of rows
            that are right, and of all.
    """
    values, indices = paddle.topk(input, k)
    share, num_correct, num_total = _ops.accuracy(values, indices, label)
    if correct is not None:
        paddle.assign(num_correct, correct)
    if total is not None:
        paddle.assign(num_total, total)
    return share
