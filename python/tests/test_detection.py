# SPDX-License-Identifier: Apache-2.0
"""Models that find objects: deformable convolutions against loops over numbers and
finite differences, prior boxes against boxes worked out by hand, the head of SSD."""

import numpy as np
import paddle
import pytest
from op_check import check_program
from paddle import _ops, static
from paddle.fluid import layers
from paddle.vision.ops import DeformConv2D, deform_conv2d, prior_box
from static_check import fresh_programs, op_types, run, start, value_of

assert fresh_programs  # a fixture


def drawn(*shape, seed=0, scale=1.0, dtype="float64"):
    values = scale * np.random.default_rng(seed).standard_normal(shape)
    return values.astype(dtype)


# ---- deformable convolutions


def pixel(plane, row, column):
    height, width = plane.shape
    inside = 0 <= row < height and 0 <= column < width
    return plane[row, column] if inside else 0.0


def between(plane, y, x):
    """The value at a point between pixels, with zeros around the plane."""
    row, column = int(np.floor(y)), int(np.floor(x))
    down, right = y - row, x - column
    return (
        pixel(plane, row, column) * (1 - down) * (1 - right)
        + pixel(plane, row, column + 1) * (1 - down) * right
        + pixel(plane, row + 1, column) * down * (1 - right)
        + pixel(plane, row + 1, column + 1) * down * right
    )


def reference(x, offset, weight, mask, stride, padding, dilation, parts, groups):
    """Number by number."""
    images, channels = x.shape[:2]
    filters, per_group, kh, kw = weight.shape
    out = np.zeros((images, filters, *offset.shape[2:]))
    for n, f, i, j in np.ndindex(out.shape):
        group = f // (filters // groups)
        for c, a, b in np.ndindex(per_group, kh, kw):
            channel = group * per_group + c
            part = channel // (channels // parts)
            place = part * kh * kw + a * kw + b
            y = i * stride[0] - padding[0] + a * dilation[0]
            z = j * stride[1] - padding[1] + b * dilation[1]
            y += offset[n, 2 * place, i, j]
            z += offset[n, 2 * place + 1, i, j]
            value = between(x[n, channel], y, z) * weight[f, c, a, b]
            out[n, f, i, j] += value if mask is None else value * mask[n, place, i, j]
    return out


# (channels, height, width), (filters, kh, kw), stride, padding, dilation,
# deformable groups, groups
SHAPES = [
    ((2, 4, 5), (2, 2, 3), (1, 1), (0, 0), (1, 1), 1, 1),
    ((4, 5, 4), (2, 2, 2), (2, 1), (1, 2), (1, 2), 2, 1),
    ((4, 4, 4), (4, 3, 1), (1, 2), (1, 0), (1, 1), 1, 2),
    ((4, 5, 5), (2, 2, 2), (1, 1), (1, 1), (2, 1), 4, 2),
]


