# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements: reshaping, joining, slicing, gathering, sorting."""

import math

from recipes import recipe
from value import Reject


def any_rank(*ranks):
    return lambda v: v.rank in ranks


def batch_first(value, sizes):
    """`sizes` with -1 for a batch that is not known."""
    return [-1 if i == 0 and value.rows == "rows" else n for i, n in enumerate(sizes)]


def factors(d, size):
    """Some sizes whose product is `size`."""
    sizes = []
    for _ in range(d.rng.randrange(1, 3)):
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        sizes.append(d.rng.choice(divisors))
        size //= sizes[-1]
    sizes.append(size)
    d.rng.shuffle(sizes)
    return sizes


@recipe("reshape2")
def reshape(d, op):
    value = d.floats(where=lambda v: 0 < v.size <= 400)
    if value.rows == "rows":
        rest = math.prod(value.shape[1:])
        shape = [-1, *(factors(d, rest) if value.rank > 1 else [1])]
    else:
        shape = factors(d, value.size)
        if d.chance(0.4):
            shape[d.rng.randrange(len(shape))] = -1
    if d.chance(0.2):
        tensor = d.constant(shape) if d.chance(0.5) else None
        if tensor is not None:
            d.call(op, value, tensor, shape=[-1] * len(shape))
            return
    d.call(op, value, shape=shape)


@recipe("flatten_contiguous_range")
def flatten(d, op):
    value = d.floats(rank=(2, 3, 4))
    first = 1 if value.rows == "rows" else d.rng.randrange(value.rank)
    d.call(op, value, start_axis=first, stop_axis=d.rng.randrange(first, value.rank))


@recipe("flatten2")
def flatten2(d, op):
    value = d.floats(rank=(2, 3, 4))
    axis = 1 if d.split else d.rng.randrange(value.rank + 1)
    d.call(op, value, axis=axis)


@recipe("squeeze2")
def squeeze(d, op):
    value = d.floats(rank=(2, 3, 4), where=lambda v: 1 in v.shape[1:] and v.rank > 1)
    axes = [i for i in range(1, value.rank) if value.shape[i] == 1]
    d.call(op, value, axes=axes[: d.rng.randrange(1, len(axes) + 1)])


@recipe("unsqueeze2")
def unsqueeze(d, op):
    value = d.floats(rank=(1, 2, 3))
    first = 1 if d.split else 0
    d.call(op, value, axes=[d.rng.randrange(first, value.rank + 1)])


@recipe("transpose2")
def transpose(d, op):
    value = d.floats(rank=(2, 3, 4))
    axes = list(range(value.rank))
    if value.rows == "rows" and d.split:
        rest = axes[1:]
        d.rng.shuffle(rest)
        axes = [0, *rest]
    else:
        d.rng.shuffle(axes)
    d.call(op, value, axis=axes)


@recipe("concat")
def concat(d, op):
    value = d.floats(rank=(1, 2, 3))
    axis = d.axis(value)
    parts = [value]
    for _ in range(d.rng.randrange(0, 3)):
        shape = list(value.shape)
        if d.chance(0.4):
            shape[axis] = d.rng.choice((1, 2, 3, 0 if d.chance(0.2) else 1))
        same = [
            v
            for v in d.values
            if v.floating
            and v.rank == value.rank
            and all(
                a == b or i == axis % value.rank
                for i, (a, b) in enumerate(zip(v.shape, value.shape))
            )
        ]
        parts.append(d.rng.choice(same) if d.chance(0.7) else d.floats(shape=shape))
    d.rng.shuffle(parts)
    d.call(op, parts, axis=axis)


@recipe("stack")
def stack(d, op):
    value = d.floats(rank=(1, 2, 3))
    parts = [value] + [d.floats(shape=value.shape) for _ in range(d.one_of(0, 1, 2))]
    first = 1 if d.split and value.rows == "rows" else 0
    d.call(op, parts, axis=d.rng.randrange(first, value.rank + 1))


