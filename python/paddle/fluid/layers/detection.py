# SPDX-License-Identifier: Apache-2.0
"""Layers of models that find objects in images, in programs."""

from ... import _ops
from ...static import detection as _detection
from ...static.detection import multi_box_head

__all__ = ["deformable_conv", "density_prior_box", "multi_box_head", "prior_box"]


def deformable_conv(
    input,
    offset,
    mask,
    num_filters,
    filter_size,
    stride=1,
    padding=0,
    dilation=1,
    groups=None,
    deformable_groups=None,
    im2col_step=None,
    param_attr=None,
    bias_attr=None,
    modulated=True,
    name=None,
):
    """See paddle.static.nn.deform_conv2d; without `modulated` there is no mask."""
    if modulated and mask is None:
        raise ValueError("deformable_conv: a modulated convolution needs a mask")
    return _detection.deform_conv2d(
        input,
        offset,
        mask if modulated else None,
        num_filters,
        filter_size,
        stride,
        padding,
        dilation,
        groups or 1,
        deformable_groups or 1,
        im2col_step or 1,
        param_attr,
        bias_attr,
        name,
    )


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
    name=None,
    min_max_aspect_ratios_order=False,
):
    """See paddle.vision.ops.prior_box."""
    from ...vision import ops as _vision

    return _vision.prior_box(
        input,
        image,
        min_sizes,
        max_sizes,
        aspect_ratios,
        variance,
        flip,
        clip,
        steps,
        offset,
        min_max_aspect_ratios_order,
    )


def density_prior_box(
    input,
    image,
    densities=None,
    fixed_sizes=None,
    fixed_ratios=None,
    variance=(0.1, 0.1, 0.2, 0.2),
    clip=False,
    steps=(0.0, 0.0),
    offset=0.5,
    flatten_to_2d=False,
    name=None,
):
    """As prior_box, of boxes of fixed sizes: densities[i] by densities[i] of them in each
    place for fixed_sizes[i] and each of fixed_ratios, evenly apart in whole pixels,
    and clipped to the image also without `clip`."""
    from ...vision import ops as _vision

    return _ops.density_prior_box(
        input,
        image,
        densities=[int(n) for n in densities or ()],
        fixed_sizes=_vision.floats(fixed_sizes or ()),
        fixed_ratios=_vision.floats(fixed_ratios or ()),
        variances=_vision.floats(variance),
        clip=clip,
        offset=offset,
        flatten_to_2d=flatten_to_2d,
        **_vision.two_steps("density_prior_box", steps),
    )
