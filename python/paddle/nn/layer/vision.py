# SPDX-License-Identifier: Apache-2.0
"""Layers that rearrange, pad and enlarge."""

import numbers

import paddle

from ... import _names
from .. import functional as F
from .layers import Layer


class Flatten(Layer):
    """Makes the dimensions from start_axis to stop_axis one."""

    def __init__(self, start_axis=1, stop_axis=-1):
        super().__init__()
        self.start_axis = start_axis
        self.stop_axis = stop_axis

    def forward(self, input):
        return paddle.flatten(input, self.start_axis, self.stop_axis)


class _Pad(Layer):
    """Pads with a pair of sizes for each dimension, the last one first."""

    _DIMS = 2

    def __init__(self, padding, mode, value, data_format):
        super().__init__()
        if isinstance(padding, numbers.Integral):
            padding = [int(padding)] * (2 * self._DIMS)
        self._pad = padding
        self._mode = mode
        self._fill = value
        self._data_format = data_format

    def forward(self, x):
        return F.pad(
            x,
            pad=self._pad,
            mode=self._mode,
            value=self._fill,
            data_format=self._data_format,
        )

    def extra_repr(self):
        return (
            f"padding={self._pad}, mode={self._mode}, value={self._fill}, "
            f"data_format={self._data_format}"
        )


class Pad1D(_Pad):
    """Pads [N, C, L] by [left, right]."""

    _DIMS = 1

    def __init__(
        self, padding, mode="constant", value=0.0, data_format="NCL", name=None
    ):
        super().__init__(padding, mode, value, data_format)


class Pad2D(_Pad):
    """Pads an image by [left, right, top, bottom]."""

    def __init__(
        self, padding, mode="constant", value=0.0, data_format="NCHW", name=None
    ):
        super().__init__(padding, mode, value, data_format)


class ZeroPad2D(_Pad):
    """Pads an image with zeros by [left, right, top, bottom]."""

    def __init__(self, padding, data_format="NCHW", name=None):
        super().__init__(padding, "constant", 0.0, data_format)


class Pad3D(_Pad):
    """Pads a volume by [left, right, top, bottom, front, back]."""

    _DIMS = 3

    def __init__(
        self, padding, mode="constant", value=0.0, data_format="NCDHW", name=None
    ):
        super().__init__(padding, mode, value, data_format)


class Upsample(Layer):
    """Enlarges or shrinks to `size`, or by `scale_factor`."""

    def __init__(
        self,
        size=None,
        scale_factor=None,
        mode="nearest",
        align_corners=False,
        align_mode=0,
        data_format="NCHW",
        name=None,
    ):
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode.lower()
        self.align_corners = align_corners
        self.align_mode = align_mode
        self.data_format = data_format

    def forward(self, x):
        return F.interpolate(
            x,
            size=self.size,
            scale_factor=self.scale_factor,
            mode=self.mode,
            align_corners=self.align_corners,
            align_mode=self.align_mode,
            data_format=self.data_format,
        )

    def extra_repr(self):
        if self.scale_factor is not None:
            size = f"scale_factor={self.scale_factor}"
        else:
            size = f"size={self.size}"
        return (
            f"{size}, mode={self.mode}, align_corners={self.align_corners}, "
            f"align_mode={self.align_mode}, data_format={self.data_format}"
        )


class UpsamplingNearest2D(Upsample):
    """Enlarges an image by repeating pixels."""

    def __init__(self, size=None, scale_factor=None, data_format="NCHW", name=None):
        super().__init__(size, scale_factor, "nearest", False, 0, data_format)


class UpsamplingBilinear2D(Upsample):
    """Enlarges an image bilinearly, corners on corners."""

    def __init__(self, size=None, scale_factor=None, data_format="NCHW", name=None):
        super().__init__(size, scale_factor, "bilinear", True, 0, data_format)


class PixelShuffle(Layer):
    """Turns r * r channels into an image r times as large."""

    def __init__(self, upscale_factor, data_format="NCHW", name=None):
        super().__init__()
        if not isinstance(upscale_factor, int):
            raise TypeError("PixelShuffle: upscale_factor must be an integer")
        if data_format not in ("NCHW", "NHWC"):
            raise ValueError(
                f"PixelShuffle: data_format must be NCHW or NHWC, not {data_format!r}"
            )
        self._upscale_factor = upscale_factor
        self._data_format = data_format

    def forward(self, x):
        return F.pixel_shuffle(x, self._upscale_factor, self._data_format)

    def extra_repr(self):
        text = f"upscale_factor={self._upscale_factor}"
        if self._data_format != "NCHW":
            text += f", data_format={self._data_format}"
        return text


class Unfold(Layer):
    """The windows of an image as columns.

    The order of the arguments is Paddle's, which is not that of `F.unfold`.
    """

    def __init__(self, kernel_sizes, dilations=1, paddings=0, strides=1, name=None):
        super().__init__()
        self.kernel_sizes = kernel_sizes
        self.strides = strides
        self.paddings = paddings
        self.dilations = dilations

    def forward(self, input):
        return F.unfold(
            input, self.kernel_sizes, self.strides, self.paddings, self.dilations
        )

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_sizes}, dilation={self.dilations}, "
            f"padding={self.paddings}, stride={self.strides}"
        )


__all__ = _names.own(globals())
