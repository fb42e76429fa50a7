# SPDX-License-Identifier: Apache-2.0
"""Convolutions over one, two and three spatial dimensions, and their transposes."""

from ... import _names, _ops
from . import window


def _conv(rank, x, weight, bias, stride, padding, dilation, groups, data_format):
    function = f"conv{rank}d"
    last = window.is_channels_last(data_format, rank, function)
    pads, algorithm = window.padding(padding, rank, last, function)
    return getattr(_ops, function)(
        x,
        weight,
        bias,
        window.numbers(stride, rank, function, "stride"),
        pads,
        window.numbers(dilation, rank, function, "dilation"),
        groups,
        algorithm,
        data_format,
    )


def conv1d(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    data_format="NCL",
    name=None,
):
    """[N, C, L] with filters [out, C / groups, K]. See conv2d."""
    return _conv(1, x, weight, bias, stride, padding, dilation, groups, data_format)


def conv2d(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    data_format="NCHW",
    name=None,
):
    """[N, C, H, W] with filters [out, C / groups, KH, KW].

    padding: 'SAME', 'VALID', p, [p], [ph, pw], [top, bottom, left, right], or pairs
    for all four dimensions.
    """
    return _conv(2, x, weight, bias, stride, padding, dilation, groups, data_format)


def conv3d(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    data_format="NCDHW",
    name=None,
):
    """[N, C, D, H, W] with filters [out, C / groups, KD, KH, KW]. See conv2d."""
    return _conv(3, x, weight, bias, stride, padding, dilation, groups, data_format)


def _conv_transpose(
    rank,
    x,
    weight,
    bias,
    stride,
    padding,
    output_padding,
    dilation,
    groups,
    output_size,
    data_format,
):
    function = f"conv{rank}d_transpose"
    last = window.is_channels_last(data_format, rank, function)
    pads, algorithm = window.padding(padding, rank, last, function)
    strides = window.numbers(stride, rank, function, "stride")
    dilations = window.numbers(dilation, rank, function, "dilation")
    more = window.numbers(output_padding, rank, function, "output_padding")
    if output_size is not None:
        if any(more):
            raise ValueError(
                f"{function}: give output_padding or output_size, not both"
            )
        if algorithm == "SAME":
            raise ValueError(f"{function}: output_size needs padding in numbers")
        size = window.numbers(output_size, rank, function, "output_size")
        spatial = x.shape[1:-1] if last else x.shape[2:]
        pairs = pads if len(pads) == 2 * rank else [p for p in pads for _ in (0, 1)]
        for i in range(rank):
            least = (
                (spatial[i] - 1) * strides[i]
                - pairs[2 * i]
                - pairs[2 * i + 1]
                + dilations[i] * (weight.shape[i + 2] - 1)
                + 1
            )
            more[i] = size[i] - least
            if not 0 <= more[i] < strides[i]:
                raise ValueError(
                    f"{function}: output_size {size[i]} must lie in [{least}, "
                    f"{least + strides[i]})"
                )
    return getattr(_ops, function)(
        x,
        weight,
        bias,
        strides,
        pads,
        dilations,
        groups,
        algorithm,
        data_format,
        more,
    )


def conv1d_transpose(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    groups=1,
    dilation=1,
    output_size=None,
    data_format="NCL",
    name=None,
):
    """[N, C, L] with filters [C, out / groups, K]. See conv2d_transpose."""
    return _conv_transpose(
        1,
        x,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        output_size,
        data_format,
    )


def conv2d_transpose(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    dilation=1,
    groups=1,
    output_size=None,
    data_format="NCHW",
    name=None,
):
    """[N, C, H, W] with filters [C, out / groups, KH, KW]: the gradient of conv2d.

    output_size: the wanted size, where stride leaves a choice; else output_padding
    says how much longer the result gets.
    """
    return _conv_transpose(
        2,
        x,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        output_size,
        data_format,
    )


def conv3d_transpose(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    groups=1,
    dilation=1,
    output_size=None,
    data_format="NCDHW",
    name=None,
):
    """[N, C, D, H, W] with filters [C, out / groups, KD, KH, KW]. See
    conv2d_transpose."""
    return _conv_transpose(
        3,
        x,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        output_size,
        data_format,
    )


__all__ = _names.own(globals())
