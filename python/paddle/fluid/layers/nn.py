# SPDX-License-Identifier: Apache-2.0
"""Arithmetic with `act`, reductions with `dim`, pooling and the like."""

import paddle

from ... import (
    _names,
    _ops,
    logical_and,
    logical_not,
    logical_or,
)
from ..._lib.generated.fluid_layers_nn import *
from ...nn import functional as _F
from ...nn.functional import label_smooth, log_softmax
from ..input import one_hot as _one_hot
from .activate import activate


def _elementwise(op):
    def apply(x, y, axis=-1, act=None, name=None):
        """`axis` is where the dimensions of y begin in x; -1: they end together."""
        return activate(op(x, y, axis), act)

    apply.__name__ = apply.__qualname__ = op.name
    return apply


elementwise_add = _elementwise(_ops.elementwise_add)
elementwise_sub = _elementwise(_ops.elementwise_sub)
elementwise_mul = _elementwise(_ops.elementwise_mul)
elementwise_div = _elementwise(_ops.elementwise_div)
elementwise_max = _elementwise(_ops.elementwise_max)
elementwise_min = _elementwise(_ops.elementwise_min)
elementwise_pow = _elementwise(_ops.elementwise_pow)
elementwise_mod = _elementwise(_ops.elementwise_mod)
elementwise_floordiv = _elementwise(_ops.elementwise_floordiv)


def _reduction(function):
    def apply(input, dim=None, keep_dim=False, name=None):
        return function(input, dim, keepdim=keep_dim)

    apply.__name__ = apply.__qualname__ = f"reduce_{function.__name__}"
    apply.__doc__ = function.__doc__.replace("`axis`", "`dim`")
    return apply


reduce_sum = _reduction(paddle.sum)
reduce_mean = _reduction(paddle.mean)
reduce_max = _reduction(paddle.max)
reduce_min = _reduction(paddle.min)
reduce_prod = _reduction(paddle.prod)
reduce_all = _reduction(paddle.all)
reduce_any = _reduction(paddle.any)


def one_hot(input, depth, allow_out_of_range=False):
    """One number for each class in place of the last dimension, which is 1."""
    made = _one_hot(input, depth, allow_out_of_range)
    if len(input.shape) > 1 and input.shape[-1] == 1:
        made = paddle.squeeze(made, [-2])
    return made


def scale(x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None):
    return activate(paddle.scale(x, scale, bias, bias_after_scale), act)


def clip(x, min, max, name=None):
    return paddle.clip(x, min, max)


def softmax(input, use_cudnn=False, name=None, axis=-1):
    return _F.softmax(input, axis)


def matmul(x, y, transpose_x=False, transpose_y=False, alpha=1.0, name=None):
    product = paddle.matmul(x, y, transpose_x, transpose_y)
    return product if alpha == 1.0 else product * alpha


def refuse_seed(function, seed):
    if seed:
        raise ValueError(
            f"{function}: a seed of its own ({seed}), which drops the same elements in "
            "every step, is not supported: call paddle.seed"
        )


def dropout(
    x,
    dropout_prob,
    is_test=None,
    seed=None,
    name=None,
    dropout_implementation="downgrade_in_infer",
):
    modes = {
        "downgrade_in_infer": "downscale_in_infer",
        "upscale_in_train": "upscale_in_train",
    }
    if dropout_implementation not in modes:
        raise ValueError(
            f"dropout: dropout_implementation must be one of {tuple(modes)}, not "
            f"{dropout_implementation!r}"
        )
    refuse_seed("dropout", seed)
    mode = modes[dropout_implementation]
    return _F.dropout(x, dropout_prob, training=not is_test, mode=mode)


def pool2d(
    input,
    pool_size=-1,
    pool_type="max",
    pool_stride=1,
    pool_padding=0,
    global_pooling=False,
    use_cudnn=True,
    ceil_mode=False,
    name=None,
    exclusive=True,
    data_format="NCHW",
):
    if pool_type not in ("max", "avg"):
        raise ValueError(f"pool2d: pool_type must be 'max' or 'avg': {pool_type!r}")
    if global_pooling:
        if pool_type == "avg":
            return _F.adaptive_avg_pool2d(input, 1, data_format)
        first = 2 if data_format == "NCHW" else 1
        return paddle.max(input, [first, first + 1], True)
    shared = {"ceil_mode": ceil_mode, "data_format": data_format}
    if pool_type == "max":
        return _F.max_pool2d(input, pool_size, pool_stride, pool_padding, **shared)
    return _F.avg_pool2d(
        input, pool_size, pool_stride, pool_padding, exclusive=exclusive, **shared
    )


def pad(x, paddings, pad_value=0.0, name=None):
    """`paddings` holds two numbers for each axis, the first axis first."""
    return _F.pad(x, paddings, value=pad_value)


def l2_normalize(x, axis, epsilon=1e-12, name=None):
    return x / paddle.sqrt(paddle.sum(x * x, axis, keepdim=True) + epsilon)


def cos_sim(X, Y):
    """The cosine of the angle between rows, [N, 1]."""
    return paddle.unsqueeze(_F.cosine_similarity(X, Y, axis=1), 1)


__all__ = _names.gathered(globals(), hidden="activate refuse_seed")
