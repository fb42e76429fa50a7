# SPDX-License-Identifier: Apache-2.0
"""Metrics with `eval` in place of `accumulate`."""

import numpy as np

from .. import metric as _metric


class Precision(_metric.Precision):
    def __init__(self, name="precision"):
        super().__init__(name)

    eval = _metric.Precision.accumulate


class Recall(_metric.Recall):
    def __init__(self, name="recall"):
        super().__init__(name)

    eval = _metric.Recall.accumulate


class Auc(_metric.Auc):
    def __init__(self, name="auc", curve="ROC", num_thresholds=4095):
        super().__init__(curve, num_thresholds, name)

    eval = _metric.Auc.accumulate


class Accuracy:
    """The mean of the accuracies of batches, each with its weight."""

    def __init__(self, name=None):
        self._name = name
        self.reset()

    def reset(self):
        self.value = 0.0
        self.weight = 0.0

    def update(self, value, weight):
        """Adds the accuracy of a batch; `weight` is its size."""
        if weight < 0:
            raise ValueError(f"Accuracy: weight must not be negative: {weight}")
        value = np.asarray(value).item()
        if not 0 <= value <= 1:
            raise ValueError(f"Accuracy: value must be in [0, 1], not {value}")
        self.value += value * weight
        self.weight += weight

    def eval(self):
        if self.weight == 0:
            raise ValueError("Accuracy: there are no samples yet; call update first")
        return self.value / self.weight
