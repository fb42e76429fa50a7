# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pools and other ops on grids."""

from recipes import recipe
from value import Reject

_FORMATS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def grid(d, rank, last=False):
    """(value, channels, sizes): a value [N, C, ...], or channels last."""

    def fits(value):
        return 0 < value.size <= 1500

    x = d.floats(rank=rank + 2, where=fits, fresh=0.3)
    sizes = x.shape[1:-1] if last else x.shape[2:]
    return x, x.shape[-1] if last else x.shape[1], sizes


def window(d, sizes, dilated=True):
    """(kernel, attributes) that fit: also kernels as wide as the padded input, kernels
    of one, and padding on one side."""
    kernel, strides, paddings, dilations = [], [], [], []
    for size in sizes:
        before, behind = d.one_of((0, 0), (0, 0), (1, 1), (1, 0), (2, 1))
        dilation = d.one_of(1, 1, 1, 2) if dilated else 1
        most = (size + before + behind - 1) // dilation + 1
        kernel.append(d.one_of(1, min(2, most), min(3, most), most))
        strides.append(d.one_of(1, 1, 2, 3))
        paddings += [before, behind]
        dilations.append(dilation)
    if all(paddings[i] == paddings[i + 1] for i in range(0, len(paddings), 2)):
        if d.chance(0.7):
            paddings = paddings[::2]
    attrs = {"strides": strides, "paddings": paddings}
    if dilated:
        attrs["dilations"] = dilations
    if d.chance(0.15):
        attrs["padding_algorithm"] = "SAME"
        if dilated:
            attrs["dilations"] = [1] * len(sizes)
    elif d.chance(0.15) and all(k <= n for k, n in zip(kernel, sizes)):
        attrs["padding_algorithm"] = "VALID"
        if dilated:
            attrs["dilations"] = [1] * len(sizes)
    return kernel, attrs


def _groups(d, channels):
    return d.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])