@recipe("split")
def split(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.rank and v.shape[-1] > 0)
    axis = d.axis(value)
    size = value.shape[axis]
    if size == 0:
        raise Reject
    if d.chance(0.5):
        count = d.rng.choice([n for n in range(1, size + 1) if size % n == 0][:4])
        d.line(
            f"ops.split({value.name}, num={count}, axis={axis})[0]"
            if count == 1
            else f"ops.split({value.name}, num={count}, axis={axis})",
            count,
        )
        return
    cut = d.rng.randrange(0, size + 1)
    sections = [cut, size - cut]
    if d.chance(0.3) and cut:
        sections[1] = -1
    d.line(f"ops.split({value.name}, sections={sections}, axis={axis})", 2)


@recipe("unstack")
def unstack(d, op):
    value = d.floats(rank=(2, 3), where=lambda v: 2 <= v.shape[-1] <= 5)
    count = value.shape[-1]
    d.line(f"ops.unstack({value.name}, axis={value.rank - 1}, num={count})", count)


@recipe("expand_v2", "expand_as_v2")
def expand(d, op):
    value = d.floats(rank=(1, 2, 3))
    sizes = list(value.shape)
    spread = [d.one_of(2, 3) if n == 1 else n for n in sizes]
    if d.chance(0.3):
        spread = [2, *spread]
    if value.rows == "rows" and len(spread) > value.rank and d.split:
        raise Reject
    if op == "expand_as_v2":
        d.call(op, value, d.floats(shape=spread))
        return
    shape = [-1 if n == m else n for n, m in zip(spread[-value.rank :], sizes)]
    shape = spread[: len(spread) - value.rank] + shape
    d.call(op, value, shape=shape)


@recipe("expand")
def old_expand(d, op):
    value = d.floats(rank=(1, 2, 3))
    first = 1 if value.rows == "rows" and d.split else 0
    times = [1] * first + [d.one_of(1, 2) for _ in range(value.rank - first)]
    d.call(op, value, expand_times=times)


@recipe("tile")
def tile(d, op):
    value = d.floats(rank=(1, 2, 3))
    first = 1 if value.rows == "rows" and d.split else 0
    times = [1] * first + [d.one_of(1, 2, 3) for _ in range(value.rank - first)]
    if not d.split and d.chance(0.3):
        times = [2, *times]
    d.call(op, value, repeat_times=times)


@recipe("repeat_interleave")
def repeat_interleave(d, op):
    value = d.floats(rank=(1, 2, 3))
    axis = d.axis(value)
    if d.chance(0.4):
        counts = [d.one_of(0, 1, 2) for _ in range(value.shape[axis])]
        if not sum(counts):
            raise Reject
        d.call(op, value, d.constant(counts), dim=axis)
    else:
        d.call(op, value, Repeats=d.one_of(1, 2, 3), dim=axis)


@recipe("flip", "roll")
def turned(d, op):
    value = d.floats(rank=(1, 2, 3))
    axis = d.axis(value)
    if op == "flip":
        d.call(op, value, axis=[axis])
    elif d.chance(0.3) and not d.split:
        d.call(op, value, shifts=[d.one_of(-2, 1, 5)])
    else:
        d.call(op, value, shifts=[d.one_of(-2, 0, 1, 5)], axis=[axis])


@recipe("cast")
def cast(d, op):
    value = d.floats()
    kind = d.one_of("I32", "I64", "BOOL", "paddle.float64")
    made = d.line(f"ops.cast({value.name}, DTYPE, {kind})")
    if made.floating:
        d.values.remove(made)  # others must not mix types
    if made.floating or d.chance(0.6):
        made = d.line(f"ops.cast({made.name}, {kind}, DTYPE)")


@recipe("shape", "size")
def fact(d, op):
    d.call(op, d.floats())


@recipe("as_complex", "as_real")
def complex_numbers(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.shape and v.shape[-1] == 2)
    d.line(f"ops.as_real(ops.as_complex({value.name}))")


@recipe("shard_index")
def shard_index(d, op):
    ids = d.integers((d.batch, 1), 20)
    d.call(op, ids, index_num=20, nshards=2, shard_id=d.one_of(0, 1))


