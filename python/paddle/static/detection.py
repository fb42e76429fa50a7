# SPDX-License-Identifier: Apache-2.0
"""Layers of models that find objects in images."""

from .._core import Variable
from ..framework.parameter import new_parameter
from ..nn.functional import window
from ..tensor.manipulation import concat, reshape, transpose
from .layers import begin, conv2d
from .program import layer_guard

__all__ = ["deform_conv2d", "multi_box_head"]


def deform_conv2d(
    x,
    offset,
    mask,
    num_filters,
    filter_size,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    deformable_groups=1,
    im2col_step=1,
    weight_attr=None,
    bias_attr=None,
    name=None,
):
    """A convolution with `num_filters` new filters that takes each number of a window
    from somewhere near its place. See paddle.vision.ops.deform_conv2d.

    mask: None for the first version of such convolutions, which has none.
    im2col_step: without effect; images are taken one by one.
    """
    from ..vision import ops

    layer = begin("deform_conv2d", "deformable_conv", name)
    if not isinstance(x, Variable):
        raise TypeError(
            f"deform_conv2d(): x must be a Variable, but got {type(x).__name__}"
        )
    channels = x.shape[1] if len(x.shape) == 4 else -1
    if channels < 1 or channels % groups != 0 or num_filters % groups != 0:
        raise ValueError(
            f"deform_conv2d(): x of shape {x.shape} must be [N, C, H, W] with a known C "
            f"that, like num_filters {num_filters}, is a multiple of groups {groups}"
        )
    kernel = window.numbers(filter_size, 2, "deform_conv2d", "filter_size")
    with layer_guard(layer):
        weight = new_parameter(
            [num_filters, channels // groups, *kernel],
            weight_attr,
            x.dtype,
            False,
            ops.filter_initializer(kernel, channels),
            layer,
        )
        bias = new_parameter([num_filters], bias_attr, x.dtype, True, None, layer)
        return ops.deform_conv2d(
            x,
            offset,
            weight,
            bias,
            stride,
            padding,
            dilation,
            deformable_groups,
            groups,
            mask,
        )


def _sizes(count, base_size, min_ratio, max_ratio):
    """(min_sizes, max_sizes) of `count` maps, the first the finest: the sizes of the
    others grow evenly from min_ratio to max_ratio percent of the image."""
    step = (max_ratio - min_ratio) // (count - 2)
    if step < 1:
        raise ValueError(
            f"multi_box_head(): from min_ratio {min_ratio} to max_ratio {max_ratio} are "
            f"too few percent for {count} inputs"
        )
    least, most = [base_size * 0.1], [base_size * 0.2]
    for ratio in range(min_ratio, max_ratio + 1, step):
        least.append(base_size * ratio / 100.0)
        most.append(base_size * (ratio + step) / 100.0)
    return least, most


def _one_each(values, count, what):
    """`values`, a list with something for each input."""
    if not isinstance(values, (list, tuple)) or len(values) < count:
        raise ValueError(
            f"multi_box_head(): {what} must be a list with an item for each of the "
            f"{count} inputs, but is {values!r}"
        )
    return values


def multi_box_head(
    inputs,
    image,
    base_size,
    num_classes,
    aspect_ratios,
    min_ratio=None,
    max_ratio=None,
    min_sizes=None,
    max_sizes=None,
    steps=None,
    step_w=None,
    step_h=None,
    offset=0.5,
    variance=(0.1, 0.1, 0.2, 0.2),
    flip=True,
    clip=False,
    kernel_size=1,
    pad=0,
    stride=1,
    name=None,
    min_max_aspect_ratios_order=False,
):
    """The head of SSD: boxes around the places of all `inputs`, and convolutions that
    say of each box how it lies to an object and of which class that is.

    Gives (loc [N, boxes, 4], conf [N, boxes, num_classes], boxes [boxes, 4], variances
    [boxes, 4]), inputs one after the other. See paddle.vision.ops.prior_box.

    min_ratio, max_ratio: the sizes of boxes, in percent of `base_size`, from the second
        input to the last, for three inputs or more; or min_sizes and max_sizes, a size or
        a list for each input.
    aspect_ratios: for each input its ratios. steps, step_w, step_h: as well.
    """
    from ..vision.ops import prior_box

    begin("multi_box_head", "multi_box_head", name)
    if not isinstance(inputs, (list, tuple)) or not inputs:
        raise TypeError("multi_box_head(): inputs must be a list of Variables")
    count = len(inputs)
    if min_sizes is None and max_sizes is None and count > 2:
        if min_ratio is None or max_ratio is None:
            raise ValueError(
                "multi_box_head(): min_ratio and max_ratio, or min_sizes and max_sizes, "
                "must say how large boxes are"
            )
        min_sizes, max_sizes = _sizes(count, base_size, min_ratio, max_ratio)
    min_sizes = _one_each(min_sizes, count, "min_sizes")
    max_sizes = _one_each(max_sizes, count, "max_sizes")
    aspect_ratios = _one_each(aspect_ratios, count, "aspect_ratios")
    step_w, step_h = (steps, steps) if steps else (step_w, step_h)
    step_w = _one_each(step_w, count, "step_w") if step_w else [0.0] * count
    step_h = _one_each(step_h, count, "step_h") if step_h else [0.0] * count
    found = []
    for i, grid in enumerate(inputs):
        boxes, variances = prior_box(
            grid,
            image,
            min_sizes[i],
            max_sizes[i],
            aspect_ratios[i],
            variance,
            flip,
            clip,
            [step_w[i], step_h[i]],
            offset,
            min_max_aspect_ratios_order,
        )
        per_place = boxes.shape[2]
        parts = []
        for width in (4, num_classes):
            scores = conv2d(
                grid, per_place * width, kernel_size, stride=stride, padding=pad
            )
            scores = transpose(scores, [0, 2, 3, 1])
            parts.append(reshape(scores, [0, -1, width]))
        found.append((*parts, reshape(boxes, [-1, 4]), reshape(variances, [-1, 4])))
    loc, conf, boxes, variances = (
        part[0] if count == 1 else concat(list(part), axis)
        for part, axis in zip(zip(*found), (1, 1, 0, 0))
    )
    boxes.stop_gradient = variances.stop_gradient = True
    return loc, conf, boxes, variances
