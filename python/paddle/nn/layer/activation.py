# SPDX-License-Identifier: Apache-2.0
"""Activations as layers. The formulas are in paddle.nn.functional."""

from ... import _names
from ..._lib.generated.nn_layer_activation import *
from .. import functional as F
from ..initializer import Constant
from .layers import Layer
from .of_function import OfFunction


class PReLU(Layer):
    """x, or a trained factor times x below zero: one factor, or one per channel."""

    def __init__(
        self,
        num_parameters=1,
        init=0.25,
        weight_attr=None,
        data_format="NCHW",
        name=None,
    ):
        super().__init__()
        self._num_parameters = num_parameters
        self._init = init
        self._data_format = data_format
        self._weight = self.create_parameter(
            [num_parameters], weight_attr, default_initializer=Constant(init)
        )

    @property
    def weight(self):
        return self._weight

    def forward(self, x):
        return F.prelu(x, self._weight, data_format=self._data_format)

    def extra_repr(self):
        return (
            f"num_parameters={self._num_parameters}, data_format={self._data_format}, "
            f"init={self._init}, dtype={self._dtype.name}"
        )


class GLU(OfFunction):
    """One half along `axis` times the sigmoid of the other."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.glu(x, self.axis)


__all__ = _names.own(globals())
