# SPDX-License-Identifier: Apache-2.0
"""Layers that multiply by a weight, and the look-up in one."""

from ... import _names
from ...autograd import no_grad
from ...framework.mode import in_dynamic_mode
from .. import functional as F
from .layers import Layer


class Identity(Layer):
    """Passes its input on. Takes any arguments and ignores them."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Layer):
    """x W + b, with W of shape [in_features, out_features]."""

    def __init__(
        self, in_features, out_features, weight_attr=None, bias_attr=None, name=None
    ):
        super().__init__()
        self.weight = self.create_parameter([in_features, out_features], weight_attr)
        self.bias = self.create_parameter([out_features], bias_attr, is_bias=True)
        self.name = name

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        name = f", name={self.name}" if self.name else ""
        in_features, out_features = self.weight.shape
        return (
            f"in_features={in_features}, out_features={out_features}, "
            f"dtype={self._dtype.name}{name}"
        )


class Bilinear(Layer):
    """x1 W_k x2 + b_k for every output k, with W of shape [out, in1, in2]."""

    def __init__(
        self,
        in1_features,
        in2_features,
        out_features,
        weight_attr=None,
        bias_attr=None,
        name=None,
    ):
        super().__init__()
        self._sizes = (in1_features, in2_features, out_features)
        shape = [out_features, in1_features, in2_features]
        self.weight = self.create_parameter(shape, weight_attr)
        self.bias = self.create_parameter([1, out_features], bias_attr, is_bias=True)

    def forward(self, x1, x2):
        return F.bilinear(x1, x2, self.weight, self.bias)

    def extra_repr(self):
        in1, in2, out = self._sizes
        return (
            f"in1_features={in1}, in2_features={in2}, out_features={out}, "
            f"dtype={self._dtype.name}"
        )


class Embedding(Layer):
    """Rows of a table, by their numbers.

    padding_idx: the row that stays zero and is not trained; negative ones count from
    the end. sparse: the gradient holds only the rows that were looked up.
    """

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        sparse=False,
        weight_attr=None,
        name=None,
    ):
        super().__init__()
        if num_embeddings <= 0 or embedding_dim <= 0:
            raise ValueError(
                "Embedding: num_embeddings and embedding_dim must be positive, but got "
                f"{num_embeddings} and {embedding_dim}"
            )
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"Embedding: padding_idx {padding_idx} is not within "
                    f"[-{num_embeddings}, {num_embeddings})"
                )
            padding_idx %= num_embeddings
        self._num_embeddings = num_embeddings
        self._embedding_dim = embedding_dim
        self._padding_idx = padding_idx
        self._sparse = bool(sparse)
        self.weight = self.create_parameter(
            [num_embeddings, embedding_dim], weight_attr
        )
        self.name = name
        if padding_idx is not None and in_dynamic_mode():
            with no_grad():
                self.weight[padding_idx] = 0.0

    def forward(self, x):
        return F.embedding(x, self.weight, self._padding_idx, self._sparse)

    def extra_repr(self):
        text = f"{self._num_embeddings}, {self._embedding_dim}"
        if self._padding_idx is not None:
            text += f", padding_idx={self._padding_idx}"
        return text + f", sparse={self._sparse}"


__all__ = _names.own(globals())
