# SPDX-License-Identifier: Apache-2.0
"""Layers as functions that make their parameters themselves."""

import math

from .. import _names, _ops
from .._core import Tensor
from ..framework.mode import require_static
from ..framework.parameter import new_parameter
from ..nn import functional as F
from ..nn.functional import window
from ..nn.initializer import Constant, Normal
from ..tensor.creation import to_tensor
from ..utils import unique_name
from .program import default_main_program, layer_guard


def begin(function, kind, name=None):
    """The name of a new layer of a kind: fc_0."""
    require_static(f"paddle.static.nn.{function}")
    return name if name is not None else unique_name.generate(kind)


def activate(x, act):
    """The activation named `act` of x, or x where there is none."""
    if act is None:
        return x
    op = getattr(_ops, act, None) if isinstance(act, str) else None
    if op is None:
        raise ValueError(f"there is no activation {act!r}")
    return op(x)


def _pick(function, first, second, values):
    """One argument that may come under two names."""
    for value in values:
        if value is not None:
            return value
    raise TypeError(f"{function}(): argument '{first}' (or '{second}') is missing")


def fc(
    x=None,
    size=None,
    num_flatten_dims=1,
    weight_attr=None,
    bias_attr=None,
    activation=None,
    name=None,
    *,
    input=None,
    act=None,
    param_attr=None,
):
    """A fully connected layer: x W + b, followed by an activation.

    x: a variable, or several whose products are added; also under the name `input`.
    num_flatten_dims: so many dimensions stay, the others are taken as one.
    activation: the name of an op, such as 'tanh'; also under the name `act`.
    """
    x = _pick("fc", "x", "input", (x, input))
    if size is None:
        raise TypeError("fc(): argument 'size' is missing")
    act = activation if act is None else act
    attrs = weight_attr if weight_attr is not None else param_attr
    inputs = list(x) if isinstance(x, (list, tuple)) else [x]
    if not isinstance(attrs, (list, tuple)):
        attrs = [attrs] * len(inputs)
    if len(attrs) != len(inputs):
        raise ValueError(
            f"fc(): there are {len(inputs)} inputs, but {len(attrs)} weight_attr"
        )
    layer = begin("fc", "fc", name)
    with layer_guard(layer):
        products = [
            _product(layer, one, size, num_flatten_dims, attr)
            for one, attr in zip(inputs, attrs)
        ]
        out = products[0] if len(products) == 1 else _ops.sum(products)
        bias = new_parameter([size], bias_attr, out.dtype, True, None, layer)
        if bias is not None:
            out = _ops.elementwise_add(out, bias)
        return activate(out, act)


def _product(layer, x, size, num_flatten_dims, attr):
    if not isinstance(x, Tensor):
        raise TypeError(f"fc(): x must be a Variable, but got {type(x).__name__}")
    rank = len(x.shape)
    kept = rank - 1 if num_flatten_dims == -1 else num_flatten_dims
    if not 0 < kept < rank:
        raise ValueError(
            f"fc(): num_flatten_dims {num_flatten_dims} must lie between 1 and "
            f"{rank - 1} for x of shape {x.shape}"
        )
    if any(n < 0 for n in x.shape[kept:]):
        raise ValueError(
            f"fc(): the last {rank - kept} dimensions of x must be known, but its shape "
            f"is {x.shape}"
        )
    weight = new_parameter(
        [math.prod(x.shape[kept:]), size], attr, x.dtype, False, None, layer
    )
    return _ops.mul(x, weight, kept, 1)


def cross_entropy(input, label, soft_label=False, ignore_index=-100):
    """-log(input) at the label, of shape [N, 1]; input holds probabilities already, as
    after a softmax."""
    require_static("paddle.static.nn.cross_entropy")
    return _ops.cross_entropy(input, label, soft_label, ignore_index)


