# SPDX-License-Identifier: Apache-2.0
"""Convolutions in one, two and three dimensions, and their transposes."""

import math

from ... import _names
from .. import functional as F
from ..initializer import Normal
from .layers import Layer

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _per_dimension(value, n, what, least=1):
    """`value` as n integers, none below `least`."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * n
    if len(values) != n or not all(hasattr(v, "__index__") for v in values):
        raise ValueError(f"{what} must be an integer or {n} of them, not {value!r}")
    if min(values) < least:
        raise ValueError(f"{what} must be at least {least}, but is {value!r}")
    return [int(v) for v in values]


class _Conv(Layer):
    """What all six share: the weight, the bias and the settings."""

    _DIMS = 2
    _TRANSPOSED = False

    def _set_up(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        groups,
        weight_attr,
        bias_attr,
        data_format,
    ):
        name = type(self).__name__
        if weight_attr is False:
            raise ValueError(f"{name}: weight_attr must not be False")
        for what, value in (
            ("in_channels", in_channels),
            ("out_channels", out_channels),
            ("groups", groups),
        ):
            if not hasattr(value, "__index__") or value <= 0:
                raise ValueError(f"{name}: {what} must be positive, not {value!r}")
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: in_channels {in_channels} and out_channels {out_channels} "
                f"must be multiples of groups {groups}"
            )
        n = self._DIMS
        self._in_channels = in_channels
        self._out_channels = out_channels
        self._kernel_size = _per_dimension(kernel_size, n, f"{name}: kernel_size")
        self._stride = _per_dimension(stride, n, f"{name}: stride")
        self._dilation = _per_dimension(dilation, n, f"{name}: dilation")
        self._padding = padding
        self._padding_mode = "zeros"
        self._output_padding = 0
        self._groups = groups
        self._data_format = data_format
        field = math.prod(self._kernel_size)
        if self._TRANSPOSED:
            shape = [in_channels, out_channels // groups]
            initializer = None
        else:
            shape = [out_channels, in_channels // groups]
            initializer = Normal(0.0, math.sqrt(2.0 / (field * in_channels)))
        self.weight = self.create_parameter(
            shape + self._kernel_size, weight_attr, default_initializer=initializer
        )
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def extra_repr(self):
        ones = [1] * self._DIMS
        parts = [
            f"{self._in_channels}, {self._out_channels}",
            f"kernel_size={self._kernel_size}",
        ]
        if self._stride != ones:
            parts.append(f"stride={self._stride}")
        if self._padding != 0:
            parts.append(f"padding={self._padding}")
        if self._padding_mode != "zeros":
            parts.append(f"padding_mode={self._padding_mode}")
        if self._output_padding != 0:
            parts.append(f"output_padding={self._output_padding}")
        if self._dilation != ones:
            parts.append(f"dilation={self._dilation}")
        if self._groups != 1:
            parts.append(f"groups={self._groups}")
        parts.append(f"data_format={self._data_format}")
        return ", ".join(parts)


class _Forward(_Conv):
    """A convolution. Other padding modes than zeros pad first."""

    _FUNCTION = "conv2d"

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        padding_mode="zeros",
        weight_attr=None,
        bias_attr=None,
        data_format="NCHW",
    ):
        super().__init__()
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"{type(self).__name__}: padding_mode must be one of "
                f"{', '.join(_PADDING_MODES)}, but got {padding_mode!r}"
            )
        self._set_up(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
        )
        self._padding_mode = padding_mode
        if padding_mode != "zeros":
            self._edges = self._edges_of(padding)

    def _edges_of(self, padding):
        """What F.pad takes: a pair for each dimension, the last one first."""
        if padding == "valid":
            padding = 0
        if padding == "same":
            totals = [d * (k - 1) for d, k in zip(self._dilation, self._kernel_size)]
            pairs = [(total // 2, total - total // 2) for total in totals]
        else:
            sizes = _per_dimension(
                padding, self._DIMS, f"{type(self).__name__}: padding", least=0
            )
            pairs = [(size, size) for size in sizes]
        return [size for pair in reversed(pairs) for size in pair]

    def forward(self, x):
        padding = self._padding
        if self._padding_mode != "zeros":
            x = F.pad(
                x, self._edges, mode=self._padding_mode, data_format=self._data_format
            )
            padding = 0
        return getattr(F, self._FUNCTION)(
            x,
            self.weight,
            self.bias,
            self._stride,
            padding,
            self._dilation,
            self._groups,
            self._data_format,
        )


class Conv1D(_Forward):
    """Convolution over a sequence; the weight is [out, in / groups, K]."""

    _DIMS = 1
    _FUNCTION = "conv1d"

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        padding_mode="zeros",
        weight_attr=None,
        bias_attr=None,
        data_format="NCL",
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode,
            weight_attr,
            bias_attr,
            data_format,
        )


class Conv2D(_Forward):
    """Convolution over an image; the weight is [out, in / groups, KH, KW]."""


class Conv3D(_Forward):
    """Convolution over a volume; the weight is [out, in / groups, KD, KH, KW]."""

    _DIMS = 3
    _FUNCTION = "conv3d"

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        padding_mode="zeros",
        weight_attr=None,
        bias_attr=None,
        data_format="NCDHW",
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode,
            weight_attr,
            bias_attr,
            data_format,
        )


class _Transposed(_Conv):
    """The gradient of a convolution, as a layer."""

    _TRANSPOSED = True
    _FUNCTION = "conv2d_transpose"

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        dilation=1,
        groups=1,
        weight_attr=None,
        bias_attr=None,
        data_format="NCHW",
    ):
        super().__init__()
        self._set_up(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
        )
        self._output_padding = output_padding

    def forward(self, x, output_size=None):
        # A size asked for settles what output_padding would.
        output_padding = self._output_padding if output_size is None else 0
        return getattr(F, self._FUNCTION)(
            x,
            self.weight,
            self.bias,
            stride=self._stride,
            padding=self._padding,
            output_padding=output_padding,
            dilation=self._dilation,
            groups=self._groups,
            output_size=output_size,
            data_format=self._data_format,
        )


class Conv1DTranspose(_Transposed):
    """Transposed convolution over a sequence; the weight is [in, out / groups, K]."""

    _DIMS = 1
    _FUNCTION = "conv1d_transpose"

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        dilation=1,
        weight_attr=None,
        bias_attr=None,
        data_format="NCL",
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
        )


class Conv2DTranspose(_Transposed):
    """Transposed convolution over an image; the weight is [in, out / groups, ...]."""


class Conv3DTranspose(_Transposed):
    """Transposed convolution over a volume; the weight is [in, out / groups, ...]."""

    _DIMS = 3
    _FUNCTION = "conv3d_transpose"

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        dilation=1,
        groups=1,
        weight_attr=None,
        bias_attr=None,
        data_format="NCDHW",
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            weight_attr,
            bias_attr,
            data_format,
        )


__all__ = _names.own(globals())
