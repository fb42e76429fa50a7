# SPDX-License-Identifier: Apache-2.0
"""Products with a weight."""

from ... import _names, _ops
from ..._core import Variable


def linear(x, weight, bias=None, name=None):
    """x [..., in] times weight [in, out], plus bias [out]."""
    if isinstance(x, Variable) or isinstance(weight, Variable):
        # As Paddle does it, whose saved programs have these two.
        out = _ops.matmul_v2(x, weight)
        return out if bias is None else _ops.elementwise_add(out, bias)
    return _ops.fc(x, weight, bias)


def bilinear(x1, x2, weight, bias=None, name=None):
    """x1 [N, a] times weight [out, a, b] times x2 [N, b], plus bias: [N, out]."""
    _, a, b = weight.shape
    if x1.shape[-1] != a or x2.shape[-1] != b:
        raise ValueError(
            f"bilinear: weight {list(weight.shape)} does not fit x1 {list(x1.shape)} "
            f"and x2 {list(x2.shape)}"
        )
    return _ops.bilinear_tensor_product(x1, x2, weight, bias)


__all__ = _names.own(globals())
