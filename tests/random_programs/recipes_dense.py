# SPDX-License-Identifier: Apache-2.0
"""Products and other ops on matrices."""

import numpy as np
from recipes import recipe
from value import Reject


@recipe("fc")
def fc(d, op):
    x = d.floats(rank=(2, 3))
    width = d.rng.choice((1, 2, 3, 5))
    bias = d.weight((width,)) if d.chance(0.7) else None
    d.call(op, x, d.weight((x.shape[-1], width)), bias)


@recipe("matmul_v2", "matmul")
def matmul(d, op):
    x = d.floats(rank=(2, 3), where=lambda v: v.size > 0)
    flags = ("trans_x", "trans_y") if op == "matmul_v2" else None
    flags = flags or ("transpose_X", "transpose_Y")
    turn_x = d.chance(0.3) and not (d.split and x.rank == 2)
    turn_y = d.chance(0.4)
    inner = x.shape[-2] if turn_x else x.shape[-1]
    if d.chance(0.15) and not turn_x and op == "matmul_v2":
        d.call(op, x, d.floats(shape=(inner,)))
        return
    shape = [inner, d.one_of(1, 2, 3, 5)]
    if turn_y:
        shape.reverse()
    if x.rank == 3 and d.chance(0.5):
        shape = [x.shape[0], *shape]
    attrs = dict(zip(flags, (turn_x, turn_y)))
    if op == "matmul" and d.chance(0.5):
        attrs["alpha"] = d.number_in(-1, 2)
    d.call(op, x, d.floats(shape=shape), **attrs)


@recipe("mul")
def mul(d, op):
    x = d.floats(rank=(2, 3, 4))
    columns = d.rng.randrange(1, x.rank)
    inner = 1
    for n in x.shape[columns:]:
        inner *= n
    shape = (inner, d.one_of(1, 2, 3))
    attrs = {"x_num_col_dims": columns}
    if d.chance(0.2) and x.rank == 3 and columns == 1:
        shape = (*x.shape[1:], 2)
        attrs["y_num_col_dims"] = 2
    d.call(op, x, d.floats(shape=shape), **attrs)


@recipe("bilinear_tensor_product")
def bilinear(d, op):
    x = d.floats(rank=2)
    y = d.floats(rank=2, where=lambda v: v.shape[0] == x.shape[0])
    width = d.one_of(1, 2, 3)
    bias = d.weight((1, width)) if d.chance(0.5) else None
    d.call(op, x, y, d.weight((width, x.shape[1], y.shape[1])), bias)


@recipe("dot")
def dot(d, op):
    x = d.floats(rank=(1, 2))
    if x.rank == 1 and x.rows == "rows":
        raise Reject
    d.call(op, x, d.floats(shape=x.shape))


@recipe("addmm")
def addmm(d, op):
    x = d.floats(rank=2)
    width = d.one_of(1, 2, 3)
    y = d.floats(shape=(x.shape[1], width))
    shape = d.one_of((x.shape[0], width), (1, width), (width,))
    numbers = {"Alpha": d.number_in(-1, 2), "Beta": d.number_in(-1, 2)}
    d.call(op, d.floats(shape=shape), x, y, **numbers)


@recipe("cross")
def cross(d, op):
    x = d.floats(rank=(2, 3), where=lambda v: v.shape[-1] == 3)
    axis = {"dim": x.rank - 1} if d.split or d.chance(0.5) else {}
    d.call(op, x, d.floats(shape=x.shape), **axis)


@recipe("kron")
def kron(d, op):
    x = d.floats(rank=(1, 2), where=lambda v: v.size <= 20)
    y = d.floats(rank=(1, 2), where=lambda v: v.size <= 20 and v.rows == "same")
    d.call(op, x, y)


@recipe("trace")
def trace(d, op):
    x = d.floats(rank=(2, 3))
    if x.rows == "rows" and d.split and x.rank == 2:
        raise Reject
    first = x.rank - 2 if x.rank == 3 else 0
    d.call(op, x, offset=d.one_of(-1, 0, 0, 1), axis1=first, axis2=first + 1)


def _square(d, depth=None):
    """Square matrices whose diagonal is large enough for an inverse."""
    size = d.one_of(1, 2, 3)
    shape = (size, size)
    if d.chance(0.4):
        shape = (d.batch, *shape)
    x = d.floats(shape=shape)
    return d.line(f"paddle.tanh({x.name}) * 0.4 + paddle.eye({size}, dtype=DTYPE) * 2")


def _symmetric(d):
    x = _square(d)
    axes = [0, 2, 1] if x.rank == 3 else [1, 0]
    return d.line(f"({x.name} + paddle.transpose({x.name}, {axes})) * 0.5")


@recipe("cholesky")
def cholesky(d, op):
    d.call(op, _symmetric(d), upper=d.chance(0.5))


@recipe("inverse", "determinant", "slogdeterminant")
def of_square(d, op):
    d.call(op, _square(d))


@recipe("matrix_power")
def matrix_power(d, op):
    d.call(op, _square(d), n=d.one_of(-2, -1, 0, 1, 2, 3))


@recipe("pinv")
def pinv(d, op):
    d.call(op, _square(d))


@recipe("solve")
def solve(d, op):
    x = _square(d)
    d.call(op, x, d.floats(shape=(*x.shape[:-1], d.one_of(1, 2))))


@recipe("triangular_solve")
def triangular_solve(d, op):
    x = _square(d)
    d.call(
        op,
        x,
        d.floats(shape=(*x.shape[:-1], d.one_of(1, 2))),
        upper=d.chance(0.5),
        transpose=d.chance(0.5),
        unitriangular=d.chance(0.3),
    )


def _apart(d, x):
    """With 1, 2, ... added to the diagonal: values of equal size have no gradient, and
    training makes zeros of parameters."""
    rows, columns = x.shape[-2:]
    numbers = np.diag(np.arange(1.0, max(rows, columns) + 1))[:rows, :columns]
    return d.line(f"{x.name} + {d.constant(numbers).name}")


@recipe("svd")
def svd(d, op):
    # Vectors have a sign that nothing fixes: only the values are trained on.
    x = d.floats(rank=2, where=lambda v: v.rows == "same" and v.size > 0)
    x = _apart(d, d.line(f"paddle.tanh({x.name}) * 0.4"))
    d.line(f"ops.svd({x.name})[1]")


@recipe("qr")
def qr(d, op):
    x = _square(d)
    d.line(f"ops.qr({x.name}, mode={d.one_of('reduced', 'complete')!r})[1]")


@recipe("eigh")
def eigh(d, op):
    x = _apart(d, _symmetric(d))
    d.line(f"ops.eigh({x.name}, UPLO={d.one_of('L', 'U')!r})[0]")


@recipe("tril_triu")
def tril_triu(d, op):
    x = d.floats(rank=(2, 3))
    if x.rows == "rows" and x.rank == 2 and d.split:
        raise Reject
    d.call(op, x, diagonal=d.one_of(-1, 0, 1), lower=d.chance(0.5))


@recipe("diag_v2")
def diag(d, op):
    x = d.floats(rank=(1, 2), where=lambda v: v.rows == "same")
    d.call(op, x, offset=d.one_of(-1, 0, 1), padding_value=d.number_in(-1, 1))


@recipe("meshgrid")
def meshgrid(d, op):
    x = d.floats(rank=1, where=lambda v: v.rows == "same")
    y = d.floats(rank=1, where=lambda v: v.rows == "same")
    d.call(op, [x, y], outputs=2)
