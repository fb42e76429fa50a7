# SPDX-License-Identifier: Apache-2.0
"""How far vectors are from each other."""

from ... import _names, _ops


def cosine_similarity(x1, x2, axis=1, eps=1e-8):
    """The cosine of the angle between x1 and x2 along `axis`."""
    dot = _ops.reduce_sum(_ops.elementwise_mul(x1, x2), [axis])
    squares = _ops.elementwise_mul(
        _ops.reduce_sum(_ops.square(x1), [axis]),
        _ops.reduce_sum(_ops.square(x2), [axis]),
    )
    lengths = _ops.sqrt(_ops.clip(squares, eps * eps, float("inf")))
    return _ops.elementwise_div(dot, lengths)


def pairwise_distance(x, y, p=2.0, epsilon=1e-6, keepdim=False, name=None):
    """The p-norm of x - y + epsilon along the last dimension."""
    difference = _ops.abs(_ops.scale(_ops.elementwise_sub(x, y), bias=epsilon))
    if p == float("inf"):
        return _ops.reduce_max(difference, [-1], keepdim)
    if p == 0:
        one = _ops.sign(difference)
        return _ops.reduce_sum(one, [-1], keepdim)
    if p == 1:
        return _ops.reduce_sum(difference, [-1], keepdim)
    if p == 2:
        return _ops.sqrt(_ops.reduce_sum(_ops.square(difference), [-1], keepdim))
    return _ops.pow(_ops.reduce_sum(_ops.pow(difference, p), [-1], keepdim), 1.0 / p)


__all__ = _names.own(globals())
