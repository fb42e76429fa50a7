# SPDX-License-Identifier: Apache-2.0
"""Labels, masks, and sequences of different lengths."""

import paddle

from ... import _names, _ops
from ..._core import Variable
from ...tensor import shape_argument


def label_smooth(label, prior_dist=None, epsilon=0.1, name=None):
    """(1 - epsilon) label + epsilon times prior_dist, by default the same for all
    classes."""
    if not 0 <= epsilon <= 1:
        raise ValueError(f"label_smooth: epsilon is {epsilon} but must lie in [0, 1]")
    if prior_dist is None:
        return _ops.scale(label, 1.0 - epsilon, epsilon / label.shape[-1])
    return label * (1.0 - epsilon) + prior_dist * epsilon


def sequence_mask(x, maxlen=None, dtype="int64", name=None):
    """For each length in x a row with so many ones, filled up with zeros to maxlen,
    by default the longest."""
    if isinstance(x, Variable):
        maxlen = paddle.max(x) if maxlen is None else maxlen
    elif maxlen is None:
        maxlen = int(paddle.max(x).item()) if x.size else 0
    elif hasattr(maxlen, "item"):
        maxlen = int(maxlen.item())
    if not isinstance(maxlen, Variable) and maxlen < 0:
        raise ValueError(f"sequence_mask: maxlen must not be negative, not {maxlen}")
    steps = paddle.arange(0, maxlen, 1, x.dtype)
    return paddle.cast(steps < paddle.unsqueeze(x, [-1]), dtype)


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """The last dimension of input as a diagonal in the new dimensions dim1, dim2."""
    rank = len(input.shape) + 1
    first, second = dim1 % rank, dim2 % rank
    if first == second:
        raise ValueError(
            f"diag_embed: dim1 {dim1} and dim2 {dim2} are the same dimension"
        )
    length = input.shape[-1]
    size = length + abs(offset)
    rows = paddle.arange(max(-offset, 0), max(-offset, 0) + length, 1, "int64")
    # Row i of the matrix has its element in column i + offset.
    columns = _ops.one_hot_v2(rows + offset, size)
    places = _ops.one_hot_v2(rows, size)
    plane = paddle.unsqueeze(places, [2]) * paddle.unsqueeze(columns, [1])
    flat = paddle.cast(paddle.reshape(plane, [length, size * size]), input.dtype)
    out = paddle.reshape(
        _ops.matmul_v2(paddle.reshape(input, [-1, length]), flat),
        [shape_argument.size(input, i) for i in range(rank - 2)] + [size, size],
    )
    order = list(range(rank - 2))
    for dim, axis in sorted([(first, rank - 2), (second, rank - 1)]):
        order.insert(dim, axis)
    return paddle.transpose(out, order)


def sequence_pool(input, pool_type, is_test=False, pad_value=0.0):
    """One vector for each sequence of a Variable with lod_level 1; see
    paddle.fluid.layers.sequence_pool."""
    from ...static.sequence import sequence_pool as pool

    if isinstance(input, Variable):
        return pool(input, pool_type, is_test, pad_value)
    raise TypeError(
        "sequence_pool needs the lengths of sequences (LoD), which eager tensors do "
        "not carry. For padded sequences use sequence_mask and a sum or maximum."
    )


__all__ = _names.own(globals())
