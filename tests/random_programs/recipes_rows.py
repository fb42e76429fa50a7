# SPDX-License-Identifier: Apache-2.0
"""Embeddings, sequences and recurrent networks."""

from recipes import recipe
from value import Reject


def table(d, rows=None, width=None):
    """A parameter whose rows are looked up, at times one that is there."""
    there = [v for v in d.values if v.name[0] == "w" and v.rank == 2 and v.size]
    if there and width is None and d.chance(0.3):
        return d.rng.choice(there)
    return d.parameter((rows or d.one_of(1, 5, 8), width or d.one_of(1, 2, 3, 4)))


@recipe("lookup_table_v2", "lookup_table")
def lookup(d, op):
    weight = table(d)
    shape = (d.batch, *d.sizes(d.one_of(0, 1)))
    if op == "lookup_table":
        shape = (*shape, 1)
    ids = d.integers(shape, weight.shape[0], d.one_of("int64", "int64", "int32"))
    attrs = {"is_sparse": d.chance(0.6)}
    if d.chance(0.3):
        attrs["padding_idx"] = d.rng.randrange(weight.shape[0])
    d.call(op, weight, ids, **attrs)


# ---- sequences: rows, and where each sequence begins


def sequences(d, width=None):
    """(rows, offsets). Rows of several sequences, one of them perhaps empty."""
    if d.split:
        raise Reject

    def fits(value):
        return value.shape[0] > 1 and (width is None or value.shape[1] == width)

    x = d.floats(rank=2, where=fits)
    if x.rows == "rows":
        d.envs[1] = d.envs[2] = None
    return x, offsets(d, x.shape[0])


def offsets(d, rows, count=None):
    count = count or d.one_of(1, 2, 3)
    cuts = sorted(d.rng.randrange(0, rows + 1) for _ in range(count - 1))
    return d.constant([0, *cuts, rows])


@recipe("sequence_pool")
def sequence_pool(d, op):
    x, lod = sequences(d)
    kind = d.one_of("SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST")
    d.line(
        f"ops.{op}({x.name}, {lod.name}, pooltype={kind!r}, "
        f"pad_value={d.number_in(-1, 1)})[0]"
    )


@recipe("sequence_softmax")
def sequence_softmax(d, op):
    x, lod = sequences(d, 1)
    d.call(op, x, lod)


@recipe("sequence_reverse")
def sequence_reverse(d, op):
    d.call(op, *sequences(d))


@recipe("sequence_expand", "sequence_expand_as")
def sequence_expand(d, op):
    if d.split:
        raise Reject
    x = d.floats(rank=2, where=lambda v: 1 <= v.shape[0] <= 4)
    y = d.floats(rank=2, where=lambda v: v.shape[0] > 1)
    d.envs[1] = d.envs[2] = None
    if op == "sequence_expand_as":
        d.call(op, x, y, offsets(d, y.shape[0], x.shape[0]))
        return
    # Without offsets each row of x is a sequence; but a value of a program may carry
    # offsets, which then count.
    count, own = x.shape[0], None
    if x.name[0] == "v" or d.chance(0.5):
        count = d.one_of(1, 2)
        own = offsets(d, x.shape[0], count)
    d.call(op, x, y, own, offsets(d, y.shape[0], count), outputs=2)


@recipe("sequence_concat")
def sequence_concat(d, op):
    x, lod = sequences(d)
    count = lod.size - 1
    y = d.floats(rank=2, where=lambda v: v.shape[1] == x.shape[1] and v.shape[0])
    d.envs[1] = d.envs[2] = None
    d.call(op, [x, y], [lod, offsets(d, y.shape[0], count)], outputs=2)


