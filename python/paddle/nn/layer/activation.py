# SPDX-License-Identifier: Apache-2.0
"""Activations as layers. The formulas are in paddle.nn.functional."""

from ... import _names
from .. import functional as F
from ..initializer import Constant
from .layers import Layer


class _Activation(Layer):
    """An activation whose arguments are attributes of the same names."""

    _ARGUMENTS = ()

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._ARGUMENTS)


class ReLU(_Activation):
    """max(x, 0)."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.relu(x)


class ReLU6(_Activation):
    """min(max(x, 0), 6)."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.relu6(x)


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.sigmoid(x)


class Tanh(_Activation):
    """The hyperbolic tangent."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.tanh(x)


class Silu(_Activation):
    """x * sigmoid(x)."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.silu(x)


class Swish(_Activation):
    """x * sigmoid(x)."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.swish(x)


class Mish(_Activation):
    """x * tanh(softplus(x))."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.mish(x)


class Softsign(_Activation):
    """x / (1 + |x|)."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.softsign(x)


class Tanhshrink(_Activation):
    """x - tanh(x)."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.tanhshrink(x)


class LogSigmoid(_Activation):
    """log(sigmoid(x))."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.log_sigmoid(x)


class Hardsigmoid(_Activation):
    """A piecewise linear sigmoid."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.hardsigmoid(x)


class Hardswish(_Activation):
    """x times a piecewise linear sigmoid."""

    def __init__(self, name=None):
        super().__init__()

    def forward(self, x):
        return F.hardswish(x)


class GELU(_Activation):
    """x times the normal distribution function; with `approximate` by tanh."""

    _ARGUMENTS = ("approximate",)

    def __init__(self, approximate=False, name=None):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return F.gelu(x, self.approximate)


class ELU(_Activation):
    """x, or alpha * (exp(x) - 1) below zero."""

    _ARGUMENTS = ("alpha",)

    def __init__(self, alpha=1.0, name=None):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return F.elu(x, self.alpha)


class CELU(_Activation):
    """x, or alpha * (exp(x / alpha) - 1) below zero."""

    _ARGUMENTS = ("alpha",)

    def __init__(self, alpha=1.0, name=None):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return F.celu(x, self.alpha)


class SELU(_Activation):
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


class LeakyReLU(_Activation):
    """x, or negative_slope * x below zero."""

    _ARGUMENTS = ("negative_slope",)

    def __init__(self, negative_slope=0.01, name=None):
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(x, self.negative_slope)


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


class Hardshrink(_Activation):
    """x, or 0 within `threshold` of zero."""

    _ARGUMENTS = ("threshold",)

    def __init__(self, threshold=0.5, name=None):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        return F.hardshrink(x, self.threshold)


class Softshrink(_Activation):
    """x moved towards zero by `threshold`."""

    _ARGUMENTS = ("threshold",)

    def __init__(self, threshold=0.5, name=None):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        return F.softshrink(x, self.threshold)


class ThresholdedReLU(_Activation):
    """x above `threshold`, else 0."""

    _ARGUMENTS = ("threshold",)

    def __init__(self, threshold=1.0, name=None):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        return F.thresholded_relu(x, self.threshold)


class Hardtanh(_Activation):
    """x kept between `min` and `max`."""

    _ARGUMENTS = ("min", "max")

    def __init__(self, min=-1.0, max=1.0, name=None):
        super().__init__()
        self.min = min
        self.max = max

    def forward(self, x):
        return F.hardtanh(x, self.min, self.max)


class Softplus(_Activation):
    """log(1 + exp(beta * x)) / beta, or x above the threshold."""

    _ARGUMENTS = ("beta", "threshold")

    def __init__(self, beta=1, threshold=20, name=None):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, x):
        return F.softplus(x, self.beta, self.threshold)


class Softmax(_Activation):
    """exp(x) over its sum along `axis`."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.softmax(x, self.axis)


class LogSoftmax(_Activation):
    """The logarithm of softmax along `axis`."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.log_softmax(x, self.axis)


class Maxout(_Activation):
    """The largest of each of `groups` channels along `axis`."""

    _ARGUMENTS = ("groups", "axis")

    def __init__(self, groups, axis=1, name=None):
        super().__init__()
        self.groups = groups
        self.axis = axis

    def forward(self, x):
        return F.maxout(x, self.groups, self.axis)


class GLU(_Activation):
    """One half along `axis` times the sigmoid of the other."""

    _ARGUMENTS = ("axis",)

    def __init__(self, axis=-1, name=None):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        return F.glu(x, self.axis)


__all__ = _names.own(globals())
