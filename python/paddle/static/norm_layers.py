# SPDX-License-Identifier: Apache-2.0
"""Normalisation as functions that make their parameters themselves."""

import math

from .. import _names, _ops
from ..framework.param_attr import ParamAttr
from ..framework.parameter import new_parameter
from ..nn import functional as F
from ..nn.initializer import Constant, Normal
from .layers import activate, begin
from .program import OpRole, default_main_program, layer_guard, role_guard


def _channels(function, input, data_layout):
    if data_layout not in ("NCHW", "NHWC"):
        raise ValueError(
            f"{function}(): data_layout must be 'NCHW' or 'NHWC', but is {data_layout!r}"
        )
    if len(input.shape) < 2:
        raise ValueError(
            f"{function}(): input needs two dimensions at least, but its shape is "
            f"{input.shape}"
        )
    count = input.shape[1 if data_layout == "NCHW" or len(input.shape) == 2 else -1]
    if count < 0:
        raise ValueError(
            f"{function}(): the number of channels must be known, but the shape of "
            f"input is {input.shape}"
        )
    return count


def _scale_and_shift(shape, param_attr, bias_attr, dtype, layer):
    scale = new_parameter(shape, param_attr, dtype, False, Constant(1.0), layer)
    shift = new_parameter(shape, bias_attr, dtype, True, None, layer)
    return scale, shift


def _statistic(shape, name, value, dtype, layer, average=True):
    """A parameter that is not trained."""
    attr = ParamAttr(name=name, trainable=False, do_model_average=average)
    made = new_parameter(shape, attr, dtype, False, Constant(value), layer)
    made.stop_gradient = True
    return made


def batch_norm(
    input,
    act=None,
    is_test=False,
    momentum=0.9,
    epsilon=1e-05,
    param_attr=None,
    bias_attr=None,
    data_layout="NCHW",
    in_place=False,
    name=None,
    moving_mean_name=None,
    moving_variance_name=None,
    do_model_average_for_mean_and_var=True,
    use_global_stats=False,
):
    """Each channel with mean 0 and variance 1, times a new scale, plus a new shift.
    See paddle.nn.functional.batch_norm."""
    channels = _channels("batch_norm", input, data_layout)
    layer = begin("batch_norm", "batch_norm", name)
    average = do_model_average_for_mean_and_var
    with layer_guard(layer):
        scale, shift = _scale_and_shift(
            [channels], param_attr, bias_attr, input.dtype, layer
        )
        mean = _statistic(
            [channels], moving_mean_name, 0.0, input.dtype, layer, average
        )
        variance = _statistic(
            [channels], moving_variance_name, 1.0, input.dtype, layer, average
        )
        out = F.batch_norm(
            input,
            mean,
            variance,
            scale,
            shift,
            not is_test,
            momentum,
            epsilon,
            data_layout,
            True if use_global_stats else None,
        )
        return activate(out, act)


def layer_norm(
    input,
    scale=True,
    shift=True,
    begin_norm_axis=1,
    epsilon=1e-05,
    param_attr=None,
    bias_attr=None,
    act=None,
    name=None,
):
    """Mean 0 and variance 1 over the dimensions from `begin_norm_axis` on, times a new
    scale, plus a new shift, where they are wanted."""
    normed = input.shape[begin_norm_axis:]
    if not normed or any(n < 0 for n in normed):
        raise ValueError(
            f"layer_norm(): the dimensions from {begin_norm_axis} on must be known, but "
            f"the shape of input is {input.shape}"
        )
    layer = begin("layer_norm", "layer_norm", name)
    with layer_guard(layer):
        weight, bias = _scale_and_shift(
            [math.prod(normed)],
            param_attr if scale else False,
            bias_attr if shift else False,
            input.dtype,
            layer,
        )
        out, _, _ = _ops.layer_norm(input, weight, bias, begin_norm_axis, epsilon)
        return activate(out, act)


def group_norm(
    input,
    groups,
    epsilon=1e-05,
    param_attr=None,
    bias_attr=None,
    act=None,
    data_layout="NCHW",
    name=None,
):
    """Mean 0 and variance 1 in each of `groups` groups of channels, times a new scale,
    plus a new shift."""
    channels = _channels("group_norm", input, data_layout)
    layer = begin("group_norm", "group_norm", name)
    with layer_guard(layer):
        weight, bias = _scale_and_shift(
            [channels], param_attr, bias_attr, input.dtype, layer
        )
        out = F.group_norm(input, groups, epsilon, weight, bias, data_layout)
        return activate(out, act)


def instance_norm(input, epsilon=1e-05, param_attr=None, bias_attr=None, name=None):
    """Mean 0 and variance 1 in each channel of each sample, times a new scale, plus a
    new shift."""
    channels = _channels("instance_norm", input, "NCHW")
    layer = begin("instance_norm", "instance_norm", name)
    with layer_guard(layer):
        weight, bias = _scale_and_shift(
            [channels], param_attr, bias_attr, input.dtype, layer
        )
        return F.instance_norm(input, weight=weight, bias=bias, eps=epsilon)