def arrays_of(shape, masked, dtype="float64"):
    (c, h, w), (f, kh, kw), stride, padding, dilation, parts, groups = shape
    out = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip((h, w), (kh, kw), stride, padding, dilation)
    ]
    field = parts * kh * kw
    x = drawn(2, c, h, w, dtype=dtype)
    # Some points lie far outside of the image.
    offset = drawn(2, 2 * field, *out, seed=1, scale=1.5, dtype=dtype)
    weight = drawn(f, c // groups, kh, kw, seed=2, dtype=dtype)
    mask = drawn(2, field, *out, seed=3, dtype=dtype) if masked else None
    return [x, offset, weight] + ([mask] if masked else []), shape[2:]


def call(tensors, settings):
    x, offset, weight = tensors[:3]
    mask = tensors[3] if len(tensors) > 3 else None
    stride, padding, dilation, parts, groups = settings
    return deform_conv2d(
        x, offset, weight, None, stride, padding, dilation, parts, groups, mask
    )


def value_of_reference(arrays, settings):
    mask = arrays[3] if len(arrays) > 3 else None
    return reference(*arrays[:3], mask, *settings)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_those_of_the_loops(shape, masked):
    arrays, settings = arrays_of(shape, masked)
    wanted = value_of_reference(arrays, settings)
    for dtype, tolerance in (("float64", 1e-10), ("float32", 1e-4)):
        tensors = [paddle.to_tensor(a.astype(dtype)) for a in arrays]
        got = call(tensors, settings)
        assert got.dtype.name == dtype
        np.testing.assert_allclose(got.numpy(), wanted, tolerance, tolerance)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_finite_differences(shape, masked):
    arrays, settings = arrays_of(shape, masked)
    wanted = value_of_reference(arrays, settings)
    weights = drawn(*wanted.shape, seed=4)
    step = 1e-6
    gradients = {}
    for dtype in ("float64", "float32"):
        tensors = [paddle.to_tensor(a.astype(dtype)) for a in arrays]
        for t in tensors:
            t.stop_gradient = False
        out = call(tensors, settings)
        (out * paddle.to_tensor(weights.astype(dtype))).sum().backward()
        gradients[dtype] = [t.grad.numpy() for t in tensors]
    rng = np.random.default_rng(5)
    for which, array in enumerate(arrays):
        exact, single = (gradients[dtype][which] for dtype in ("float64", "float32"))
        np.testing.assert_allclose(single, exact, 1e-3, 1e-4)
        # A few elements: the loops are slow.
        for at in rng.choice(array.size, min(array.size, 6), replace=False):
            place = np.unravel_index(at, array.shape)
            around = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][place] += sign * step
                around.append((value_of_reference(moved, settings) * weights).sum())
            slope = (around[0] - around[1]) / (2 * step)
            np.testing.assert_allclose(exact[place], slope, 1e-5, 1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_programs_and_second_derivatives(masked):
    arrays, settings = arrays_of(SHAPES[1], masked)
    for dtype in ("float32", "float64"):
        typed = [a.astype(dtype) for a in arrays]
        tensors = [paddle.to_tensor(a) for a in typed]
        for t in tensors:
            t.stop_gradient = False
        out = call(tensors, settings)
        check_program(
            lambda *inputs: call(inputs, settings), [out], typed, [True] * len(typed)
        )
    # The gradient along the filter does not depend on the filter, but on the image.
    (by_filter,) = paddle.grad(out.sum(), [tensors[2]], create_graph=True)
    (twice,) = paddle.grad((by_filter * by_filter).sum(), [tensors[0]])
    step = 1e-5
    place = (0, 1, 2, 2)
    around = []
    for sign in (1, -1):
        moved = [paddle.to_tensor(a) for a in arrays]
        moved[0] = paddle.to_tensor(arrays[0] + sign * step * one_at(arrays[0], place))
        moved[2].stop_gradient = False
        (g,) = paddle.grad(call(moved, settings).sum(), [moved[2]])
        around.append((g.numpy() ** 2).sum())
    slope = (around[0] - around[1]) / (2 * step)
    np.testing.assert_allclose(twice.numpy()[place], slope, 1e-6)


def one_at(array, place):
    made = np.zeros_like(array)
    made[place] = 1
    return made


def test_without_offsets_it_is_a_convolution():
    x, weight = drawn(3, 6, 9, 7, dtype="float32"), drawn(4, 3, 3, 3, dtype="float32")
    bias = drawn(4, seed=1, dtype="float32")
    tensors = [paddle.to_tensor(a) for a in (x, weight, bias)]
    offset = paddle.zeros([3, 18, 5, 4])
    wanted = paddle.nn.functional.conv2d(*tensors, stride=2, padding=1, groups=2)
    got = deform_conv2d(tensors[0], offset, *tensors[1:], 2, 1, groups=2)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-4, 1e-5)


def test_points_that_are_no_numbers_count_as_outside():
    offset = paddle.full([1, 2, 3, 3], float("nan"), "float32")
    for dtype in ("float32", "float64"):
        x, weight = paddle.ones([1, 1, 3, 3], dtype), paddle.ones([1, 1, 1, 1], dtype)
        x.stop_gradient = False
        got = deform_conv2d(x, offset.astype(dtype), weight)
        np.testing.assert_array_equal(got.numpy(), np.zeros((1, 1, 3, 3)))
        got.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.zeros((1, 1, 3, 3)))


