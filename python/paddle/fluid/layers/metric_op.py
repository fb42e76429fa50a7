# SPDX-License-Identifier: Apache-2.0
"""Metrics of a batch, and of all batches so far."""

from ... import metric as _metric
from ..._core import Variable
from ...static.metric import accuracy as _accuracy
from ...static.metric import auc

__all__ = ["accuracy", "auc"]


def accuracy(input, label, k=1, correct=None, total=None):
    """The share of rows whose label is among the `k` largest values, shape [1]."""
    function = _accuracy if isinstance(input, Variable) else _metric.accuracy
    return function(input, label, k, correct, total)
