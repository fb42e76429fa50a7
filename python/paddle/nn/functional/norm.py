# SPDX-License-Identifier: Apache-2.0
"""Normalisation over batches, layers, groups and vectors."""

import paddle

from ... import _names, _ops
from ...tensor import shape_argument


def batch_norm(
    x,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.9,
    epsilon=1e-05,
    data_format="NCHW",
    use_global_stats=None,
    name=None,
):
    """Each channel of x with mean 0 and variance 1, times weight, plus bias.

    In training the statistics are the batch's, and the running ones move in place:
    running = momentum * running + (1 - momentum) * batch. Otherwise the running ones
    are used. use_global_stats decides it the other way round.
    """
    is_test = not training
    if use_global_stats is None:
        use_global_stats = is_test
    # Asked for by name, the batch's statistics are used outside training too.
    is_test = is_test and use_global_stats
    out, _, _ = _ops.batch_norm(
        x,
        running_mean,
        running_var,
        weight,
        bias,
        momentum,
        epsilon,
        is_test,
        use_global_stats,
        data_format,
    )
    return out


def layer_norm(x, normalized_shape, weight=None, bias=None, epsilon=1e-05, name=None):
    """x with mean 0 and variance 1 over its last dimensions, which must be
    normalized_shape, times weight, plus bias."""
    if isinstance(normalized_shape, int):
        normalized_shape = [normalized_shape]
    shape = list(normalized_shape)
    begin = len(x.shape) - len(shape)
    if begin < 0 or any(map(shape_argument.differ, x.shape[begin:], shape)):
        raise ValueError(
            f"layer_norm: normalized_shape {shape} must be the last dimensions of x, "
            f"which has shape {list(x.shape)}"
        )
    out, _, _ = _ops.layer_norm(x, weight, bias, begin, epsilon)
    return out


def group_norm(
    x,
    num_groups,
    epsilon=1e-05,
    weight=None,
    bias=None,
    data_format="NCHW",
    name=None,
):
    """Each of num_groups groups of channels with mean 0 and variance 1, times
    weight, plus bias."""
    if num_groups < 1:
        raise ValueError(f"group_norm: num_groups must be positive, not {num_groups}")
    out, _, _ = _ops.group_norm(x, weight, bias, num_groups, epsilon, data_format)
    return out


def instance_norm(
    x,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.9,
    eps=1e-05,
    data_format="NCHW",
    name=None,
):
    """Each channel of each sample with mean 0 and variance 1, times weight, plus
    bias. The statistics are always the input's; running ones are not kept."""
    if not use_input_stats:
        raise ValueError(
            "instance_norm: use_input_stats=False is not supported; use batch_norm "
            "with use_global_stats=True"
        )
    if len(x.shape) < 3:
        raise ValueError(
            f"instance_norm: x needs a spatial dimension, but has shape {list(x.shape)}"
        )
    out, _, _ = _ops.group_norm(x, weight, bias, 0, eps, data_format)
    return out


def local_response_norm(
    x, size, alpha=1e-4, beta=0.75, k=1.0, data_format="NCHW", name=None
):
    """x over (k + alpha * average of the squares of `size` neighbouring channels) to
    the power of beta."""
    rank = len(x.shape)
    if rank < 3:
        raise ValueError(
            f"local_response_norm: x needs 3 to 5 dimensions, but has {rank}"
        )
    last = data_format[-1] == "C"
    square = _ops.square(x)
    if last:
        order = [0, rank - 1, *range(1, rank - 1)]
        square = paddle.transpose(square, order)
    shape = [shape_argument.size(square, i) for i in range(rank)]
    # Channels and everything behind them as the two sides of an image.
    flat = paddle.reshape(paddle.unsqueeze(square, 1), [0, 0, 0, -1])
    mean = _ops.avg_pool2d(
        flat,
        [size, 1],
        [1, 1],
        [size // 2, (size - 1) // 2, 0, 0],
        exclusive=False,
    )
    mean = paddle.reshape(mean, shape)
    if last:
        mean = paddle.transpose(mean, [0, *range(2, rank), 1])
    return x / _ops.pow(_ops.scale(mean, alpha, k), beta)


def normalize(x, p=2, axis=1, epsilon=1e-12, name=None):
    """x over its p-norm along `axis`, which counts as epsilon at least."""
    if len(x.shape) == 1:
        axis = 0
    # One op, whose gradient is zero where the norm is: that of a root would be
    # infinite there, and a row of zeros would get nan.
    length = _ops.p_norm(x, float(p), axis, epsilon, True)
    return x / _ops.clip(length, epsilon, float("inf"))


__all__ = _names.own(globals())