def test_a_layer_trains_its_weight_and_bias():
    paddle.seed(1)
    layer = DeformConv2D(2, 4, 3, padding=1, deformable_groups=2, groups=2)
    assert layer.weight.shape == [4, 1, 3, 3] and layer.bias.shape == [4]
    x = paddle.to_tensor(drawn(2, 2, 5, 5, dtype="float32"))
    offset = paddle.to_tensor(drawn(2, 36, 5, 5, seed=1, dtype="float32"))
    mask = paddle.ones([2, 18, 5, 5])
    plain, masked = layer(x, offset), layer(x, offset, mask)
    np.testing.assert_allclose(plain.numpy(), masked.numpy(), 1e-6)
    plain.sum().backward()
    np.testing.assert_allclose(layer.bias.grad.numpy(), [50.0] * 4)
    assert layer.weight.grad.numpy().any()
    with pytest.raises(ValueError, match="in_channels 3 must be a multiple"):
        DeformConv2D(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match="out_channels 3 must be a multiple"):
        DeformConv2D(4, 3, 3, groups=2)


def test_wrong_shapes_are_named():
    arrays, settings = arrays_of(SHAPES[0], True)
    x, offset, weight, mask = [paddle.to_tensor(a) for a in arrays]
    with pytest.raises(ValueError, match=r"Offset must have shape \[2, 12, 3, 3\]"):
        call([x, offset[:, :-1], weight], settings)
    with pytest.raises(ValueError, match=r"Mask must have shape \[2, 6, 3, 3\]"):
        call([x, offset, weight, mask[:, :, :2]], settings)
    with pytest.raises(ValueError, match="Input has 2 channels but Filter"):
        call([x, offset, paddle.concat([weight, weight], 1)], settings)
    with pytest.raises(ValueError, match="deformable_groups is 3 but must divide"):
        deform_conv2d(x, offset, weight, deformable_groups=3)
    with pytest.raises(ValueError, match=r"Input must have shape \[N, C, H, W\]"):
        deform_conv2d(x[0], offset, weight)
    with pytest.raises(ValueError, match="padding"):
        deform_conv2d(x, offset, weight, padding=[1, 2, 3])


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("masked", [False, True])
def test_a_program_trains_saves_and_loads_it(tmp_path, masked):
    """Offsets come from a convolution, as models have it."""
    x = static.data("x", [None, 2, 6, 6])
    offset = static.nn.conv2d(x, 18, 3, padding=1, name="offset")
    mask = paddle.nn.functional.sigmoid(static.nn.conv2d(x, 9, 3, padding=1))
    out = static.nn.deform_conv2d(x, offset, mask if masked else None, 3, 3, padding=1)
    assert out.shape == [-1, 3, 6, 6]
    kind = "deformable_conv" if masked else "deformable_conv_v1"
    assert kind in op_types()
    loss = paddle.mean(paddle.square(out - 1.0))
    test = static.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(0.05).minimize(loss)
    start()
    fed = drawn(4, 2, 6, 6, dtype="float32")
    before = value_of("offset.w_0")
    losses = [run([loss], {"x": fed})[0].item() for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert not np.allclose(before, value_of("offset.w_0"))
    names = [p.name for p in static.default_main_program().all_parameters()]
    assert {"deformable_conv_0.w_0", "deformable_conv_0.b_0"} <= set(names)
    (wanted,) = run([out], {"x": fed}, test)
    values = run([offset, mask], {"x": fed}, test)
    with paddle.static.program.eager_guard():
        arrays = [paddle.to_tensor(a) for a in values]
        again = deform_conv2d(
            paddle.to_tensor(fed),
            arrays[0],
            paddle.to_tensor(value_of("deformable_conv_0.w_0")),
            paddle.to_tensor(value_of("deformable_conv_0.b_0")),
            padding=1,
            mask=arrays[1] if masked else None,
        )
        np.testing.assert_allclose(wanted, again.numpy(), 1e-4, 1e-5)
    executor = static.Executor(paddle.CPUPlace())
    path = str(tmp_path / "model")
    static.save_inference_model(path, [x], [out], executor)
    with static.scope_guard(static.Scope()):
        program, _, fetches = static.load_inference_model(path, executor)
        (got,) = executor.run(program, {"x": fed}, fetches)
    np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)


