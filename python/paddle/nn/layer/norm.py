# SPDX-License-Identifier: Apache-2.0
"""Layers that normalise."""

import math
import numbers

import paddle

from ... import _core, _names
from ...framework.param_attr import ParamAttr
from .. import functional as F
from ..initializer import Constant, Normal
from .layers import Layer


def _check_rank(layer, x, ranks):
    if len(x.shape) not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise ValueError(
            f"{type(layer).__name__}: the input must have {wanted} dimensions, but "
            f"its shape is {list(x.shape)}"
        )


class _BatchNormBase(Layer):
    """Normalises over the batch while training, by running statistics otherwise.

    The running mean and variance are parameters that no gradient reaches:
    running = momentum * running + (1 - momentum) * batch.
    """

    _RANKS = None  # what the input may have; None for any

    def __init__(
        self,
        num_features,
        momentum=0.9,
        epsilon=1e-5,
        weight_attr=None,
        bias_attr=None,
        data_format="NCHW",
        use_global_stats=None,
        name=None,
    ):
        super().__init__()
        if num_features <= 0:
            raise ValueError(
                f"{type(self).__name__}: num_features must be positive, not "
                f"{num_features}"
            )
        self._num_features = num_features
        self._momentum = momentum
        self._epsilon = epsilon
        self._data_format = data_format
        self._use_global_stats = use_global_stats
        self._name = name
        self._make_parameters(weight_attr, bias_attr, None, None)

    def _make_parameters(self, weight_attr, bias_attr, mean_name, variance_name):
        shape = [self._num_features]
        self.weight = self.create_parameter(
            shape, weight_attr, default_initializer=Constant(1.0)
        )
        self.bias = self.create_parameter(shape, bias_attr, is_bias=True)
        for attribute, name, first in (
            ("_mean", mean_name, 0.0),
            ("_variance", variance_name, 1.0),
        ):
            attr = ParamAttr(name=name, initializer=Constant(first), trainable=False)
            setattr(self, attribute, self.create_parameter(shape, attr))

    def forward(self, input):
        if self._RANKS is not None:
            _check_rank(self, input, self._RANKS)
        return F.batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            training=self.training,
            momentum=self._momentum,
            epsilon=self._epsilon,
            data_format=self._data_format,
            use_global_stats=self._use_global_stats,
        )

    def extra_repr(self):
        text = (
            f"num_features={self._num_features}, momentum={self._momentum}, "
            f"epsilon={self._epsilon}"
        )
        if self._data_format != "NCHW":
            text += f", data_format={self._data_format}"
        return text


class BatchNorm1D(_BatchNormBase):
    """Batch normalisation of [N, C] or [N, C, L]."""

    _RANKS = (2, 3)

    def __init__(
        self,
        num_features,
        momentum=0.9,
        epsilon=1e-5,
        weight_attr=None,
        bias_attr=None,
        data_format="NCL",
        use_global_stats=None,
        name=None,
    ):
        super().__init__(
            num_features,
            momentum,
            epsilon,
            weight_attr,
            bias_attr,
            data_format,
            use_global_stats,
            name,
        )


class BatchNorm2D(_BatchNormBase):
    """Batch normalisation of [N, C, H, W]."""

    _RANKS = (4,)


class BatchNorm3D(_BatchNormBase):
    """Batch normalisation of [N, C, D, H, W]."""

    _RANKS = (5,)

    def __init__(
        self,
        num_features,
        momentum=0.9,
        epsilon=1e-5,
        weight_attr=None,
        bias_attr=None,
        data_format="NCDHW",
        use_global_stats=None,
        name=None,
    ):
        super().__init__(
            num_features,
            momentum,
            epsilon,
            weight_attr,
            bias_attr,
            data_format,
            use_global_stats,
            name,
        )


class SyncBatchNorm(_BatchNormBase):
    """Batch normalisation over the joined batch of all ranks; of one rank it is
    BatchNorm. In training, forward and backward are collectives."""

    def __init__(
        self,
        num_features,
        momentum=0.9,
        epsilon=1e-5,
        weight_attr=None,
        bias_attr=None,
        data_format="NCHW",
        name=None,
    ):
        super().__init__(
            num_features,
            momentum,
            epsilon,
            weight_attr,
            bias_attr,
            data_format,
            None,
            name,
        )

    def forward(self, input):
        if not self.training or _core.get_group(None).nranks == 1:
            return super().forward(input)
        return _core.sync_batch_norm(
            input,
            self.weight,
            self.bias,
            self._mean,
            self._variance,
            None,
            1 if self._data_format.startswith("NC") else len(input.shape) - 1,
            self._momentum,
            self._epsilon,
        )

    @classmethod
    def convert_sync_batchnorm(cls, layer):
        """`layer` with every BatchNorm in it replaced by a SyncBatchNorm that holds
        the same parameters."""
        result = layer
        if isinstance(layer, _BatchNormBase) and not isinstance(layer, cls):
            result = cls(
                layer._num_features,
                layer._momentum,
                layer._epsilon,
                False if layer.weight is None else None,
                False if layer.bias is None else None,
                layer._data_format,
                layer._name,
            )
            for name in ("weight", "bias", "_mean", "_variance"):
                setattr(result, name, getattr(layer, name))
            result.training = layer.training
        for name, below in layer.named_children():
            setattr(result, name, cls.convert_sync_batchnorm(below))
        return result