def embedding(
    input,
    size,
    is_sparse=False,
    is_distributed=False,
    padding_idx=None,
    param_attr=None,
    dtype="float32",
):
    """The rows of a new parameter of shape `size` that `input` names.

    padding_idx: gives zeros and gets no gradient; counts from the end if negative.
    is_distributed: rows on parameter servers, as sparse_embedding has them.
    """
    layer = begin("embedding", "embedding")
    with layer_guard(layer):
        weight = _table(layer, size, param_attr, dtype)
        sparse = is_sparse or is_distributed
        rows = F.embedding(input, weight, padding_idx, sparse)
    if is_distributed:
        mark_remote()
    return rows


def mark_remote(**attributes):
    """Says of the operation that was made last that servers, where there are any, have
    its table, and gives it further attributes."""
    operation = default_main_program().current_block().ops[-1]
    attributes = {"is_distributed": True, "remote_prefetch": True, **attributes}
    for name, value in attributes.items():
        operation._set_attr(name, value)


def _table(layer, size, attr, dtype):
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise ValueError(
            f"embedding(): size must be [number of rows, their length], but is {size!r}"
        )
    return new_parameter(list(size), attr, dtype, False, None, layer)


# ---- convolutions


def _channels(function, input, data_format, rank, groups, num_filters):
    """(whether they are last, how many); both they and the filters fit the groups."""
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{function}(): input must be a Variable, but got {type(input).__name__}"
        )
    if len(input.shape) != rank + 2:
        raise ValueError(
            f"{function}(): input must have {rank + 2} dimensions, but its shape is "
            f"{input.shape}"
        )
    last = window.is_channels_last(data_format, rank, function)
    channels = input.shape[-1 if last else 1]
    if channels < 0:
        raise ValueError(
            f"{function}(): the number of channels must be known, but the shape of "
            f"input is {input.shape}"
        )
    if channels % groups != 0 or num_filters % groups != 0:
        raise ValueError(
            f"{function}(): {channels} channels and {num_filters} filters cannot be "
            f"split into {groups} groups"
        )
    return last, channels