@recipe("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
def conv(d, op):
    rank = int(op[-2])
    last = d.chance(0.2)
    x, channels, sizes = grid(d, rank, last)
    kernel, attrs = window(d, sizes)
    groups = channels if op.startswith("depth") else _groups(d, channels)
    out = groups * d.one_of(1, 2)
    attrs.update(groups=groups, data_format=_FORMATS[rank][last])
    bias = d.weight((out,)) if d.chance(0.6) else None
    d.call(op, x, d.weight((out, channels // groups, *kernel)), bias, **attrs)


@recipe("conv1d_transpose", "conv2d_transpose", "conv3d_transpose")
def conv_transpose(d, op):
    rank = int(op[4])
    last = d.chance(0.2)
    x, channels, sizes = grid(d, rank, last)
    groups = _groups(d, channels)
    kernel = [d.one_of(1, 2, 3) for _ in sizes]
    strides = [d.one_of(1, 2) for _ in sizes]
    paddings = [d.one_of(0, 0, 1) if k > 2 else 0 for k in kernel]
    attrs = dict(strides=strides, paddings=paddings, groups=groups)
    if d.chance(0.3):
        attrs["output_padding"] = [s - 1 for s in strides]
    attrs["data_format"] = _FORMATS[rank][last]
    width = d.one_of(1, 2)
    bias = d.weight((groups * width,)) if d.chance(0.5) else None
    d.call(op, x, d.weight((channels, width, *kernel)), bias, **attrs)


def _pool_window(d, sizes):
    """A window that always meets an element of the input."""
    kernel, strides, paddings = [], [], []
    for size in sizes:
        k = d.one_of(1, min(2, size), min(3, size), size)
        kernel.append(k)
        strides.append(d.one_of(1, 2, k))
        paddings.append(d.rng.randrange(0, k // 2 + 1))
    return kernel, strides, paddings


@recipe(
    "max_pool1d_with_index",
    "max_pool2d_with_index",
    "max_pool3d_with_index",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "pool2d",
    "pool3d",
)
def pool(d, op):
    rank = int(op[op.index("pool") + 4])
    last = d.chance(0.2)
    x, _, sizes = grid(d, rank, last)
    kernel, strides, paddings = _pool_window(d, sizes)
    attrs = dict(ksize=kernel, strides=strides, paddings=paddings)
    attrs.update(ceil_mode=d.chance(0.3), data_format=_FORMATS[rank][last])
    outputs = 1
    if op.startswith("pool"):
        kind = d.one_of("max", "avg")
        attrs.update(pooling_type=kind)
        if d.chance(0.2):
            attrs["global_pooling"] = True
        if d.chance(0.2):
            attrs = dict(
                ksize=[d.one_of(1, n) for n in sizes],
                adaptive=True,
                pooling_type=kind,
                data_format=_FORMATS[rank][last],
            )
        arguments = ", ".join(f"{k}={v!r}" for k, v in attrs.items())
        d.line(f"ops.{op}({x.name}, {arguments})[0]")
        return
    if op.startswith("max"):
        outputs = 2
    else:
        attrs["exclusive"] = d.chance(0.5)
    d.call(op, x, outputs=outputs, **attrs)


@recipe(
    *[f"adaptive_{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)],
)
def adaptive_pool(d, op):
    rank = int(op[-2])
    x, _, sizes = grid(d, rank)
    size = [d.one_of(1, n, max(1, n - 1), n + 1) for n in sizes]
    d.call(op, x, outputs=2 if "max" in op else 1, output_size=size)


@recipe("pad")
def pad(d, op):
    x = d.floats(rank=(1, 2, 3))
    first = 1 if x.rows == "rows" and d.split else 0
    pads = [0, 0] * first + [d.one_of(0, 1, 2) for _ in range(2 * (x.rank - first))]
    d.call(op, x, paddings=pads, pad_value=d.number_in(-1, 1))


@recipe("pad2d")
def pad2d(d, op):
    x, _, sizes = grid(d, 2)
    mode = d.one_of("constant", "reflect", "edge")
    most = 2 if mode != "reflect" else min(2, min(sizes) - 1)
    pads = [d.rng.randrange(0, most + 1) for _ in range(4)]
    d.call(op, x, paddings=pads, mode=mode, pad_value=d.number_in(-1, 1))


@recipe("pad3d")
def pad3d(d, op):
    x = d.floats(rank=(3, 4, 5), where=lambda v: v.size > 0)
    mode = d.one_of("constant", "reflect", "replicate", "circular")
    pads = [0, 0, 0, 0]
    for size in x.shape[2:]:
        most = size - 1 if mode == "reflect" else size
        least = -1 if mode == "constant" and size > 2 else 0
        pads += [d.rng.randrange(least, min(2, most) + 1) for _ in range(2)]
    d.call(op, x, paddings=pads, mode=mode, value=d.number_in(-1, 1))


@recipe("interpolate")
def interpolate(d, op):
    rank = d.one_of(1, 2, 3)
    x, _, sizes = grid(d, rank)
    mode = {1: ("linear", "nearest"), 2: ("bilinear", "nearest", "bicubic")}
    mode = d.one_of(*mode.get(rank, ("trilinear", "nearest")))
    attrs = dict(out_shape=[d.one_of(1, n, n + 2, 2 * n) for n in sizes], mode=mode)
    if mode not in ("nearest", "area"):
        attrs["align_corners"] = d.chance(0.5)
        attrs["align_mode"] = d.one_of(0, 1)
    attrs["data_format"] = _FORMATS[rank][0]
    d.call(op, x, **attrs)


@recipe("unfold")
def unfold(d, op):
    x, _, sizes = grid(d, 2)
    kernel, attrs = window(d, sizes)
    attrs.pop("padding_algorithm", None)
    if len(attrs["paddings"]) == 4:
        raise Reject
    d.call(op, x, kernel_sizes=kernel, **attrs)


@recipe("pixel_shuffle")
def pixel_shuffle(d, op):
    x = d.floats(rank=4, where=lambda v: v.shape[1] % 4 == 0 and v.shape[1] > 0)
    d.call(op, x, upscale_factor=2)


@recipe("grid_sampler")
def grid_sampler(d, op):
    x, _, _ = grid(d, 2)
    points = d.floats(shape=(x.shape[0], d.one_of(1, 2), d.one_of(1, 3), 2))
    points = d.line(f"paddle.tanh({points.name}) * 1.3")
    attrs = dict(mode=d.one_of("bilinear", "nearest"), align_corners=d.chance(0.5))
    attrs["padding_mode"] = d.one_of("zeros", "border", "reflection")
    d.call(op, x, points, **attrs)


@recipe("affine_grid")
def affine_grid(d, op):
    theta = d.floats(shape=(d.batch, 2, 3), where=lambda v: v.rows != "rows")
    if theta.rows == "rows":
        raise Reject
    shape = [d.batch, 1, d.one_of(1, 2, 3), d.one_of(2, 3)]
    d.call(op, theta, output_shape=shape, align_corners=d.chance(0.5))


@recipe("deformable_conv", "deformable_conv_v1")
def deformable_conv(d, op):
    x, channels, sizes = grid(d, 2)
    kernel = [min(2, n) for n in sizes]
    places = [n - k + 1 for n, k in zip(sizes, kernel)]
    field = kernel[0] * kernel[1]
    if x.shape[0] != d.batch:
        raise Reject
    offset = d.floats(shape=(x.shape[0], 2 * field, *places))
    offset = d.line(f"paddle.tanh({offset.name}) * 0.4 + 0.05")
    weight = d.weight((d.one_of(1, 2), channels, *kernel))
    inputs = [x, offset, weight]
    if op == "deformable_conv":
        inputs.append(d.probability(d.floats(shape=(x.shape[0], field, *places))))
    d.call(op, *inputs)


@recipe("maxout")
def maxout(d, op):
    x = d.floats(rank=4, where=lambda v: v.shape[1] % 2 == 0 and v.shape[1] > 0)
    d.call(op, x, groups=2, axis=1)


@recipe("prior_box", "density_prior_box")
def boxes(d, op):
    x, _, _ = grid(d, 2)
    image, _, _ = grid(d, 2)
    if op == "prior_box":
        attrs = dict(min_sizes=[2.0, 4.0], aspect_ratios=[1.0, 2.0])
        if d.chance(0.5):
            attrs["max_sizes"] = [5.0, 6.0]
        attrs["flip"] = d.chance(0.5)
    else:
        attrs = dict(densities=[2, 1], fixed_sizes=[2.0, 3.0], fixed_ratios=[1.0])
        attrs["flatten_to_2d"] = d.chance(0.5)
    d.call(op, x, image, outputs=2, clip=d.chance(0.5), **attrs)
