# SPDX-License-Identifier: Apache-2.0
"""Draws models of clicks: rows of several tables, cut and joined, in front of dense layers."""

import recipes_faces as faces
from draw import Draw

# What may be done with rows and what comes of them, beside what is drawn here.
_FACES = (
    faces.function,
    faces.operator,
    faces.chain,
    faces.part,
    faces.matrix,
    faces.residual,
    faces.joined,
    faces.classifier,
    faces.regression,
)

_PARTS = (
    "{x}",
    "{x}",
    "{x}[:, 1:]",
    "{x}[:, :1]",
    "paddle.split({x}, [1, {rest}], 1)[1]",
    "paddle.tanh({x})",
    "{x} * {x}",
    "paddle.transpose(paddle.transpose({x}, [1, 0]), [1, 0])",
)

_OF_SEVERAL = (
    "paddle.sum({x}, 1)",
    "paddle.mean({x}, 1)",
    "paddle.flatten({x}, 1)",
    "{x}[:, 0]",
    "{x}[:, -1]",
    "paddle.split({x}, {count}, 1)[0].reshape([-1, {width}])",
    "paddle.concat([{x}, {x}], 1).sum(1)",
    "paddle.flatten(paddle.transpose({x}, [0, 2, 1]), 1)",
)


def _rows(d, tables, columns):
    """Rows of one table for each sample, as a matrix."""
    weight = d.one_of(*tables)
    count = d.one_of(0, 0, 1, 2, 3)
    if count == 0 and d.chance(0.5):
        ids = f"{columns.name}[:, {d.rng.randrange(columns.shape[1])}]"
    else:
        shape = (d.batch, count) if count else (d.batch,)
        dtype = d.one_of("int64", "int64", "int32")
        ids = d.feed(shape, "ids", weight.shape[0], dtype).name
    padding = ""
    if d.chance(0.3):
        padding = f", padding_idx={d.rng.randrange(-1, weight.shape[0])}"
    x = d.line(f"F.embedding({ids}, {weight.name}{padding}, sparse=True)")
    if x.rank == 3:
        way = d.one_of(*_OF_SEVERAL)
        x = d.line(way.format(x=x.name, count=count, width=weight.shape[1]))
    if x.shape[1] > 1:
        x = d.line(d.one_of(*_PARTS).format(x=x.name, rest=x.shape[1] - 1))
    return x


def _joined(d, parts):
    widths = {p.shape[1] for p in parts}
    names = ", ".join(p.name for p in parts)
    if len(widths) > 1 or d.chance(0.5):
        return d.line(f"paddle.concat([{names}], 1)")
    if d.chance(0.5):
        return d.line(f"paddle.add_n([{names}])")
    return d.line(f"paddle.flatten(paddle.stack([{names}], 1), 1)")


def draw(number, batch=None):
    """The drawing of the model of clicks `number`."""
    d = Draw(number, split=True)
    d.batch = batch or d.batch
    tables = [
        d.parameter((d.one_of(2, 5, 9), d.one_of(1, 2, 3, 4)))
        for _ in range(d.one_of(1, 2, 3, 4))
    ]
    # Nothing but look-ups reads them: their rows may live on servers.
    d.values = []
    d.used |= {t.name for t in tables}
    columns = d.feed((d.batch, 3), "ids", min(t.shape[0] for t in tables), "int64")
    parts = [_rows(d, tables, columns) for _ in range(d.one_of(1, 2, 3, 4, 5))]
    if d.chance(0.5):
        parts.append(d.feed((d.batch, d.one_of(1, 2, 3))))
    x = _joined(d, parts) if len(parts) > 1 else parts[0]
    weight, bias = d.parameter((x.shape[1], d.one_of(2, 3))), None
    x = d.line(f"paddle.matmul({x.name}, {weight.name})")
    if d.chance(0.7):
        bias = d.parameter((x.shape[1],))
        d.line(f"{x.name} + {bias.name}")
    for _ in range(d.one_of(0, 1, 2, 3)):
        d.attempt(d.one_of(*_FACES))
    return d