class BatchNorm(_BatchNormBase):
    """Batch normalisation with the arguments of Paddle 1.x: an activation after it,
    names for the running statistics, any number of dimensions."""

    def __init__(
        self,
        num_channels,
        act=None,
        is_test=False,
        momentum=0.9,
        epsilon=1e-5,
        param_attr=None,
        bias_attr=None,
        dtype="float32",
        data_layout="NCHW",
        in_place=False,
        moving_mean_name=None,
        moving_variance_name=None,
        do_model_average_for_mean_and_var=True,
        use_global_stats=False,
        trainable_statistics=False,
    ):
        Layer.__init__(self, dtype=dtype)
        self._num_features = num_channels
        self._momentum = momentum
        self._epsilon = epsilon
        self._data_format = data_layout
        self._use_global_stats = use_global_stats or None
        self._name = None
        self._act = act
        self._trainable_statistics = trainable_statistics
        self._make_parameters(
            param_attr, bias_attr, moving_mean_name, moving_variance_name
        )
        if is_test:
            self.training = False

    def forward(self, input):
        out = F.batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            training=self.training or self._trainable_statistics,
            momentum=self._momentum,
            epsilon=self._epsilon,
            data_format=self._data_format,
            use_global_stats=self._use_global_stats,
        )
        return out if self._act is None else getattr(F, self._act)(out)


class LayerNorm(Layer):
    """Normalises over the last dimensions, those of `normalized_shape`."""

    def __init__(
        self,
        normalized_shape,
        epsilon=1e-5,
        weight_attr=None,
        bias_attr=None,
        name=None,
    ):
        super().__init__()
        if isinstance(normalized_shape, numbers.Integral):
            normalized_shape = [normalized_shape]
        self._normalized_shape = [int(n) for n in normalized_shape]
        self._epsilon = epsilon
        shape = [math.prod(self._normalized_shape)]
        self.weight = self.create_parameter(
            shape, weight_attr, default_initializer=Constant(1.0)
        )
        self.bias = self.create_parameter(shape, bias_attr, is_bias=True)

    def forward(self, input):
        return F.layer_norm(
            input, self._normalized_shape, self.weight, self.bias, self._epsilon
        )

    def extra_repr(self):
        return f"normalized_shape={self._normalized_shape}, epsilon={self._epsilon}"


class GroupNorm(Layer):
    """Normalises over each of `num_groups` groups of channels of one sample."""

    def __init__(
        self,
        num_groups,
        num_channels,
        epsilon=1e-5,
        weight_attr=None,
        bias_attr=None,
        data_format="NCHW",
        name=None,
    ):
        super().__init__()
        if num_groups <= 0 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: {num_channels} channels cannot be split into "
                f"{num_groups} groups"
            )
        self._num_groups = num_groups
        self._num_channels = num_channels
        self._epsilon = epsilon
        self._data_format = data_format
        self.weight = self.create_parameter(
            [num_channels], weight_attr, default_initializer=Constant(1.0)
        )
        self.bias = self.create_parameter([num_channels], bias_attr, is_bias=True)

    def forward(self, input):
        return F.group_norm(
            input,
            self._num_groups,
            self._epsilon,
            self.weight,
            self.bias,
            self._data_format,
        )

    def extra_repr(self):
        return (
            f"num_groups={self._num_groups}, num_channels={self._num_channels}, "
            f"epsilon={self._epsilon}"
        )


