# SPDX-License-Identifier: Apache-2.0
"""Sorting, searching, choosing, counting."""

from recipes import recipe
from recipes_math import boolean
from value import Reject, Text


@recipe("top_k_v2", "top_k")
def top_k(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    axis = d.axis(value)
    if op == "top_k":
        if value.rank < 2 and value.rows == "rows":
            raise Reject
        # A slot and an attribute are both called k.
        d.line(f"ops.top_k({value.name}, None, {value.shape[-1]})", 2)
        return
    count = d.rng.randrange(1, value.shape[axis] + 1)
    d.call(op, value, outputs=2, k=count, axis=axis, largest=d.chance(0.6))


@recipe("argsort")
def argsort(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    d.call(op, value, outputs=2, axis=d.axis(value), descending=d.chance(0.5))


@recipe("arg_max", "arg_min")
def arg_extreme(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    if d.chance(0.2) and not d.split:
        d.call(op, value, flatten=True)
    else:
        dtype = Text(d.one_of("I64", "I32"))
        d.call(op, value, axis=d.axis(value), keepdims=d.chance(0.5), dtype=dtype)


@recipe("where")
def where(d, op):
    value = d.floats()
    d.call(op, boolean(d, value.shape), value, d.floats(shape=value.shape))


@recipe("where_index")
def where_index(d, op):
    d.call(op, boolean(d, d.floats(rank=(1, 2)).shape))


@recipe("masked_select")
def masked_select(d, op):
    value = d.floats(where=lambda v: v.size > 0)
    # How many there are differs from batch to batch.
    mask = d.line(f"{value.name} > {d.number_in(-1, 0)}")
    d.line(f"paddle.sum(ops.{op}({value.name}, {mask.name}))")


@recipe("unique")
def unique(d, op):
    # Fed: of numbers in the program it would be no operation of the program.
    ids = d.feed((d.batch,), "ids", 4, "int64")
    d.line(
        f"ops.unique({ids.name}, return_index=True, return_inverse=True, "
        "return_counts=True)",
        4,
    )


@recipe("multiplex")
def multiplex(d, op):
    value = d.floats(rank=2)
    other = d.floats(shape=value.shape)
    d.call(op, [value, other], d.integers((value.shape[0], 1), 2, "int32"))


@recipe("cumsum", "cumprod")
def cumulative(d, op):
    value = d.floats(rank=(1, 2, 3))
    if op == "cumprod":
        d.call(op, d.squashed(value), dim=d.axis(value))
    elif d.chance(0.2) and not d.split:
        d.call(op, value, flatten=True)
    else:
        flags = dict(exclusive=d.chance(0.3), reverse=d.chance(0.3))
        d.call(op, value, axis=d.axis(value), **flags)


@recipe("diff")
def diff(d, op):
    value = d.floats(rank=(1, 2, 3))
    axis = d.axis(value)
    d.call(op, value, n=min(d.one_of(0, 1, 1, 2), value.shape[axis]), axis=axis)


@recipe("quantile")
def quantile(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    axis = d.axis(value)
    many = d.chance(0.4) and not d.split
    q = [0.25, d.number_in(0, 1)] if many else [d.number_in(0, 1)]
    d.call(
        op, value, outputs=2, q=q, dim=[axis], keep_dim=d.chance(0.5), list=len(q) > 1
    )


@recipe("histogram")
def histogram(d, op):
    d.call(op, d.floats(where=lambda v: v.size > 0), bins=5, min=-2.0, max=2.0)


@recipe("bincount")
def bincount(d, op):
    ids = d.integers(d.sizes(1), 5)
    weights = d.floats(shape=ids.shape) if d.chance(0.5) else None
    d.call(op, ids, weights, minlength=7)
