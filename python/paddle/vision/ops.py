# SPDX-License-Identifier: Apache-2.0
"""Functions and layers of models that find objects in images."""

import math

from .. import _ops
from ..nn import Layer
from ..nn.functional import window
from ..nn.initializer import Normal

__all__ = ["DeformConv2D", "deform_conv2d", "prior_box"]


def deform_conv2d(
    x,
    offset,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    deformable_groups=1,
    groups=1,
    mask=None,
    name=None,
):
    """A convolution of x [N, C, H, W] that takes each number of a window from somewhere
    near its place, between pixels by bilinear weights.

    offset: how far down and to the right, [N, 2 * deformable_groups * kh * kw, Ho, Wo];
        channels in `deformable_groups` parts have offsets of their own.
    mask: a factor for each number, [N, deformable_groups * kh * kw, Ho, Wo], or None.
    """
    function = "deform_conv2d"
    attrs = {
        "strides": window.numbers(stride, 2, function, "stride"),
        "paddings": window.numbers(padding, 2, function, "padding"),
        "dilations": window.numbers(dilation, 2, function, "dilation"),
        "groups": groups,
        "deformable_groups": deformable_groups,
    }
    if mask is None:
        out = _ops.deformable_conv_v1(x, offset, weight, **attrs)
    else:
        out = _ops.deformable_conv(x, offset, weight, mask, **attrs)
    return out if bias is None else _ops.elementwise_add(out, bias, axis=1)


class DeformConv2D(Layer):
    """deform_conv2d() with a weight and a bias of its own: layer(x, offset, mask=None)."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        deformable_groups=1,
        groups=1,
        weight_attr=None,
        bias_attr=None,
    ):
        super().__init__()
        if weight_attr is False:
            raise ValueError("DeformConv2D: weight_attr must not be False")
        for part in (groups, deformable_groups):
            if part < 1 or in_channels % part != 0:
                raise ValueError(
                    f"DeformConv2D: in_channels {in_channels} must be a multiple of "
                    f"groups {groups} and of deformable_groups {deformable_groups}"
                )
        if out_channels % groups != 0:
            raise ValueError(
                f"DeformConv2D: out_channels {out_channels} must be a multiple of groups "
                f"{groups}"
            )
        kernel = window.numbers(kernel_size, 2, "DeformConv2D", "kernel_size")
        self._settings = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "deformable_groups": deformable_groups,
            "groups": groups,
        }
        self.weight = self.create_parameter(
            [out_channels, in_channels // groups, *kernel],
            attr=weight_attr,
            default_initializer=filter_initializer(kernel, in_channels),
        )
        self.bias = self.create_parameter([out_channels], attr=bias_attr, is_bias=True)

    def forward(self, x, offset, mask=None):
        return deform_conv2d(
            x, offset, self.weight, self.bias, mask=mask, **self._settings
        )


def filter_initializer(kernel, channels):
    """What filters of deformable convolutions begin with."""
    return Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels)))


def floats(value):
    """One number or several as a list."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [float(n) for n in values]


def two_steps(function, steps):
    """(step_w, step_h)."""
    steps = floats(steps)
    if len(steps) != 2:
        raise ValueError(f"{function}: steps must be [step_w, step_h], but is {steps}")
    return {"step_w": steps[0], "step_h": steps[1]}


def prior_box(
    input,
    image,
    min_sizes,
    max_sizes=None,
    aspect_ratios=(1.0,),
    variance=(0.1, 0.1, 0.2, 0.2),
    flip=False,
    clip=False,
    steps=(0.0, 0.0),
    offset=0.5,
    min_max_aspect_ratios_order=False,
    name=None,
):
    """The boxes that SSD begins with, around each place of `input` [N, C, H, W]: (left,
    top, right, bottom) as parts of the size of `image`, [H, W, boxes, 4], and `variance`
    for each of them.

    A place has, for each of min_sizes, a box of each aspect ratio (1 is always one of
    them, and with `flip` their inverses) and, with max_sizes, a square between the two
    sizes; that one comes second with min_max_aspect_ratios_order.
    steps: [step_w, step_h], the distance of places in pixels; 0 divides the image evenly.
    offset: of the centre of a box in its place.
    """
    most = [] if max_sizes is None else floats(max_sizes)
    return _ops.prior_box(
        input,
        image,
        min_sizes=floats(min_sizes),
        max_sizes=[] if most and most[0] <= 0 else most,
        aspect_ratios=floats(aspect_ratios),
        variances=floats(variance),
        flip=flip,
        clip=clip,
        offset=offset,
        min_max_aspect_ratios_order=min_max_aspect_ratios_order,
        **two_steps("prior_box", steps),
    )