class _InstanceNorm(Layer):
    """Normalises each channel of each sample. False for both attributes leaves out
    scale and shift."""

    _RANKS = (4,)

    def __init__(
        self,
        num_features,
        epsilon=1e-5,
        momentum=0.9,
        weight_attr=None,
        bias_attr=None,
        data_format="NCHW",
        name=None,
    ):
        super().__init__()
        if (weight_attr is False) != (bias_attr is False):
            raise ValueError(
                f"{type(self).__name__}: weight_attr and bias_attr must both be False "
                "or neither"
            )
        self._num_features = num_features
        self._epsilon = epsilon
        self._momentum = momentum
        self._data_format = data_format
        self.scale = self.create_parameter(
            [num_features], weight_attr, default_initializer=Constant(1.0)
        )
        self.bias = self.create_parameter([num_features], bias_attr, is_bias=True)

    def forward(self, input):
        _check_rank(self, input, self._RANKS)
        return F.instance_norm(
            input,
            weight=self.scale,
            bias=self.bias,
            momentum=self._momentum,
            eps=self._epsilon,
            data_format=self._data_format,
        )

    def extra_repr(self):
        return f"num_features={self._num_features}, epsilon={self._epsilon}"


class InstanceNorm1D(_InstanceNorm):
    """Instance normalisation of [N, C, L]."""

    _RANKS = (3,)

    def __init__(
        self,
        num_features,
        epsilon=1e-5,
        momentum=0.9,
        weight_attr=None,
        bias_attr=None,
        data_format="NCL",
        name=None,
    ):
        super().__init__(
            num_features,
            epsilon,
            momentum,
            weight_attr,
            bias_attr,
            data_format,
            name,
        )


class InstanceNorm2D(_InstanceNorm):
    """Instance normalisation of [N, C, H, W]."""


class InstanceNorm3D(_InstanceNorm):
    """Instance normalisation of [N, C, D, H, W]."""

    _RANKS = (5,)

    def __init__(
        self,
        num_features,
        epsilon=1e-5,
        momentum=0.9,
        weight_attr=None,
        bias_attr=None,
        data_format="NCDHW",
        name=None,
    ):
        super().__init__(
            num_features,
            epsilon,
            momentum,
            weight_attr,
            bias_attr,
            data_format,
            name,
        )


class LocalResponseNorm(Layer):
    """Divides by a power of the mean square over `size` neighbouring channels."""

    def __init__(
        self,
        size,
        alpha=0.0001,
        beta=0.75,
        k=1.0,
        data_format="NCHW",
        name=None,
    ):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k
        self.data_format = data_format

    def forward(self, input):
        return F.local_response_norm(
            input, self.size, self.alpha, self.beta, self.k, self.data_format
        )

    def extra_repr(self):
        return f"size={self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class SpectralNorm(Layer):
    """A weight divided by its largest singular value, found by power iteration.

    The weight of shape `weight_shape` is taken as the matrix [weight_shape[dim],
    the rest]. Each call goes `power_iters` steps on from where the last one ended.
    """

    def __init__(self, weight_shape, dim=0, power_iters=1, eps=1e-12, dtype="float32"):
        super().__init__(dtype=dtype)
        self._weight_shape = [int(n) for n in weight_shape]
        if math.prod(self._weight_shape) <= 0:
            raise ValueError(f"SpectralNorm: the weight shape {weight_shape} is empty")
        if not -len(self._weight_shape) <= dim < len(self._weight_shape):
            raise ValueError(
                f"SpectralNorm: dim {dim} is no dimension of {self._weight_shape}"
            )
        self._dim = dim % len(self._weight_shape)
        self._power_iters = power_iters
        self._eps = eps
        height = self._weight_shape[self._dim]
        width = math.prod(self._weight_shape) // height
        for name, size in (("weight_u", height), ("weight_v", width)):
            attr = ParamAttr(initializer=Normal(0.0, 1.0), trainable=False)
            setattr(self, name, self.create_parameter([size], attr))

    def forward(self, x):
        if list(x.shape) != self._weight_shape:
            raise ValueError(
                f"SpectralNorm: the weight has shape {list(x.shape)}, but "
                f"{self._weight_shape} was announced"
            )
        return spectral_normalize(
            x, self.weight_u, self.weight_v, self._dim, self._power_iters, self._eps
        )


def spectral_normalize(weight, u, v, dim, power_iters, eps):
    """`weight` over its largest singular value; u and v are moved on in place."""
    order = [dim] + [i for i in range(len(weight.shape)) if i != dim]
    matrix = paddle.reshape(paddle.transpose(weight, order), [weight.shape[dim], -1])
    fixed = matrix.detach()
    for _ in range(power_iters):
        paddle.assign(_unit(paddle.matmul(fixed, u, transpose_x=True), eps), v)
        paddle.assign(_unit(paddle.matmul(fixed, v), eps), u)
    # Copies: the graph must not see what later calls do to u and v.
    left, right = u.detach().clone(), v.detach().clone()
    return weight / paddle.sum(paddle.matmul(matrix, right) * left)


def _unit(vector, eps):
    return vector / (paddle.sqrt(paddle.sum(paddle.square(vector))) + eps)


__all__ = _names.own(globals(), "spectral_normalize")
