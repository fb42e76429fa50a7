# SPDX-License-Identifier: Apache-2.0
"""Weight decay that is added to gradients, for all parameters of an optimizer
(`weight_decay=`) or for one (`ParamAttr(regularizer=)`, which comes first)."""

__all__ = ["L1Decay", "L2Decay"]


class WeightDecayRegularizer:
    """What both kinds share: a coefficient."""

    def __init__(self, coeff=0.0):
        self._coeff = float(coeff)

    @property
    def coeff(self):
        return self._coeff

    def __str__(self):
        return f"{type(self).__name__}, coeff={self._coeff:f}"


class L1Decay(WeightDecayRegularizer):
    """Adds `coeff * sign(parameter)` to the gradient."""


class L2Decay(WeightDecayRegularizer):
    """Adds `coeff * parameter` to the gradient."""
