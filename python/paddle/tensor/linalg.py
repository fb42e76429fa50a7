# SPDX-License-Identifier: Apache-2.0
"""Linear algebra: products, norms, factorisations, equations."""

import math as _math

from .. import _names, _ops
from .._core import Tensor
from .._lib.generated.tensor_linalg import *
from . import shape_argument
from .axis import axes_of
from .manipulation import transpose

# ---- products


def _check_rank(function, argument, x, rank):
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{function}(): argument '{argument}' must be a Tensor, but got "
            f"{type(x).__name__}"
        )
    if x.ndim != rank:
        raise ValueError(
            f"{function}(): {argument} must have {rank} dimensions, but its shape is "
            f"{x.shape}"
        )


def bmm(x, y, name=None):
    """The products of two stacks of matrices, [B, M, K] and [B, K, N]."""
    _check_rank("bmm", "x", x, 3)
    _check_rank("bmm", "y", y, 3)
    if shape_argument.differ(x.shape[0], y.shape[0]):
        raise ValueError(
            f"bmm(): x has {x.shape[0]} matrices but y has {y.shape[0]} (shapes "
            f"{x.shape} and {y.shape})"
        )
    return _ops.matmul_v2(x, y)


def mv(x, vec, name=None):
    """The product of a matrix and a vector."""
    _check_rank("mv", "x", x, 2)
    _check_rank("mv", "vec", vec, 1)
    return _ops.matmul_v2(x, vec)


def t(input, name=None):
    """The transpose of a matrix; a vector stays as it is."""
    if input.ndim > 2:
        raise ValueError(
            f"t(): at most two dimensions can be exchanged, but the shape is "
            f"{input.shape}; use transpose() with an order"
        )
    return input if input.ndim < 2 else transpose(input, [1, 0])


# ---- norms


def _entrywise_norm(x, p, axes, keepdim):
    """The p-norm of the elements over several axes."""
    size = _ops.abs(x)
    if p == _math.inf:
        return _ops.reduce_max(size, axes, keepdim)
    if p == -_math.inf:
        return _ops.reduce_min(size, axes, keepdim)
    total = _ops.reduce_sum(_ops.pow(size, p), axes, keepdim)
    return _ops.pow(total, 1.0 / p)


def norm(x, p="fro", axis=None, keepdim=False, name=None):
    """The norm of order `p` ('fro' is 2) of all elements, of the vectors along an
    axis, or of the matrices along two."""
    if p != "fro" and (isinstance(p, bool) or not isinstance(p, (int, float))):
        raise ValueError(f"norm(): p must be 'fro' or a number, but is {p!r}")
    axes = axes_of("norm", axis)
    if len(axes) > 2:
        raise ValueError(f"norm(): axis must be None, one or two axes, not {axis}")
    if len(axes) == 2:
        if p == "fro" or p == 2:
            return _ops.frobenius_norm(x, axes, keepdim)
        if p == 0:
            raise ValueError("norm(): p=0 takes one axis, not two")
        return _entrywise_norm(x, float(p), axes, keepdim)
    order = 2.0 if p == "fro" else float(p)
    if axes:
        return _ops.p_norm(x, order, axes[0], keepdim=keepdim)
    return _ops.p_norm(x, order, keepdim=keepdim, asvector=True)


# ---- one matrix, or a stack of them


def qr(x, mode="reduced", name=None):
    """(Q, R) with Q @ R = x; mode 'r' gives R alone."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(
            f"qr(): mode must be 'reduced', 'complete' or 'r', but is {mode!r}"
        )
    q, r = _ops.qr(x, "reduced" if mode == "r" else mode)
    return r if mode == "r" else (q, r)


def eigh(x, UPLO="L", name=None):
    """The eigenvalues, ascending, and the eigenvectors of a symmetric matrix, of which
    the lower ('L') or the upper ('U') half is read."""
    if UPLO not in ("L", "U"):
        raise ValueError(f"eigh(): UPLO must be 'L' or 'U', but is {UPLO!r}")
    return _ops.eigh(x, UPLO)


# ---- equations


__all__ = _names.own(globals())
