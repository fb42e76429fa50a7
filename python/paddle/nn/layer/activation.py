# SPDX-License-Identifier: Apache-2.0
"""Activations as layers. The formulas are in paddle.nn.functional."""

from ... import _names
from ..._lib.generated.nn_layer_activation import *
from .. import functional as F
from ..initializer import Constant
from .layers import Layer
from .of_function import OfFunction


class SELU(OfFunction):
    """scale * x, or scale * alpha * (exp(x) - 1) below zero."""

    _ARGUMENTS = ("scale", "alpha")

    def __init__(
        self,
        scale=1.0507009873554804934193349852946,
        alpha=1.6732632423543772848170429916717,
        name=None,
    ):
        super().__init__()
        self.scale = scale
        self.alpha = alpha

    def forward(self, x):
        return F.selu(x, self.scale, self.alpha)


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


class Softshrink(OfFunction):
    """x moved towards zero by `threshold`."""

    _ARGUMENTS = ("threshold",)

    def __init__(self, threshold=0.5, name=None):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        return F.softshrink(x, self.threshold)


class Softmax(OfFunction):
    """exp(x) over its sum along `axis`."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.softmax(x, self.axis)


class LogSoftmax(OfFunction):
    """The logarithm of softmax along `axis`."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.log_softmax(x, self.axis)


class GLU(OfFunction):
    """One half along `axis` times the sigmoid of the other."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.glu(x, self.axis)


__all__ = _names.own(globals())
