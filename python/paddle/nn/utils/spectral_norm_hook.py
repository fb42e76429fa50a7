# SPDX-License-Identifier: Apache-2.0
"""A weight divided by its largest singular value, as a hook."""

import math

from ... import _ops
from ..layer.conv import Conv1DTranspose, Conv2DTranspose, Conv3DTranspose
from ..layer.linear import Linear
from ..layer.norm import spectral_normalize

_OUTPUT_SECOND = (Linear, Conv1DTranspose, Conv2DTranspose, Conv3DTranspose)


class _SpectralNorm:
    """Computes the weight before each call; in evaluation without iterating."""

    def __init__(self, name, dim, power_iters, eps):
        self._name = name
        self._dim = dim
        self._power_iters = power_iters
        self._eps = eps

    def __call__(self, layer, inputs):
        weight = spectral_normalize(
            getattr(layer, self._name + "_orig"),
            getattr(layer, self._name + "_u"),
            getattr(layer, self._name + "_v"),
            self._dim,
            self._power_iters if layer.training else 0,
            self._eps,
        )
        setattr(layer, self._name, weight)


def spectral_norm(layer, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Keeps the largest singular value of `layer.name` at one. The parameter is
    called name_orig from then on. dim: the dimension of the outputs, by default
    that of the layer's kind. Returns the layer."""
    weight = layer._parameters.get(name)
    if weight is None:
        raise ValueError(
            f"spectral_norm: {type(layer).__name__} has no parameter '{name}'"
        )
    if n_power_iterations < 1:
        raise ValueError(
            "spectral_norm: n_power_iterations must be positive, but is "
            f"{n_power_iterations}"
        )
    if dim is None:
        dim = 1 if isinstance(layer, _OUTPUT_SECOND) else 0
    height = weight.shape[dim]
    width = math.prod(weight.shape) // height
    delattr(layer, name)
    layer.add_parameter(name + "_orig", weight)
    for suffix, size in (("_u", height), ("_v", width)):
        vector = _ops.gaussian_random(shape=[size], dtype=weight.dtype)
        layer.register_buffer(name + suffix, vector)
    hook = _SpectralNorm(name, dim, n_power_iterations, eps)
    hook(layer, None)
    layer.register_forward_pre_hook(hook)
    return layer
