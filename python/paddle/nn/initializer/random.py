# SPDX-License-Identifier: Apache-2.0
"""Initializers that draw from a distribution."""

import math

import numpy as np

from ... import _ops
from ...framework import dtype as dtypes
from .fixed import Assign
from .initializer import Initializer


def calculate_gain(nonlinearity, param=None):
    """The factor by which an activation shrinks its input's spread, to be undone."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    gains = {
        "sigmoid": 1.0,
        "linear": 1.0,
        "conv1d": 1.0,
        "conv2d": 1.0,
        "conv3d": 1.0,
        "conv1d_transpose": 1.0,
        "conv2d_transpose": 1.0,
        "conv3d_transpose": 1.0,
        "conv_transpose1d": 1.0,
        "conv_transpose2d": 1.0,
        "conv_transpose3d": 1.0,
        "tanh": 5.0 / 3,
        "relu": math.sqrt(2.0),
        "selu": 3.0 / 4,
    }
    if nonlinearity not in gains:
        raise ValueError(
            f"calculate_gain: unknown nonlinearity '{nonlinearity}'; the known ones "
            "are leaky_relu, " + ", ".join(gains)
        )
    return gains[nonlinearity]


def _fans(shape):
    """How many inputs an output sums, and how many outputs an input reaches.

    A matrix is [in, out]; a convolution's weight [out, in, ...].
    """
    if len(shape) == 0:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


class Uniform(Initializer):
    """Uniform in [low, high)."""

    def __init__(self, low=-1.0, high=1.0, name=None):
        if not high >= low:
            raise ValueError(f"Uniform: high {high} is below low {low}")
        self._low = low
        self._high = high

    def _value(self, shape, dtype):
        return _uniform(shape, dtype, self._low, self._high, self._seed)


class Normal(Initializer):
    """Normal with the given mean and standard deviation."""

    def __init__(self, mean=0.0, std=1.0, name=None):
        _check_std("Normal", std)
        self._mean = mean
        self._std = std

    def _value(self, shape, dtype):
        return _normal(shape, dtype, self._mean, self._std, self._seed)


class TruncatedNormal(Initializer):
    """Normal, drawn again when further than two deviations from the mean."""

    def __init__(self, mean=0.0, std=1.0, name=None):
        _check_std("TruncatedNormal", std)
        self._mean = mean
        self._std = std

    def _value(self, shape, dtype):
        return _ops.truncated_gaussian_random(
            shape=shape, mean=self._mean, std=self._std, seed=self._seed, dtype=dtype
        )


class _Xavier(Initializer):
    def __init__(self, fan_in=None, fan_out=None, name=None, gain=1.0):
        self._given = (fan_in, fan_out)
        self._gain = gain

    def _std(self, shape):
        fan_in, fan_out = _fans(shape)
        if self._given[0] is not None:
            fan_in = self._given[0]
        if self._given[1] is not None:
            fan_out = self._given[1]
        if fan_in + fan_out == 0:
            return 0.0
        return self._gain * math.sqrt(2.0 / (fan_in + fan_out))


class XavierNormal(_Xavier):
    """Normal with deviation sqrt(2 / (fan_in + fan_out))."""

    def _value(self, shape, dtype):
        return _normal(shape, dtype, 0.0, self._std(shape), self._seed)


class XavierUniform(_Xavier):
    """Uniform within sqrt(6 / (fan_in + fan_out)) of zero."""

    def _value(self, shape, dtype):
        limit = math.sqrt(3.0) * self._std(shape)
        return _uniform(shape, dtype, -limit, limit, self._seed)


class _Kaiming(Initializer):
    def __init__(self, fan_in=None, negative_slope=0.0, nonlinearity="relu"):
        self._fan_in = fan_in
        slope = negative_slope if nonlinearity == "leaky_relu" else None
        self._gain = calculate_gain(nonlinearity, slope)

    def _std(self, shape):
        fan_in = _fans(shape)[0] if self._fan_in is None else self._fan_in
        return self._gain / math.sqrt(fan_in) if fan_in else 0.0


class KaimingNormal(_Kaiming):
    """Normal with deviation sqrt(2 / fan_in), for layers before a ReLU."""

    def _value(self, shape, dtype):
        return _normal(shape, dtype, 0.0, self._std(shape), self._seed)


class KaimingUniform(_Kaiming):
    """Uniform within sqrt(6 / fan_in) of zero, for layers before a ReLU."""

    def _value(self, shape, dtype):
        limit = math.sqrt(3.0) * self._std(shape)
        return _uniform(shape, dtype, -limit, limit, self._seed)


class Orthogonal(Initializer):
    """Rows, or columns where they are fewer, of length `gain`, at right angles.

    More than two dimensions are taken as the matrix [shape[0], the rest].
    """

    _computed = True

    def __init__(self, gain=1.0, name=None):
        self._gain = gain

    def _value(self, shape, dtype):
        if len(shape) < 2:
            raise ValueError(
                f"Orthogonal: the parameter needs two dimensions or more, not {shape}"
            )
        rows, columns = shape[0], math.prod(shape[1:])
        tall = [max(rows, columns), min(rows, columns)]
        drawn = _normal(tall, dtypes.float32, 0.0, 1.0).numpy()
        q, r = np.linalg.qr(drawn)
        # With the signs of R's diagonal the result is uniform among rotations.
        q = q * np.sign(np.diag(r))
        if rows < columns:
            q = q.T
        return Assign(self._gain * q.reshape(shape))._value(shape, dtype)


def _uniform(shape, dtype, low, high, seed):
    return _ops.uniform_random(shape=shape, min=low, max=high, seed=seed, dtype=dtype)


def _normal(shape, dtype, mean, std, seed=0):
    return _ops.gaussian_random(shape=shape, mean=mean, std=std, seed=seed, dtype=dtype)


def _check_std(name, std):
    if not std >= 0:
        raise ValueError(f"{name}: std must not be negative, but got {std}")