@pytest.mark.usefixtures("fresh_programs")
def test_the_old_name_of_the_layer():
    x = static.data("x", [None, 2, 4, 4])
    offset = static.data("offset", [None, 18, 4, 4])
    mask = static.data("mask", [None, 9, 4, 4])
    attr = paddle.ParamAttr(name="w")
    one = layers.deformable_conv(x, offset, mask, 2, 3, padding=1, param_attr=attr)
    other = layers.deformable_conv(
        x, offset, None, 2, 3, padding=1, param_attr=attr, modulated=False
    )
    start()
    feed = {
        "x": drawn(1, 2, 4, 4, dtype="float32"),
        "offset": drawn(1, 18, 4, 4, seed=1, dtype="float32"),
        "mask": np.ones((1, 9, 4, 4), "float32"),
    }
    got = run([one, other], feed)
    np.testing.assert_allclose(got[0], got[1], 1e-5, 1e-6)
    with pytest.raises(ValueError, match="needs a mask"):
        layers.deformable_conv(x, offset, None, 2, 3)
    with pytest.raises(ValueError, match=r"must be \[N, C, H, W\] with a known C"):
        static.nn.deform_conv2d(x, offset, mask, 3, 3, groups=2)


# ---- prior boxes


def boxes_of(centre, sizes, image):
    """(left, top, right, bottom) around (x, y), as parts of (width, height)."""
    return [
        [
            (centre[0] - w / 2) / image[0],
            (centre[1] - h / 2) / image[1],
            (centre[0] + w / 2) / image[0],
            (centre[1] + h / 2) / image[1],
        ]
        for w, h in sizes
    ]


def grid(height, width, dtype="float32"):
    return paddle.zeros([1, 3, height, width], dtype)


def test_boxes_by_hand():
    """A grid of 2 x 3 over an image of 40 x 60: a place has 20 x 20 pixels."""
    boxes, variances = prior_box(
        grid(2, 3), grid(40, 60), [8.0], [18.0], [1.0, 4.0], flip=True
    )
    assert boxes.shape == variances.shape == [2, 3, 4, 4]
    assert boxes.stop_gradient and variances.stop_gradient
    # Ratio 1, 4 and 1/4 of the least size, then the square between 8 and 18.
    sizes = [(8, 8), (16, 4), (4, 16), (12, 12)]
    wanted = [
        [boxes_of((20 * j + 10, 20 * i + 10), sizes, (60, 40)) for j in range(3)]
        for i in range(2)
    ]
    np.testing.assert_allclose(boxes.numpy(), wanted, 1e-6, 1e-7)
    np.testing.assert_allclose(
        variances.numpy(), np.broadcast_to([0.1, 0.1, 0.2, 0.2], (2, 3, 4, 4))
    )


def test_the_order_steps_offset_and_limits_of_boxes():
    settings = dict(
        min_sizes=[4.0, 10.0],
        max_sizes=[9.0, 40.0],
        aspect_ratios=[4.0, 1.0, 4.0],
        variance=[1.0, 2.0, 3.0, 4.0],
        clip=True,
        steps=[7.0, 5.0],
        offset=0.0,
        min_max_aspect_ratios_order=True,
    )
    boxes, variances = prior_box(grid(2, 2), grid(20, 30), **settings)
    sizes = [(4, 4), (6, 6), (8, 2), (10, 10), (20, 20), (20, 5)]
    wanted = np.array(
        [
            [boxes_of((7 * j, 5 * i), sizes, (30, 20)) for j in range(2)]
            for i in range(2)
        ]
    )
    np.testing.assert_allclose(boxes.numpy(), wanted.clip(0, 1), 1e-6, 1e-7)
    np.testing.assert_array_equal(variances.numpy()[1, 0, 5], [1, 2, 3, 4])
    settings["min_max_aspect_ratios_order"] = False
    boxes, _ = prior_box(grid(2, 2), grid(20, 30), **settings)
    order = [0, 2, 1, 3, 5, 4]
    np.testing.assert_allclose(
        boxes.numpy(), wanted.clip(0, 1)[:, :, order], 1e-6, 1e-7
    )