def _conv(
    rank,
    input,
    num_filters,
    filter_size,
    stride,
    padding,
    dilation,
    groups,
    param_attr,
    bias_attr,
    act,
    name,
    data_format,
):
    function = f"conv{rank}d"
    layer = begin(function, function, name)
    groups = groups or 1
    _, channels = _channels(function, input, data_format, rank, groups, num_filters)
    kernel = window.numbers(filter_size, rank, function, "filter_size")
    deviation = math.sqrt(2.0 / (math.prod(kernel) * channels))
    with layer_guard(layer):
        weight = new_parameter(
            [num_filters, channels // groups, *kernel],
            param_attr,
            input.dtype,
            False,
            Normal(0.0, deviation),
            layer,
        )
        bias = new_parameter([num_filters], bias_attr, input.dtype, True, None, layer)
        out = getattr(F, function)(
            input,
            weight,
            bias,
            stride,
            padding,
            dilation,
            groups,
            data_format=data_format,
        )
        return activate(out, act)


def conv2d(
    input,
    num_filters,
    filter_size,
    stride=1,
    padding=0,
    dilation=1,
    groups=None,
    param_attr=None,
    bias_attr=None,
    use_cudnn=True,
    act=None,
    name=None,
    data_format="NCHW",
):
    """A convolution with `num_filters` new filters, followed by an activation. See
    paddle.nn.functional.conv2d."""
    return _conv(
        2,
        input,
        num_filters,
        filter_size,
        stride,
        padding,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


def conv3d(
    input,
    num_filters,
    filter_size,
    stride=1,
    padding=0,
    dilation=1,
    groups=None,
    param_attr=None,
    bias_attr=None,
    use_cudnn=True,
    act=None,
    name=None,
    data_format="NCDHW",
):
    """As conv2d, over three spatial dimensions."""
    return _conv(
        3,
        input,
        num_filters,
        filter_size,
        stride,
        padding,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


def _conv_transpose(
    rank,
    input,
    num_filters,
    output_size,
    filter_size,
    padding,
    stride,
    dilation,
    groups,
    param_attr,
    bias_attr,
    act,
    name,
    data_format,
):
    function = f"conv{rank}d_transpose"
    layer = begin(function, function, name)
    groups = groups or 1
    last, channels = _channels(function, input, data_format, rank, groups, num_filters)
    if filter_size is None:
        if output_size is None:
            raise ValueError(f"{function}(): filter_size or output_size is needed")
        strides = window.numbers(stride, rank, function, "stride")
        dilations = window.numbers(dilation, rank, function, "dilation")
        sizes = window.numbers(output_size, rank, function, "output_size")
        pads, algorithm = window.padding(padding, rank, last, function)
        if algorithm == "SAME":
            raise ValueError(f"{function}(): filter_size is needed with padding 'SAME'")
        pads = pads if len(pads) == 2 * rank else [p for p in pads for _ in (0, 1)]
        spatial = input.shape[1:-1] if last else input.shape[2:]
        kernel = [
            (
                sizes[i]
                - (spatial[i] - 1) * strides[i]
                + sum(pads[2 * i : 2 * i + 2])
                - 1
            )
            // dilations[i]
            + 1
            for i in range(rank)
        ]
    else:
        kernel = window.numbers(filter_size, rank, function, "filter_size")
    with layer_guard(layer):
        weight = new_parameter(
            [channels, num_filters // groups, *kernel],
            param_attr,
            input.dtype,
            False,
            None,
            layer,
        )
        bias = new_parameter([num_filters], bias_attr, input.dtype, True, None, layer)
        out = getattr(F, function)(
            input,
            weight,
            bias,
            stride,
            padding,
            dilation=dilation,
            groups=groups,
            output_size=output_size,
            data_format=data_format,
        )
        return activate(out, act)


def conv2d_transpose(
    input,
    num_filters,
    output_size=None,
    filter_size=None,
    padding=0,
    stride=1,
    dilation=1,
    groups=None,
    param_attr=None,
    bias_attr=None,
    use_cudnn=True,
    act=None,
    name=None,
    data_format="NCHW",
):
    """The gradient of a convolution, with new filters. Without `filter_size` they are
    as large as `output_size` needs them."""
    return _conv_transpose(
        2,
        input,
        num_filters,
        output_size,
        filter_size,
        padding,
        stride,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


def conv3d_transpose(
    input,
    num_filters,
    output_size=None,
    filter_size=None,
    padding=0,
    stride=1,
    dilation=1,
    groups=None,
    param_attr=None,
    bias_attr=None,
    use_cudnn=True,
    act=None,
    name=None,
    data_format="NCDHW",
):
    """As conv2d_transpose, over three spatial dimensions."""
    return _conv_transpose(
        3,
        input,
        num_filters,
        output_size,
        filter_size,
        padding,
        stride,
        dilation,
        groups,
        param_attr,
        bias_attr,
        act,
        name,
        data_format,
    )


# ---- others


def bilinear_tensor_product(
    x, y, size, act=None, name=None, param_attr=None, bias_attr=None
):
    """x [N, a] times a new weight [size, a, b] times y [N, b], plus a bias: [N, size]."""
    layer = begin("bilinear_tensor_product", "bilinear_tensor_product", name)
    with layer_guard(layer):
        shape = [size, x.shape[1], y.shape[1]]
        weight = new_parameter(shape, param_attr, x.dtype, False, None, layer)
        bias = new_parameter([1, size], bias_attr, x.dtype, True, None, layer)
        return activate(_ops.bilinear_tensor_product(x, y, weight, bias), act)


def prelu(x, mode, param_attr=None, name=None):
    """x where it is positive, else x times a new weight: one number with mode 'all',
    one for each channel with 'channel', one for each element with 'element'."""
    if mode not in ("all", "channel", "element"):
        raise ValueError(
            f"prelu(): mode must be 'all', 'channel' or 'element', but is {mode!r}"
        )
    layer = begin("prelu", "prelu", name)
    shape = {"all": [1], "channel": x.shape[1:2], "element": [1, *x.shape[1:]]}[mode]
    with layer_guard(layer):
        alpha = new_parameter(shape, param_attr, x.dtype, False, Constant(0.25), layer)
        if mode != "element":
            return F.prelu(x, alpha)
        negative = _ops.elementwise_sub(x, _ops.relu(x))
        return _ops.elementwise_add(_ops.relu(x), _ops.elementwise_mul(negative, alpha))


def row_conv(input, future_context_size, param_attr=None, act=None):
    """Each row of a sequence and the `future_context_size` rows after it, each weighted
    element by element: [N, T, D] gives [N, T, D]."""
    layer = begin("row_conv", "row_conv")
    if len(input.shape) != 3:
        raise ValueError(
            f"row_conv(): input must have shape [N, T, D], but has {input.shape}"
        )
    steps = future_context_size + 1
    with layer_guard(layer):
        weight = new_parameter(
            [steps, input.shape[-1]], param_attr, input.dtype, False, None, layer
        )
        # A convolution along T in which every element of a row is a channel.
        rows = _ops.transpose2(input, [0, 2, 1])
        filters = _ops.unsqueeze2(_ops.transpose2(weight, [1, 0]), [1])
        out = F.conv1d(rows, filters, padding=[0, steps - 1], groups=input.shape[-1])
        return activate(_ops.transpose2(out, [0, 2, 1]), act)


_SAMPLERS = ("uniform", "log_uniform", "custom_dist")  # by the op's number


def nce(
    input,
    label,
    num_total_classes,
    sample_weight=None,
    param_attr=None,
    bias_attr=None,
    num_neg_samples=None,
    name=None,
    sampler="uniform",
    custom_dist=None,
    seed=0,
    is_sparse=False,
):
    """The loss of telling the right class of each row from classes that are drawn:
    noise contrastive estimation, [N, 1].

    label: the right classes of each row, [N, k].
    sampler: how classes are drawn: 'uniform', 'log_uniform', or 'custom_dist' with
        probabilities `custom_dist`.
    sample_weight: a factor for each row, [N, 1].
    """
    if sampler not in _SAMPLERS:
        raise ValueError(
            "nce(): sampler must be 'uniform', 'log_uniform' or 'custom_dist', but is "
            f"{sampler!r}"
        )
    if (sampler == "custom_dist") != (custom_dist is not None):
        raise ValueError("nce(): custom_dist belongs to sampler='custom_dist'")
    if custom_dist is not None and len(custom_dist) != num_total_classes:
        raise ValueError(
            f"nce(): custom_dist has {len(custom_dist)} probabilities for "
            f"{num_total_classes} classes"
        )
    layer = begin("nce", "nce", name)
    with layer_guard(layer):
        weight = new_parameter(
            [num_total_classes, input.shape[1]],
            param_attr,
            input.dtype,
            False,
            None,
            layer,
        )
        bias = new_parameter(
            [num_total_classes, 1], bias_attr, input.dtype, True, None, layer
        )
        shares = None
        if custom_dist is not None:
            shares = to_tensor(custom_dist, dtype="float32") / float(sum(custom_dist))
        cost, _, _ = _ops.nce(
            input,
            label,
            weight,
            bias,
            sample_weight,
            shares,
            num_total_classes=num_total_classes,
            num_neg_samples=10 if num_neg_samples is None else int(num_neg_samples),
            sampler=_SAMPLERS.index(sampler),
            seed=seed,
            is_sparse=is_sparse,
        )
        return cost


__all__ = _names.own(globals(), "activate", "begin", "mark_remote")
