# SPDX-License-Identifier: Apache-2.0
"""How good predictions are: over a batch, and gathered over many."""

from .. import _names
from .functional import accuracy
from .metrics import Accuracy, Auc, Metric, Precision, Recall

__all__ = _names.gathered(globals())
