# SPDX-License-Identifier: Apache-2.0
"""Clipping of the gradients that parameters hold."""

import paddle

from ...autograd import no_grad


def _with_gradients(parameters):
    if paddle.is_tensor(parameters):
        parameters = [parameters]
    return [p for p in parameters if p.grad is not None]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scales all gradients down so that their joint norm is at most max_norm.

    Returns the norm before.
    """
    parameters = _with_gradients(parameters)
    norm_type = float(norm_type)
    if norm_type <= 0:
        raise ValueError(
            f"clip_grad_norm_: norm_type must be positive, but is {norm_type}"
        )
    if not parameters:
        return paddle.zeros([1])
    with no_grad():
        sizes = [paddle.abs(p.grad) for p in parameters]
        if norm_type == float("inf"):
            total = paddle.max(paddle.concat([paddle.max(s) for s in sizes]))
        else:
            powers = [paddle.sum(paddle.pow(s, norm_type)) for s in sizes]
            total = paddle.pow(paddle.add_n(powers), 1.0 / norm_type)
        if error_if_nonfinite and not bool(paddle.isfinite(total).numpy().all()):
            raise RuntimeError(
                f"clip_grad_norm_: the norm of order {norm_type} is "
                f"{float(total.numpy().reshape(-1)[0])}"
            )
        factor = paddle.clip(max_norm / (total + 1e-6), max=1.0)
        for p in parameters:
            p.grad = p.grad * factor
    return total


def clip_grad_value_(parameters, clip_value):
    """Keeps every element of the gradients within clip_value of zero."""
    if clip_value < 0:
        raise ValueError(
            f"clip_grad_value_: clip_value must not be negative, but is {clip_value}"
        )
    with no_grad():
        for p in _with_gradients(parameters):
            p.grad = paddle.clip(p.grad, -clip_value, clip_value)
