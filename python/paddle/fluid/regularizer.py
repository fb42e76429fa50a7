# SPDX-License-Identifier: Apache-2.0
"""Weight decay. The coefficient was called `regularization_coeff`."""

from .. import regularizer as _regularizer


class L1Decay(_regularizer.L1Decay):
    def __init__(self, regularization_coeff=0.0):
        super().__init__(regularization_coeff)


class L2Decay(_regularizer.L2Decay):
    def __init__(self, regularization_coeff=0.0):
        super().__init__(regularization_coeff)


L1DecayRegularizer = L1Decay
L2DecayRegularizer = L2Decay
