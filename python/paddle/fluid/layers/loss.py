# SPDX-License-Identifier: Apache-2.0
"""Losses, one for each sample."""

import paddle

from ... import _names, _ops
from ..._lib.generated.fluid_layers_loss import *
from ...nn import functional as _F
from ...nn.functional import log_loss, softmax_with_cross_entropy, square_error_cost


def sigmoid_cross_entropy_with_logits(
    x, label, ignore_index=-100, name=None, normalize=False
):
    """The binary cross entropy of each element; zero where the label is
    `ignore_index`. With `normalize` it is divided by the number of the others."""
    loss = _F.binary_cross_entropy_with_logits(x, label, reduction="none")
    counts = paddle.cast(label != float(ignore_index), x.dtype)
    loss = loss * counts
    return loss / paddle.sum(counts) if normalize else loss


__all__ = _names.gathered(globals())
