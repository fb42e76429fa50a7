# SPDX-License-Identifier: Apache-2.0
"""Padding, resizing and rearranging images and other grids."""

import math

import paddle

from ... import _names, _ops
from ..._lib.generated.nn_functional_vision import *
from . import window

_FORMATS = {
    3: ("NCL", "NLC"),
    4: ("NCHW", "NHWC"),
    5: ("NCDHW", "NDHWC"),
}


def _ints(value):
    """Python numbers from a list, a tensor, or a list with tensors in it."""
    if hasattr(value, "numpy"):
        value = value.numpy().reshape(-1).tolist()
    return [int(n.item()) if hasattr(n, "item") else int(n) for n in value]


def pad(x, pad, mode="constant", value=0.0, data_format="NCHW", name=None):
    """x with more elements around it.

    pad: a number for all sides; (before, behind) pairs for the spatial dimensions,
    the last one first ([left, right, top, bottom]); or pairs for all dimensions, the
    first one first, in mode 'constant'.
    mode: 'constant', 'reflect', 'replicate' or 'circular'.
    """
    rank = len(x.shape)
    if isinstance(pad, int):
        pad = [pad] * (2 * max(rank - 2, 1))
    pairs = _ints(pad)
    if mode == "constant" and len(pairs) == 2 * rank:
        return _ops.pad3d(x, pairs, mode, value)
    if rank not in _FORMATS:
        raise ValueError(
            f"pad: x must have 3 to 5 dimensions, or pad {2 * rank} numbers, but x "
            f"has shape {list(x.shape)}"
        )
    if data_format not in _FORMATS[rank]:
        # The default names images; for other ranks it means channels first or last.
        if data_format not in ("NCHW", "NHWC"):
            raise ValueError(
                f"pad: data_format must be one of {_FORMATS[rank]}, but is "
                f"'{data_format}'"
            )
    if len(pairs) != 2 * (rank - 2):
        raise ValueError(
            f"pad: {len(pairs)} numbers do not fit the shape {list(x.shape)}; it "
            f"takes {2 * (rank - 2)}"
        )
    spatial = []
    for i in range(len(pairs) - 2, -1, -2):
        spatial += pairs[i : i + 2]
    if data_format[-1] == "C":
        full = [0, 0] + spatial + [0, 0]
    else:
        full = [0, 0, 0, 0] + spatial
    return _ops.pad3d(x, full, mode, value)


def zeropad2d(x, padding, data_format="NCHW", name=None):
    """Zeros around images: [left, right, top, bottom]."""
    return pad(x, padding, "constant", 0.0, data_format)


_MODES = {
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "trilinear": (5,),
    "nearest": (3, 4, 5),
    "area": (3, 4, 5),
}


def interpolate(
    x,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=False,
    align_mode=0,
    data_format="NCHW",
    name=None,
):
    """x with another number of pixels.

    size, scale_factor: give one; a number, or one per spatial dimension.
    mode: nearest, linear, bilinear, bicubic, trilinear, or area.
    align_corners: the corners of both images meet; otherwise pixels are areas, or,
    with align_mode 1 and linear modes, points at i * scale.
    """
    rank = len(x.shape)
    if mode not in _MODES:
        raise ValueError(
            f"interpolate: mode must be one of {sorted(_MODES)}, but is '{mode}'"
        )
    if rank not in _MODES[mode]:
        raise ValueError(
            f"interpolate: mode '{mode}' does not fit x of shape {list(x.shape)}"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give one of size and scale_factor")
    if align_corners and mode in ("nearest", "area"):
        raise ValueError(
            "interpolate: align_corners has a meaning for linear, bilinear, bicubic "
            f"and trilinear, not for {mode}"
        )
    if align_mode not in (0, 1):
        raise ValueError(f"interpolate: align_mode must be 0 or 1, not {align_mode}")
    last = data_format[-1] == "C"
    spatial = x.shape[1:-1] if last else x.shape[2:]
    scale = []
    if size is not None:
        out = _ints(size if hasattr(size, "__len__") else [size])
    else:
        scale = scale_factor
        if hasattr(scale, "numpy"):
            scale = scale.numpy().reshape(-1).tolist()
        elif not isinstance(scale, (list, tuple)):
            scale = [scale]
        scale = [float(s) for s in scale]
        if len(scale) == 1:
            scale = scale * (rank - 2)
        if any(s <= 0 for s in scale):
            raise ValueError(f"interpolate: scale_factor {scale} must be positive")
        out = [math.floor(n * s) for n, s in zip(spatial, scale)]
    if len(out) == 1:
        out = out * (rank - 2)
    if mode == "area":
        pool = getattr(_ops, f"adaptive_avg_pool{rank - 2}d")
        return pool(x, out, data_format)
    # Cubic resizing knows areas only.
    align_mode = 0 if mode == "bicubic" else align_mode
    return _ops.interpolate(x, out, mode, align_corners, align_mode, scale, data_format)


def upsample(
    x,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=False,
    align_mode=0,
    data_format="NCHW",
    name=None,
):
    """interpolate()."""
    return interpolate(
        x, size, scale_factor, mode, align_corners, align_mode, data_format
    )


def unfold(x, kernel_sizes, strides=1, paddings=0, dilations=1, name=None):
    """The patches that a window sees on [N, C, H, W], as the columns of
    [N, C * kernel elements, places].

    paddings: p, [ph, pw] or [top, left, bottom, right].
    """
    function = "unfold"
    if isinstance(paddings, (list, tuple)) and len(paddings) == 4:
        top, left, bottom, right = paddings
        paddings = [top, bottom, left, right]
    else:
        paddings = window.numbers(paddings, 2, function, "paddings")
    return _ops.unfold(
        x,
        window.numbers(kernel_sizes, 2, function, "kernel_sizes"),
        window.numbers(strides, 2, function, "strides"),
        paddings,
        window.numbers(dilations, 2, function, "dilations"),
    )


def affine_grid(theta, out_shape, align_corners=True, name=None):
    """The grid for grid_sample() that the matrices theta [N, 2, 3] (or [N, 3, 4])
    make of an output of shape out_shape [N, C, H, W]."""
    return _ops.affine_grid(theta, _ints(out_shape), align_corners)


def temporal_shift(x, seg_num, shift_ratio=0.25, name=None, data_format="NCHW"):
    """Moves a share of the channels one frame back and a share one frame forth;
    x [N * seg_num, C, H, W] holds seg_num frames of each video."""
    if data_format not in ("NCHW", "NHWC"):
        raise ValueError(
            f"temporal_shift: data_format must be 'NCHW' or 'NHWC', not '{data_format}'"
        )
    if data_format == "NHWC":
        x = paddle.transpose(x, [0, 3, 1, 2])
    total, channels, height, width = x.shape
    if total != -1 and total % seg_num != 0:
        raise ValueError(
            f"temporal_shift: seg_num {seg_num} must divide the batch {total}"
        )
    video = paddle.reshape(x, [-1, seg_num, channels, height, width])
    one, two = int(channels * shift_ratio), int(channels * 2 * shift_ratio)
    none = [0, 0, 0, 0, 0, 0]
    back = _ops.pad3d(video[:, :-1, :one], [0, 0, 1, 0] + none)
    forth = _ops.pad3d(video[:, 1:, one:two], [0, 0, 0, 1] + none)
    out = paddle.concat([back, forth, video[:, :, two:]], 2)
    out = paddle.reshape(out, [-1, channels, height, width])
    return paddle.transpose(out, [0, 2, 3, 1]) if data_format == "NHWC" else out


__all__ = _names.own(globals())