def data_norm(
    input,
    act=None,
    epsilon=1e-05,
    param_attr=None,
    data_layout="NCHW",
    in_place=False,
    name=None,
    moving_mean_name=None,
    moving_variance_name=None,
    do_model_average_for_mean_and_var=True,
    slot_dim=-1,
    sync_stats=False,
    summary_decay_rate=0.9999999,
    enable_scale_and_shift=False,
):
    """Each column of input [N, D] minus its mean, over its deviation, both of all rows
    so far: three sums that each step of training multiplies by `summary_decay_rate`
    and adds the batch to.

    param_attr: may be a dict with the first values of the sums, 'batch_size',
        'batch_sum' and 'batch_square', and of 'scale_w' and 'bias'.
    sync_stats: must be False where several ranks train together: each has its own sums.
    """
    if sync_stats:
        from ..distributed.parallel import get_world_size  # here: it brings collectives

        if get_world_size() > 1:
            raise NotImplementedError(
                "data_norm(): sync_stats=True, sums over all ranks, is not supported; "
                "batch_norm with strategy.sync_batch_norm has them"
            )
    columns = _channels("data_norm", input, data_layout)
    first = {"batch_size": 1e4, "batch_sum": 0.0, "batch_square": 1e4}
    given = param_attr if isinstance(param_attr, dict) else {}
    first.update({k: given[k] for k in first if k in given})
    if slot_dim > 0:
        raise ValueError("data_norm(): slot_dim is not supported")
    layer = begin("data_norm", "data_norm", name)
    with layer_guard(layer):
        prefix = layer if name is None else name

        def total(key, ending):
            return _statistic(
                [columns], f"{prefix}.{ending}", float(first[key]), input.dtype, layer
            )

        size = total("batch_size", "batch_size")
        sums = total("batch_sum", "batch_sum")
        squares = total("batch_square", "batch_square_sum")
        mean = _ops.elementwise_div(sums, size)
        scale = _ops.sqrt(_ops.elementwise_div(size, squares))
        centred = _ops.elementwise_sub(input, mean)
        out = _ops.elementwise_mul(centred, scale)
        _add_batch(input, centred, (size, sums, squares), epsilon, summary_decay_rate)
        if enable_scale_and_shift:
            weight = new_parameter(
                [columns],
                ParamAttr(name=f"{prefix}.scale_w"),
                input.dtype,
                False,
                Constant(float(given.get("scale_w", 1.0))),
                layer,
            )
            bias = new_parameter(
                [columns],
                ParamAttr(name=f"{prefix}.bias"),
                input.dtype,
                True,
                Constant(float(given.get("bias", 0.0))),
                layer,
            )
            out = _ops.elementwise_add(_ops.elementwise_mul(out, weight), bias)
        return activate(out, act)


def _add_batch(input, centred, totals, epsilon, decay):
    """Moves the sums of data_norm; not in a program for tests."""
    block = default_main_program().current_block()
    with role_guard(OpRole.Optimize):
        ones = _ops.scale(input, 0.0, 1.0)
        rows = _ops.reduce_sum(ones, [0])
        deviation = _ops.reduce_sum(_ops.square(centred), [0])
        added = (
            rows,
            _ops.reduce_sum(input, [0]),
            _ops.elementwise_add(deviation, _ops.scale(rows, epsilon)),
        )
        for variable, more in zip(totals, added):
            moved = _ops.elementwise_add(_ops.scale(variable, decay), more)
            block.append_op("assign", {"X": moved}, {"Out": variable})


def spectral_norm(weight, dim=0, power_iters=1, eps=1e-12, name=None):
    """`weight` over its largest singular value, as a matrix with the rows along `dim`;
    the value comes from `power_iters` steps from where a fixed random start is."""
    shape = list(weight.shape)
    dim %= len(shape)
    rows, columns = shape[dim], math.prod(shape) // shape[dim]
    layer = begin("spectral_norm", "spectral_norm", name)
    with layer_guard(layer):
        matrix = weight
        if dim != 0:
            order = [dim, *(i for i in range(len(shape)) if i != dim)]
            matrix = _ops.transpose2(weight, order)
        matrix = _ops.reshape2(matrix, shape=[rows, columns])

        def start(length):
            attr = ParamAttr(trainable=False, initializer=Normal(0.0, 1.0))
            made = new_parameter([length, 1], attr, weight.dtype, False, None, layer)
            made.stop_gradient = True
            return made

        def unit(vector):
            length = _ops.sqrt(_ops.reduce_sum(_ops.square(vector), reduce_all=True))
            return _ops.elementwise_div(vector, _ops.scale(length, 1.0, eps))

        u, v = start(rows), start(columns)
        fixed = _ops.assign(matrix)
        fixed.stop_gradient = True
        for _ in range(power_iters):
            v = unit(_ops.matmul_v2(fixed, u, True, False))
            u = unit(_ops.matmul_v2(fixed, v))
        largest = _ops.matmul_v2(_ops.matmul_v2(u, matrix, True, False), v)
        return _ops.elementwise_div(weight, _ops.reshape2(largest, shape=[1]))


__all__ = _names.own(globals())
