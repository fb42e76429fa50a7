# SPDX-License-Identifier: Apache-2.0
"""One run of a network in which every call of a layer is written down."""

import collections

from .._core import building
from ..autograd import no_grad
from ..framework.dtype import convert
from ..static.input import InputSpec
from ..tensor.creation import zeros

# `inputs` is a list, `output` whatever the layer gave.
Call = collections.namedtuple("Call", "layer inputs output")


def _check_mode(function):
    if building.on:
        raise RuntimeError(
            f"{function}: layers of programs are not run at once: call "
            "paddle.disable_static() before the network is made"
        )


def record(function, net, inputs):
    """The calls of the layers of `net` in `net(*inputs)`, in the order in which they end.
    It runs without gradients and as in evaluation, and leaves the network as it was."""
    from ..nn import Layer

    if not isinstance(net, Layer):
        raise TypeError(
            f"{function}: the network must be a paddle.nn.Layer, but is a "
            f"{type(net).__name__}"
        )
    _check_mode(function)
    calls = []

    def write_down(layer, given, output):
        calls.append(Call(layer, list(given), output))

    layers = net.sublayers(include_self=True)
    training = [layer.training for layer in layers]
    hooks = [layer.register_forward_post_hook(write_down) for layer in layers]
    net.eval()
    try:
        with no_grad():
            if isinstance(inputs, dict):
                net(**inputs)
            else:
                net(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
        for layer, was in zip(layers, training):
            layer.training = was
    return calls


def _is_shape(value):
    return isinstance(value, (list, tuple)) and all(
        n is None or hasattr(n, "__index__") for n in value
    )


def _zeros(function, shape, dtype):
    """An input of that shape, with one where a dimension is open."""
    if isinstance(shape, InputSpec):
        shape, dtype = shape.shape, shape.dtype
    if not _is_shape(shape) or len(shape) == 0:
        raise TypeError(
            f"{function}: input_size must be a shape such as (1, 3, 32, 32), an "
            f"InputSpec, or a list of these, but holds {shape!r}"
        )
    sizes = [1 if n is None or n == -1 else int(n) for n in shape]
    if min(sizes) < 1:
        raise ValueError(f"{function}: input_size {list(shape)} must be positive")
    return zeros(sizes, dtype)


def inputs_of(function, input_size, dtypes=None):
    """Zeros for a network whose inputs have these shapes: one, or a list of them."""
    _check_mode(function)
    if isinstance(input_size, InputSpec) or _is_shape(input_size):
        input_size = [input_size]
    if not isinstance(input_size, (list, tuple)):
        raise TypeError(
            f"{function}: input_size must be a shape, an InputSpec, or a list of these, "
            f"but is a {type(input_size).__name__}"
        )
    if not isinstance(dtypes, (list, tuple)):
        dtypes = [dtypes] * len(input_size)
    if len(dtypes) != len(input_size):
        raise ValueError(
            f"{function}: there are {len(input_size)} inputs, but {len(dtypes)} dtypes"
        )
    return [
        _zeros(function, shape, convert(dtype or "float32"))
        for shape, dtype in zip(input_size, dtypes)
    ]


def shapes_of(value):
    """The shapes of tensors, nested as they are."""
    if hasattr(value, "shape"):
        return list(value.shape)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [shapes_of(one) for one in value]
    return []


def tensors_of(value):
    """All tensors in nested lists and dicts."""
    if hasattr(value, "shape"):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in tensors_of(one)]
    return []


def size_of(tensor):
    """The number of elements."""
    count = 1
    for n in tensor.shape:
        count *= n
    return count


def state_of(layer, include_sublayers=False):
    """Parameters and buffers that a state_dict() of the layer would have."""
    return list(layer.state_dict(include_sublayers=include_sublayers).values())