@recipe("sequence_pad", "sequence_unpad")
def sequence_pad(d, op):
    x, lod = sequences(d)
    value = d.line(f"paddle.full([1], {d.number_in(-1, 1)}, DTYPE)")
    longest = x.shape[0] if d.chance(0.3) else -1
    padded, sizes = d.call(
        "sequence_pad", x, value, lod, outputs=2, padded_length=longest
    )
    if op == "sequence_unpad":
        d.call(op, padded, sizes, outputs=2)


@recipe("sequence_conv")
def sequence_conv(d, op):
    x, lod = sequences(d)
    length = d.one_of(1, 2, 3)
    weight = d.weight((length * x.shape[1], d.one_of(1, 2)))
    start = d.one_of(-1, 0, 1)
    d.call(op, x, weight, lod, contextLength=length, contextStart=start)


@recipe("row_conv")
def row_conv(d, op):
    x, lod = sequences(d)
    d.call(op, x, d.weight((d.one_of(1, 2, 3), x.shape[1])), lod)


@recipe("sequence_reshape")
def sequence_reshape(d, op):
    x, lod = sequences(d)
    d.call(op, x, lod, outputs=2, new_dim=d.one_of(1, x.shape[1]))


@recipe("sequence_slice")
def sequence_slice(d, op):
    x, lod = sequences(d)
    ends = lod.array.tolist()
    starts, sizes = [], []
    for a, b in zip(ends, ends[1:]):
        start = d.rng.randrange(0, b - a) if b > a else 0
        starts.append([start])
        sizes.append([d.rng.randrange(1, b - a - start + 1) if b > a else 0])
    d.call(op, x, d.constant(starts), d.constant(sizes), lod, outputs=2)


@recipe("sequence_enumerate")
def sequence_enumerate(d, op):
    if d.split:
        raise Reject
    rows = d.one_of(3, 5)
    # Fed: of numbers in the program it would be no operation of the program.
    ids = d.feed((rows, 1), "ids", 9, "int64", rows=False)
    d.call(op, ids, offsets(d, rows), win_size=d.one_of(1, 2, 3), pad_value=7)


@recipe("lod_reset")
def lod_reset(d, op):
    x, lod = sequences(d)
    if d.chance(0.5):
        d.call(op, x, None, None, outputs=2, target_lod=[0, x.shape[0]])
    else:
        d.call(op, x, lod, None, outputs=2)


@recipe("merge_selected_rows", "get_tensor_from_selected_rows")
def selected_rows(d, op):
    d.call(op, d.floats())


@recipe("rnn")
def rnn(d, op):
    mode = d.one_of("LSTM", "GRU", "RNN_TANH", "RNN_RELU")
    x = d.floats(rank=3, where=lambda v: v.size > 0)
    if x.rows == "rows":
        x = d.line(f"paddle.transpose({x.name}, [1, 0, 2])") if not d.split else None
        if x is None:
            raise Reject
    hidden, layers = d.one_of(1, 2, 3), d.one_of(1, 1, 2)
    both = d.chance(0.4)
    directions = 2 if both else 1
    gates = {"LSTM": 4, "GRU": 3}.get(mode, 1) * hidden
    cells = layers * directions
    weights = []
    for cell in range(cells):
        width = x.shape[2] if cell < directions else hidden * directions
        weights += [d.parameter((gates, width)), d.parameter((gates, hidden))]
    if d.chance(0.7):
        weights += [d.parameter((gates,)) for _ in range(2 * cells)]
    state = (cells, x.shape[1], hidden)
    states = [d.weight(state) for _ in range(2 if mode == "LSTM" else 1)]
    sizes = None
    if d.chance(0.3):
        sizes = d.constant([1 + d.rng.randrange(x.shape[0]) for _ in range(x.shape[1])])
    names = [f"[{', '.join(v.name for v in group)}]" for group in (states, weights)]
    d.line(
        f"ops.rnn({x.name}, {', '.join(names)}, {sizes.name if sizes else None}, "
        f"mode={mode!r}, hidden_size={hidden}, num_layers={layers}, is_bidirec={both})[0]"
    )
