# SPDX-License-Identifier: Apache-2.0
from .._later import explain
from ..nn import functional as _F

__all__ = ["one_hot"]


def one_hot(input, depth, allow_out_of_range=False):
    """One number for each class: of [N, 1] as of [N], the shape [..., depth]."""
    if allow_out_of_range:
        raise ValueError("one_hot: allow_out_of_range is not supported")
    return _F.one_hot(input, depth)


__getattr__ = explain(__name__, static_graphs="embedding")
