# SPDX-License-Identifier: Apache-2.0
"""The largest or the average of each window."""

from ... import _names, _ops
from . import window


def _max_pool(
    rank, x, kernel_size, stride, padding, return_mask, ceil_mode, data_format
):
    function = f"max_pool{rank}d"
    last = window.is_channels_last(data_format, rank, function)
    pads, algorithm = window.padding(padding, rank, last, function)
    kernel = window.numbers(kernel_size, rank, function, "kernel_size")
    if return_mask:
        symmetric = len(pads) == rank or all(
            pads[2 * i] == pads[2 * i + 1] for i in range(rank)
        )
        if last or algorithm == "SAME" or not symmetric:
            raise ValueError(
                f"{function}: return_mask needs channels first and the same padding "
                "on both sides"
            )
    out, mask = getattr(_ops, function + "_with_index")(
        x,
        kernel,
        kernel if stride is None else window.numbers(stride, rank, function, "stride"),
        pads,
        ceil_mode,
        algorithm,
        data_format,
    )
    return (out, mask) if return_mask else out


def max_pool1d(
    x,
    kernel_size,
    stride=None,
    padding=0,
    return_mask=False,
    ceil_mode=False,
    name=None,
):
    """The largest of each window of [N, C, L]. See max_pool2d."""
    return _max_pool(1, x, kernel_size, stride, padding, return_mask, ceil_mode, "NCL")


def max_pool2d(
    x,
    kernel_size,
    stride=None,
    padding=0,
    return_mask=False,
    ceil_mode=False,
    data_format="NCHW",
    name=None,
):
    """The largest of each window of [N, C, H, W].

    return_mask: also returns where in its plane, counted row by row, each was found.
    """
    return _max_pool(
        2, x, kernel_size, stride, padding, return_mask, ceil_mode, data_format
    )


def max_pool3d(
    x,
    kernel_size,
    stride=None,
    padding=0,
    return_mask=False,
    ceil_mode=False,
    data_format="NCDHW",
    name=None,
):
    """The largest of each window of [N, C, D, H, W]. See max_pool2d."""
    return _max_pool(
        3, x, kernel_size, stride, padding, return_mask, ceil_mode, data_format
    )


def _avg_pool(
    rank, x, kernel_size, stride, padding, ceil_mode, exclusive, divisor, data_format
):
    function = f"avg_pool{rank}d"
    last = window.is_channels_last(data_format, rank, function)
    pads, algorithm = window.padding(padding, rank, last, function)
    kernel = window.numbers(kernel_size, rank, function, "kernel_size")
    return getattr(_ops, function)(
        x,
        kernel,
        kernel if stride is None else window.numbers(stride, rank, function, "stride"),
        pads,
        ceil_mode,
        algorithm,
        data_format,
        exclusive,
        divisor or 0,
    )


def avg_pool1d(
    x, kernel_size, stride=None, padding=0, exclusive=True, ceil_mode=False, name=None
):
    """The average of each window of [N, C, L]. See avg_pool2d."""
    return _avg_pool(
        1, x, kernel_size, stride, padding, ceil_mode, exclusive, None, "NCL"
    )


def avg_pool2d(
    x,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    exclusive=True,
    divisor_override=None,
    data_format="NCHW",
    name=None,
):
    """The average of each window of [N, C, H, W]. With `exclusive` padding does not
    count; divisor_override replaces the number of elements."""
    return _avg_pool(
        2,
        x,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        exclusive,
        divisor_override,
        data_format,
    )


def avg_pool3d(
    x,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    exclusive=True,
    divisor_override=None,
    data_format="NCDHW",
    name=None,
):
    """The average of each window of [N, C, D, H, W]. See avg_pool2d."""
    return _avg_pool(
        3,
        x,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        exclusive,
        divisor_override,
        data_format,
    )


def _output_size(value, rank, function):
    """One number per dimension; None keeps the input's."""
    if isinstance(value, (list, tuple)):
        if len(value) != rank:
            raise ValueError(
                f"{function}: output_size {list(value)} must have {rank} numbers"
            )
        return [-1 if n is None else int(n) for n in value]
    return [-1 if value is None else int(value)] * rank


def _adaptive_avg(rank, x, output_size, data_format):
    function = f"adaptive_avg_pool{rank}d"
    window.is_channels_last(data_format, rank, function)
    size = _output_size(output_size, rank, function)
    return getattr(_ops, function)(x, size, data_format)


def _adaptive_max(rank, x, output_size, return_mask):
    function = f"adaptive_max_pool{rank}d"
    size = _output_size(output_size, rank, function)
    out, mask = getattr(_ops, function)(x, size)
    return (out, mask) if return_mask else out


def adaptive_avg_pool1d(x, output_size, name=None):
    """Averages that divide L of [N, C, L] into output_size parts."""
    return _adaptive_avg(1, x, output_size, "NCL")


def adaptive_avg_pool2d(x, output_size, data_format="NCHW", name=None):
    """Averages that divide H and W into output_size parts; None keeps a size."""
    return _adaptive_avg(2, x, output_size, data_format)


def adaptive_avg_pool3d(x, output_size, data_format="NCDHW", name=None):
    """Averages that divide D, H and W into output_size parts; None keeps a size."""
    return _adaptive_avg(3, x, output_size, data_format)


def adaptive_max_pool1d(x, output_size, return_mask=False, name=None):
    """The largest of each of output_size parts of [N, C, L]."""
    return _adaptive_max(1, x, output_size, return_mask)


def adaptive_max_pool2d(x, output_size, return_mask=False, name=None):
    """The largest of each of output_size parts of [N, C, H, W]."""
    return _adaptive_max(2, x, output_size, return_mask)


def adaptive_max_pool3d(x, output_size, return_mask=False, name=None):
    """The largest of each of output_size parts of [N, C, D, H, W]."""
    return _adaptive_max(3, x, output_size, return_mask)


__all__ = _names.own(globals())
