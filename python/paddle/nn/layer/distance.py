# SPDX-License-Identifier: Apache-2.0
"""How far apart two batches of vectors are."""

from ... import _names
from .. import functional as F
from .layers import Layer


class CosineSimilarity(Layer):
    """The cosine of the angle between x1 and x2 along `axis`."""

    def __init__(self, axis=1, eps=1e-8):
        super().__init__()
        self._axis = axis
        self._eps = eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, axis=self._axis, eps=self._eps)

    def extra_repr(self):
        return f"axis={self._axis}, eps={self._eps}"


class PairwiseDistance(Layer):
    """The p-norm of x - y + epsilon along the last dimension."""

    def __init__(self, p=2.0, epsilon=1e-6, keepdim=False, name=None):
        super().__init__()
        self.p = p
        self.epsilon = epsilon
        self.keepdim = keepdim

    def forward(self, x, y):
        return F.pairwise_distance(
            x, y, p=self.p, epsilon=self.epsilon, keepdim=self.keepdim
        )

    def extra_repr(self):
        return f"p={self.p}"


__all__ = _names.own(globals())