def test_dense_boxes_by_hand():
    """Places of 10 x 10 pixels; two by two boxes lie 5 pixels apart."""
    given = (grid(1, 2), grid(10, 20), [2, 1], [4.0, 8.0], [1.0, 4.0])
    boxes, variances = layers.density_prior_box(*given)
    assert boxes.shape == variances.shape == [1, 2, 10, 4]
    wanted = []
    for x in (5.0, 15.0):
        place = []
        for size in ((4, 4), (8, 2)):
            for down in (-2.5, 2.5):
                for right in (-2.5, 2.5):
                    place += boxes_of((x + right, 5 + down), [size], (20, 10))
        for size in ((8, 8), (16, 4)):
            place += boxes_of((x, 5), [size], (20, 10))
        wanted.append(place)
    np.testing.assert_allclose(boxes.numpy(), [np.clip(wanted, 0, 1)], 1e-6, 1e-7)
    flat, _ = layers.density_prior_box(*given, flatten_to_2d=True)
    np.testing.assert_array_equal(flat.numpy(), boxes.numpy().reshape(-1, 4))


def test_mistakes_in_boxes_are_named():
    image = grid(20, 30)
    with pytest.raises(ValueError, match=r"max_sizes\[0\] is 4 but must be above"):
        prior_box(grid(2, 2), image, [8.0], [4.0])
    with pytest.raises(ValueError, match="max_sizes has 1 numbers, but min_sizes 2"):
        prior_box(grid(2, 2), image, [2.0, 3.0], [4.0])
    with pytest.raises(ValueError, match="variances must have four numbers"):
        prior_box(grid(2, 2), image, [2.0], variance=[0.1])
    with pytest.raises(ValueError, match="min_sizes must be positive"):
        prior_box(grid(2, 2), image, [-2.0])
    with pytest.raises(ValueError, match=r"Input must have shape \[N, C, H, W\]"):
        prior_box(image[0], image, [2.0])
    with pytest.raises(ValueError, match=r"steps must be \[step_w, step_h\]"):
        prior_box(grid(2, 2), image, [2.0], steps=[1.0])
    with pytest.raises(ValueError, match="densities"):
        layers.density_prior_box(grid(2, 2), image, [2], [4.0, 8.0], [1.0])
    with pytest.raises(ValueError, match="densities must be positive"):
        layers.density_prior_box(grid(2, 2), image, [0], [4.0], [1.0])


# ---- the head of SSD


def numpy_conv1x1(x, weight, bias):
    return np.einsum("nchw,fc->nfhw", x, weight[:, :, 0, 0]) + bias[:, None, None]


@pytest.mark.usefixtures("fresh_programs")
def test_the_head_joins_all_inputs():
    image = static.data("image", [None, 3, 60, 60])
    inputs = [static.data(f"x{i}", [None, 2, n, n]) for i, n in enumerate((4, 2, 1))]
    loc, conf, boxes, variances = static.nn.multi_box_head(
        inputs,
        image,
        base_size=60,
        num_classes=3,
        aspect_ratios=[[2.0], [2.0, 3.0], [2.0]],
        min_ratio=20,
        max_ratio=90,
        clip=True,
    )
    # Ratios 1, 2, 1/2 and the larger square; in the second 3 and 1/3 too.
    per_place = [4, 6, 4]
    total = 16 * 4 + 4 * 6 + 4
    assert (loc.shape, conf.shape) == ([-1, total, 4], [-1, total, 3])
    assert (boxes.shape, variances.shape) == ([total, 4], [total, 4])
    assert boxes.stop_gradient and variances.stop_gradient
    start()
    feed = {
        f"x{i}": drawn(2, 2, n, n, dtype="float32") for i, n in enumerate((4, 2, 1))
    }
    feed["image"] = np.zeros((2, 3, 60, 60), "float32")
    got = run([loc, conf, boxes, variances], feed)
    wanted_loc, wanted_conf, wanted_boxes = [], [], []
    # 10 to 20, then from 20 percent in steps of 70 // 1.
    sizes = [(6.0, 12.0), (12.0, 54.0), (54.0, 96.0)]
    with paddle.static.program.eager_guard():
        for i, n in enumerate((4, 2, 1)):
            x = feed[f"x{i}"]
            for kind, width, into in ((0, 4, wanted_loc), (1, 3, wanted_conf)):
                name = f"conv2d_{2 * i + kind}"
                weight, bias = value_of(f"{name}.w_0"), value_of(f"{name}.b_0")
                assert weight.shape == (per_place[i] * width, 2, 1, 1)
                out = numpy_conv1x1(x, weight, bias)
                into.append(out.transpose(0, 2, 3, 1).reshape(2, -1, width))
            ratios = [2.0, 3.0] if i == 1 else [2.0]
            least, most = sizes[i]
            made, _ = prior_box(
                grid(n, n), grid(60, 60), least, [most], ratios, flip=True, clip=True
            )
            wanted_boxes.append(made.numpy().reshape(-1, 4))
    np.testing.assert_allclose(got[0], np.concatenate(wanted_loc, 1), 1e-5, 1e-6)
    np.testing.assert_allclose(got[1], np.concatenate(wanted_conf, 1), 1e-5, 1e-6)
    np.testing.assert_allclose(got[2], np.concatenate(wanted_boxes), 1e-6)
    np.testing.assert_allclose(got[3], np.tile([0.1, 0.1, 0.2, 0.2], (total, 1)))


