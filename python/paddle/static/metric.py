# SPDX-License-Identifier: Apache-2.0
"""Metrics as operations of a program."""

from .. import _ops
from .._core import DType
from ..framework.mode import require_static
from ..optimizer.program_update import persistable
from ..utils import unique_name
from .program import default_main_program, layer_guard

__all__ = ["accuracy", "auc"]


def accuracy(input, label, k=1, correct=None, total=None):
    """The share of rows whose label is among the `k` largest values, shape [1].

    input: scores [N, classes].
    label: the right class of each row, [N, 1] or [N].
    correct, total: int32 variables of shape [1] that receive the number of rows that
        are right, and of all.
    """
    require_static("paddle.static.accuracy")
    with layer_guard(unique_name.generate("accuracy")):
        values, indices = _ops.top_k_v2(input, k=k)
        share, right, rows = _ops.accuracy(values, indices, label)
        block = default_main_program().current_block()
        for given, made in ((correct, right), (total, rows)):
            if given is not None:
                block.append_op("assign", {"X": made}, {"Out": given})
        return share


def auc(input, label, curve="ROC", num_thresholds=2**12 - 1, topk=1, slide_steps=1):
    """The area under the ROC curve of all samples since the startup program ran, and
    that of the last `slide_steps` batches.

    input: probabilities [N, 2], the positive class last, or [N, 1].
    label: 0 or 1 for each row, [N, 1].
    Returns (area, area of the last batches, [their two states, the two states of all]);
    the states count predictions by threshold and are persistable variables, named
    _generated_var_0 and so on as in Paddle: scripts find them by that to set them to 0.
    """
    require_static("paddle.static.auc")
    if curve not in ("ROC", "PR"):
        raise ValueError(f"auc(): curve must be 'ROC' or 'PR', but is {curve!r}")
    if slide_steps < 0:
        raise ValueError(
            f"auc(): slide_steps must not be negative, but is {slide_steps}"
        )
    buckets = num_thresholds + 1
    layer = unique_name.generate("auc")
    recent = [(1 + slide_steps) * buckets + 1] if slide_steps else [1, buckets]
    with layer_guard(layer):
        states = [
            persistable(unique_name.generate("_generated_var"), shape, 0, DType.int64)
            for shape in (recent, recent, [1, buckets], [1, buckets])
        ]
        of_batches = _append(
            input, label, states[:2], curve, num_thresholds, slide_steps
        )
        of_all = _append(input, label, states[2:], curve, num_thresholds, 0)
        return of_all, of_batches, states


def _append(input, label, states, curve, num_thresholds, slide_steps):
    block = default_main_program().current_block()
    area = block.create_var(
        name=unique_name.generate(f"{unique_name.generate('auc')}.tmp"),
        shape=[1],
        dtype="float64",
        stop_gradient=True,
    )
    block.append_op(
        "auc",
        {"Predict": input, "Label": label, "StatPos": states[0], "StatNeg": states[1]},
        {"AUC": area, "StatPosOut": states[0], "StatNegOut": states[1]},
        {
            "curve": curve,
            "num_thresholds": num_thresholds,
            "slide_steps": slide_steps,
        },
    )
    return area
