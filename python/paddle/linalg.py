# SPDX-License-Identifier: Apache-2.0
"""paddle.linalg: linear algebra under one roof."""

from . import _names
from .tensor.linalg import (
    cholesky,
    det,
    eigh,
    matrix_power,
    norm,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    triangular_solve,
)
from .tensor.linalg import inverse as inv

__all__ = _names.gathered(globals())
