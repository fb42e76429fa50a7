# SPDX-License-Identifier: Apache-2.0
"""A weight as length times direction, each trained on its own."""

import paddle

from ...autograd import no_grad
from ...framework.parameter import Parameter

_HOOKS = "_weight_norm_hooks"


def _length(v, dim):
    """The norm of each slice along `dim` with the other dimensions kept as ones, or
    of all of v for -1."""
    if dim == -1:
        total = paddle.sum(paddle.square(v))
    else:
        others = [i for i in range(len(v.shape)) if i != dim]
        total = paddle.sum(paddle.square(v), axis=others, keepdim=True)
    return paddle.sqrt(total)


def _combine(g, v, dim):
    length = _length(v, dim)
    if dim != -1:
        g = paddle.reshape(g, [-1 if i == dim else 1 for i in range(len(v.shape))])
    return v * (g / length)


class _WeightNorm:
    """Computes the weight before each call of the layer."""

    def __init__(self, name, dim):
        self.name = name
        self.dim = dim

    def weight(self, layer):
        g = getattr(layer, self.name + "_g")
        v = getattr(layer, self.name + "_v")
        return _combine(g, v, self.dim)

    def __call__(self, layer, inputs):
        setattr(layer, self.name, self.weight(layer))


def weight_norm(layer, name="weight", dim=0):
    """Trains `layer.name` as g * v / |v|, where g are the lengths along `dim` (None:
    one for all). The layer then has parameters name_g and name_v instead. Returns
    the layer."""
    weight = layer._parameters.get(name)
    if weight is None:
        raise ValueError(
            f"weight_norm: {type(layer).__name__} has no parameter '{name}'"
        )
    rank = len(weight.shape)
    if dim is None:
        dim = -1
    elif not -1 <= dim < rank:
        raise ValueError(f"weight_norm: dim {dim} is no dimension of {weight.shape}")
    with no_grad():
        g = paddle.reshape(_length(weight, dim), [-1])
        v = weight.detach().clone()
    delattr(layer, name)
    layer.add_parameter(name + "_g", Parameter(g, weight.name + "_g"))
    layer.add_parameter(name + "_v", Parameter(v, weight.name + "_v"))
    norm = _WeightNorm(name, dim)
    norm(layer, None)
    hooks = layer.__dict__.setdefault(_HOOKS, {})
    hooks[name] = (norm, layer.register_forward_pre_hook(norm))
    return layer


def remove_weight_norm(layer, name="weight"):
    """Makes `layer.name` one parameter again. Returns the layer."""
    hooks = layer.__dict__.get(_HOOKS, {})
    if name not in hooks:
        raise ValueError(
            f"remove_weight_norm: '{name}' of {type(layer).__name__} is not under "
            "weight_norm"
        )
    norm, handle = hooks.pop(name)
    handle.remove()
    with no_grad():
        value = norm.weight(layer)
    own_name = getattr(layer, name + "_g").name.removesuffix("_g")
    for suffix in ("", "_g", "_v"):
        delattr(layer, name + suffix)
    layer.add_parameter(name, Parameter(value, own_name))
    return layer
