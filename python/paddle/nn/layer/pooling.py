# SPDX-License-Identifier: Apache-2.0
"""Layers that take the largest or the average of each window."""

from ... import _names
from .. import functional as F
from .layers import Layer


class _Pool(Layer):
    """A window that slides."""

    def __init__(self, kernel_size, stride, padding, ceil_mode):
        super().__init__()
        self.ksize = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode

    def extra_repr(self):
        return f"kernel_size={self.ksize}, stride={self.stride}, padding={self.padding}"


class AvgPool1D(_Pool):
    """The average of each window of [N, C, L]. With `exclusive`, padding does not
    count."""

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        exclusive=True,
        ceil_mode=False,
        name=None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.exclusive = exclusive

    def forward(self, x):
        return F.avg_pool1d(
            x,
            self.ksize,
            stride=self.stride,
            padding=self.padding,
            exclusive=self.exclusive,
            ceil_mode=self.ceil_mode,
        )


class AvgPool2D(_Pool):
    """The average of each window of an image. With `exclusive`, padding does not
    count; `divisor_override` is what sums are divided by instead."""

    _FUNCTION = "avg_pool2d"

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        exclusive=True,
        divisor_override=None,
        data_format="NCHW",
        name=None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.exclusive = exclusive
        self.divisor = divisor_override
        self.data_format = data_format

    def forward(self, x):
        return getattr(F, self._FUNCTION)(
            x,
            self.ksize,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            exclusive=self.exclusive,
            divisor_override=self.divisor,
            data_format=self.data_format,
        )


class AvgPool3D(AvgPool2D):
    """The average of each window of a volume; see AvgPool2D."""

    _FUNCTION = "avg_pool3d"

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        exclusive=True,
        divisor_override=None,
        data_format="NCDHW",
        name=None,
    ):
        super().__init__(
            kernel_size,
            stride,
            padding,
            ceil_mode,
            exclusive,
            divisor_override,
            data_format,
        )


class MaxPool1D(_Pool):
    """The largest of each window of [N, C, L]; with `return_mask` also where it was."""

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        return_mask=False,
        ceil_mode=False,
        name=None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.return_mask = return_mask

    def forward(self, input):
        return F.max_pool1d(
            input,
            self.ksize,
            stride=self.stride,
            padding=self.padding,
            return_mask=self.return_mask,
            ceil_mode=self.ceil_mode,
        )


class MaxPool2D(_Pool):
    """The largest of each window of an image; with `return_mask` also where it was."""

    _FUNCTION = "max_pool2d"

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        return_mask=False,
        ceil_mode=False,
        data_format="NCHW",
        name=None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.return_mask = return_mask
        self.data_format = data_format

    def forward(self, x):
        return getattr(F, self._FUNCTION)(
            x,
            self.ksize,
            stride=self.stride,
            padding=self.padding,
            return_mask=self.return_mask,
            ceil_mode=self.ceil_mode,
            data_format=self.data_format,
        )


class MaxPool3D(MaxPool2D):
    """The largest of each window of a volume; see MaxPool2D."""

    _FUNCTION = "max_pool3d"

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        return_mask=False,
        ceil_mode=False,
        data_format="NCDHW",
        name=None,
    ):
        super().__init__(
            kernel_size, stride, padding, return_mask, ceil_mode, data_format
        )


class _Adaptive(Layer):
    """Windows chosen so that the output has a given size. None keeps a dimension."""

    def __init__(self, output_size):
        super().__init__()
        self._output_size = output_size

    def extra_repr(self):
        return f"output_size={self._output_size}"


class AdaptiveAvgPool1D(_Adaptive):
    """Averages [N, C, L] down to a given length."""

    def __init__(self, output_size, name=None):
        super().__init__(output_size)

    def forward(self, input):
        return F.adaptive_avg_pool1d(input, self._output_size)


class AdaptiveAvgPool2D(_Adaptive):
    """Averages an image down to a given size."""

    def __init__(self, output_size, data_format="NCHW", name=None):
        super().__init__(output_size)
        self._data_format = data_format

    def forward(self, x):
        return F.adaptive_avg_pool2d(
            x, output_size=self._output_size, data_format=self._data_format
        )


class AdaptiveAvgPool3D(_Adaptive):
    """Averages a volume down to a given size."""

    def __init__(self, output_size, data_format="NCDHW", name=None):
        super().__init__(output_size)
        self._data_format = data_format

    def forward(self, x):
        return F.adaptive_avg_pool3d(
            x, output_size=self._output_size, data_format=self._data_format
        )


class _AdaptiveMax(_Adaptive):
    _FUNCTION = "adaptive_max_pool2d"

    def __init__(self, output_size, return_mask=False, name=None):
        super().__init__(output_size)
        self._return_mask = return_mask

    def forward(self, x):
        return getattr(F, self._FUNCTION)(
            x, output_size=self._output_size, return_mask=self._return_mask
        )

    def extra_repr(self):
        return f"output_size={self._output_size}, return_mask={self._return_mask}"


class AdaptiveMaxPool1D(_AdaptiveMax):
    """The largest of each window of [N, C, L], down to a given length."""

    _FUNCTION = "adaptive_max_pool1d"


class AdaptiveMaxPool2D(_AdaptiveMax):
    """The largest of each window of an image, down to a given size."""


class AdaptiveMaxPool3D(_AdaptiveMax):
    """The largest of each window of a volume, down to a given size."""

    _FUNCTION = "adaptive_max_pool3d"


__all__ = _names.own(globals())