@pytest.mark.usefixtures("fresh_programs")
def test_a_head_learns_is_saved_and_loaded(tmp_path):
    image = static.data("image", [None, 3, 16, 16])
    features = static.nn.conv2d(image, 4, 3, stride=2, padding=1, act="relu")
    loc, conf, boxes, variances = static.nn.multi_box_head(
        [features],
        image,
        base_size=16,
        num_classes=2,
        aspect_ratios=[[2.0]],
        min_sizes=[4.0],
        max_sizes=[8.0],
        steps=[2.0],
        kernel_size=3,
        pad=1,
    )
    assert loc.shape == [-1, 256, 4] and boxes.shape == [256, 4]
    loss = paddle.mean(paddle.square(loc - 0.5)) + paddle.mean(paddle.square(conf))
    paddle.optimizer.Adam(0.02).minimize(loss)
    start()
    fed = drawn(2, 3, 16, 16, dtype="float32")
    losses = [run([loss], {"image": fed})[0].item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    executor = static.Executor(paddle.CPUPlace())
    path = str(tmp_path / "ssd")
    fetches = [loc, conf, boxes, variances]
    static.save_inference_model(path, [image], fetches, executor)
    test = static.default_main_program().clone(for_test=True)
    wanted = run(fetches, {"image": fed}, test)
    with static.scope_guard(static.Scope()):
        program, names, found = static.load_inference_model(path, executor)
        assert names == ["image"] and "prior_box" in op_types(program)
        got = executor.run(program, {"image": fed}, found)
    for one, other in zip(got, wanted):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


@pytest.mark.usefixtures("fresh_programs")
def test_open_sizes_are_known_when_the_program_runs():
    image = static.data("image", [None, 3, None, None])
    x = static.data("x", [None, 2, None, None])
    boxes, _ = layers.prior_box(x, image, [2.0], [4.0], [2.0], flip=True)
    assert boxes.shape == [-1, -1, 4, 4]
    for height, width in ((2, 3), (4, 1)):
        feed = {
            "image": np.zeros((1, 3, 10 * height, 10 * width), "float32"),
            "x": np.zeros((1, 2, height, width), "float32"),
        }
        (got,) = run([boxes], feed)
        assert got.shape == (height, width, 4, 4)
        centre = boxes_of((5, 5), [(2, 2)], (10 * width, 10 * height))[0]
        np.testing.assert_allclose(got[0, 0, 0], centre, 1e-6)


@pytest.mark.usefixtures("fresh_programs")
def test_mistakes_of_heads_are_named():
    image = static.data("image", [None, 3, 16, 16])
    x = [static.data(f"x{i}", [None, 2, 4, 4]) for i in range(3)]
    head = layers.multi_box_head
    with pytest.raises(ValueError, match="min_ratio and max_ratio, or min_sizes"):
        head(x, image, 16, 2, [[2.0]] * 3)
    with pytest.raises(ValueError, match="too few percent for 3 inputs"):
        head(x, image, 16, 2, [[2.0]] * 3, 20, 20)
    with pytest.raises(ValueError, match="min_sizes must be a list with an item"):
        head(x[:2], image, 16, 2, [[2.0]] * 2, 20, 90)
    with pytest.raises(ValueError, match="aspect_ratios must be a list"):
        head(x, image, 16, 2, [[2.0]], 20, 90)
    with pytest.raises(TypeError, match="inputs must be a list of Variables"):
        head(x[0], image, 16, 2, [[2.0]])


def test_the_ops_say_which_of_their_arguments_is_wrong():
    with pytest.raises(ValueError, match="prior_box.*min_sizes is empty"):
        _ops.prior_box(grid(2, 2), grid(4, 4), min_sizes=[])