# ---- parts


def _range(d, size):
    start = d.rng.randrange(0, size)
    end = d.rng.randrange(start + 1, size + 1)
    if d.chance(0.3):
        start -= size
    if d.chance(0.2) and end == size:
        end = 10**6
    return start, end


@recipe("slice")
def slice_(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    axis = d.axis(value)
    start, end = _range(d, value.shape[axis])
    axis %= value.rank
    if d.chance(0.2):
        starts, ends = d.constant([start]), d.constant([end])
        d.call(op, value, starts, ends, axes=[axis], starts=[-1], ends=[-1])
    elif d.chance(0.3) and value.rank > 1:
        start %= value.shape[axis]
        d.call(
            op,
            value,
            axes=[axis],
            starts=[start],
            ends=[start + 1],
            decrease_axis=[axis],
        )
    else:
        d.call(op, value, axes=[axis], starts=[start], ends=[end])


@recipe("strided_slice")
def strided_slice(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    axis = d.axis(value) % value.rank
    size = value.shape[axis]
    if d.chance(0.4):
        arguments = dict(starts=[size - 1], ends=[-size - 1], strides=[-1])
    else:
        arguments = dict(starts=[0], ends=[size], strides=[d.one_of(1, 2, 3)])
    d.call(op, value, axes=[axis], **arguments)


@recipe("crop_tensor")
def crop(d, op):
    value = d.floats(rank=(2, 3), where=lambda v: v.size > 0)
    whole = 1 if value.rows == "rows" else 0
    shape, offsets = [-1] * whole, [0] * whole
    for size in value.shape[whole:]:
        start = d.rng.randrange(size)
        offsets.append(start)
        shape.append(d.rng.randrange(1, size - start + 1))
    d.call(op, value, shape=shape, offsets=offsets)


@recipe("gather", "index_select")
def gather(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    axis = d.axis(value)
    index = d.integers(d.sizes(1), value.shape[axis], d.one_of("int64", "int32"))
    d.call(op, value, index, **{"axis" if op == "gather" else "dim": axis})


@recipe("gather_nd", "scatter_nd_add")
def gather_nd(d, op):
    value = d.floats(rank=(2, 3), where=lambda v: v.size > 0 and v.rows == "same")
    depth = d.rng.randrange(1, value.rank + 1)
    count = d.rng.randrange(1, 5)
    rows = [[d.rng.randrange(n) for n in value.shape[:depth]] for _ in range(count)]
    index = d.constant(rows)
    if op == "gather_nd":
        d.call(op, value, index)
    else:
        d.call(op, value, index, d.floats(shape=(count, *value.shape[depth:])))


@recipe("scatter")
def scatter(d, op):
    value = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0 and v.rows == "same")
    overwrite = d.chance(0.5)
    count = d.rng.randrange(1, value.shape[0] + 1)
    if overwrite:
        ids = d.rng.sample(range(value.shape[0]), count)
    else:
        ids = [d.rng.randrange(value.shape[0]) for _ in range(count)]
    updates = d.floats(shape=(count, *value.shape[1:]))
    d.call(op, value, d.constant(ids), updates, overwrite=overwrite)


@recipe("index_sample")
def index_sample(d, op):
    value = d.floats(rank=2, where=lambda v: v.size > 0)
    index = d.integers((value.shape[0], d.one_of(1, 2, 3)), value.shape[1])
    d.call(op, value, index)


@recipe("take_along_axis", "put_along_axis")
def along_axis(d, op):
    value = d.floats(rank=(2, 3), where=lambda v: v.size > 0)
    axis = d.axis(value) % value.rank
    shape = list(value.shape)
    shape[axis] = 1 if op == "put_along_axis" else d.one_of(1, 2)
    index = d.integers(shape, value.shape[axis])
    if op == "take_along_axis":
        d.call(op, value, index, Axis=axis)
    else:
        number = d.floats(shape=shape)
        d.call(op, value, index, number, Axis=axis, Reduce=d.one_of("assign", "add"))
