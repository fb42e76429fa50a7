# SPDX-License-Identifier: Apache-2.0
"""Padding, resizing, patches and sampling against torch."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch.nn.functional as T
from op_check import check, floats

CLOSE = {"rtol": 1e-6, "atol": 1e-9}


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    "shape, pad",
    [((2, 3, 6), [2, 1]), ((2, 3, 5, 6), [1, 2, 3, 0]), ((2, 3, 4, 4, 5), [1] * 6)],
)
def test_pad_of_the_spatial_dimensions(mode, shape, pad):
    value = {"value": 0.7} if mode == "constant" else {}
    names = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
    check(
        lambda x: F.pad(x, pad, mode, data_format=names[len(shape)], **value),
        lambda x: T.pad(x, pad, mode, **value),
        floats(*shape),
        second=True,
        **CLOSE,
    )


def test_pad_with_channels_last():
    check(
        lambda x: F.pad(x, [1, 2, 3, 0], "reflect", data_format="NHWC"),
        lambda x: T.pad(x.permute(0, 3, 1, 2), [1, 2, 3, 0], "reflect").permute(
            0, 2, 3, 1
        ),
        floats(2, 5, 6, 3),
    )


def test_pad_of_all_dimensions_goes_first_to_last():
    x = floats(2, 3)
    out = F.pad(paddle.to_tensor(x), [0, 1, 2, 3], value=5.0)
    np.testing.assert_array_equal(
        out.numpy(), np.pad(x, [(0, 1), (2, 3)], constant_values=5.0)
    )
    image = floats(1, 2, 3, 4)
    full = F.pad(paddle.to_tensor(image), [0, 0, 1, 0, 0, 2, 3, 0])
    np.testing.assert_array_equal(
        full.numpy(), np.pad(image, [(0, 0), (1, 0), (0, 2), (3, 0)])
    )


def test_pad_takes_numbers_and_tensors():
    x = floats(1, 2, 3, 4)
    want = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    np.testing.assert_array_equal(F.pad(paddle.to_tensor(x), 1).numpy(), want)
    sides = paddle.to_tensor(np.array([1, 1, 1, 1]))
    np.testing.assert_array_equal(F.pad(paddle.to_tensor(x), sides).numpy(), want)
    np.testing.assert_array_equal(
        F.zeropad2d(paddle.to_tensor(x), [1, 1, 1, 1]).numpy(), want
    )


def test_pad_names_what_does_not_fit():
    x = paddle.to_tensor(floats(1, 2, 3, 4))
    with pytest.raises(ValueError, match="3 numbers do not fit"):
        F.pad(x, [1, 2, 3])
    with pytest.raises(ValueError, match="needs a dimension longer than 3"):
        F.pad(x, [0, 0, 3, 0], "reflect")
    with pytest.raises(ValueError, match="mode must be"):
        F.pad(x, [1, 1, 1, 1], "mirror")


@pytest.mark.parametrize("size", [(3, 4), (9, 11), (5, 6)])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolate_images(mode, align, size):
    check(
        lambda x: F.interpolate(x, size, mode=mode, align_corners=align),
        lambda x: T.interpolate(x, size, mode=mode, align_corners=align),
        floats(2, 3, 5, 6),
        second=True,
        **CLOSE,
    )


@pytest.mark.parametrize(
    "mode, shape, size",
    [
        ("nearest", (2, 3, 5), (7,)),
        ("nearest", (2, 3, 5, 6), (8, 3)),
        ("nearest", (2, 3, 4, 5, 3), (5, 4, 6)),
        ("linear", (2, 3, 5), (8,)),
        ("trilinear", (2, 3, 4, 5, 3), (5, 4, 6)),
        ("area", (2, 3, 6, 6), (3, 4)),
    ],
)
def test_interpolate_other_grids(mode, shape, size):
    names = {3: "NCL", 4: "NCHW", 5: "NCDHW"}
    check(
        lambda x: F.interpolate(x, size, mode=mode, data_format=names[len(shape)]),
        lambda x: T.interpolate(x, size, mode=mode),
        floats(*shape),
        **CLOSE,
    )


@pytest.mark.parametrize("factor", [2, 1.5, [2, 0.5]], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_interpolate_by_a_factor(mode, factor):
    scale = tuple(factor) if isinstance(factor, list) else factor
    check(
        lambda x: F.upsample(x, scale_factor=factor, mode=mode),
        lambda x: T.interpolate(x, scale_factor=scale, mode=mode),
        floats(2, 3, 5, 6),
        **CLOSE,
    )


def test_interpolate_with_align_mode_1_takes_points():
    x = np.array([[[0.0, 1.0, 2.0, 3.0]]])
    out = F.interpolate(
        paddle.to_tensor(x), [8], mode="linear", align_mode=1, data_format="NCL"
    )
    want = np.minimum(np.arange(8) * 0.5, 3.0)
    np.testing.assert_allclose(out.numpy()[0, 0], want)


def test_interpolate_with_channels_last():
    check(
        lambda x: F.interpolate(x, (7, 9), mode="bilinear", data_format="NHWC"),
        lambda x: T.interpolate(x.permute(0, 3, 1, 2), (7, 9), mode="bilinear").permute(
            0, 2, 3, 1
        ),
        floats(2, 5, 6, 3),
        **CLOSE,
    )


def test_interpolate_names_bad_arguments():
    x = paddle.to_tensor(floats(2, 3, 5, 6))
    with pytest.raises(ValueError, match="give one of size and scale_factor"):
        F.interpolate(x)
    with pytest.raises(ValueError, match="mode 'linear' does not fit"):
        F.interpolate(x, 4, mode="linear")
    with pytest.raises(ValueError, match="align_corners has a meaning for"):
        F.interpolate(x, 4, align_corners=True)
    with pytest.raises(ValueError, match="size must be positive"):
        F.interpolate(x, [0, 4])


def test_unfold():
    check(
        lambda x: F.unfold(x, [3, 2], 2, 1, 1),
        lambda x: T.unfold(x, (3, 2), 1, 1, 2),
        floats(2, 3, 6, 7),
        second=True,
        **CLOSE,
    )
    check(
        lambda x: F.unfold(x, 2, paddings=[1, 2, 0, 3], dilations=2),
        lambda x: T.unfold(T.pad(x, (2, 3, 1, 0)), 2, 2),
        floats(2, 3, 6, 7),
        **CLOSE,
    )


def test_pixel_shuffle():
    check(
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: T.pixel_shuffle(x, 2),
        floats(2, 8, 3, 4),
    )
    check(
        lambda x: F.pixel_shuffle(x, 2, "NHWC"),
        lambda x: T.pixel_shuffle(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1),
        floats(2, 3, 4, 8),
    )
    with pytest.raises(ValueError, match="must divide the 6 channels"):
        F.pixel_shuffle(paddle.to_tensor(floats(2, 6, 3, 3)), 2)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode, padding, align):
    check(
        lambda x, g: F.grid_sample(x, g, mode, padding, align),
        lambda x, g: T.grid_sample(x, g, mode, padding, align),
        floats(2, 3, 5, 6),
        floats(2, 4, 3, 2, seed=1) * 0.6,
        **CLOSE,
    )


def test_grid_sample_of_volumes():
    check(
        F.grid_sample,
        lambda x, g: T.grid_sample(x, g, align_corners=True),
        floats(2, 3, 4, 5, 3),
        floats(2, 4, 3, 2, 3, seed=1) * 0.6,
        **CLOSE,
    )


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align):
    check(
        lambda t: F.affine_grid(t, [2, 3, 4, 5], align),
        lambda t: T.affine_grid(t, [2, 3, 4, 5], align),
        floats(2, 2, 3),
        **CLOSE,
    )


def test_temporal_shift_moves_a_share_of_the_channels():
    x = floats(6, 4, 2, 2)
    out = F.temporal_shift(paddle.to_tensor(x), 3, 0.25).numpy()
    video, moved = x.reshape(2, 3, 4, 2, 2), out.reshape(2, 3, 4, 2, 2)
    np.testing.assert_array_equal(moved[:, 1:, 0], video[:, :-1, 0])
    np.testing.assert_array_equal(moved[:, 0, 0], 0)
    np.testing.assert_array_equal(moved[:, :-1, 1], video[:, 1:, 1])
    np.testing.assert_array_equal(moved[:, -1, 1], 0)
    np.testing.assert_array_equal(moved[:, :, 2:], video[:, :, 2:])


def test_second_derivatives_that_do_not_exist_say_so():
    x = paddle.to_tensor(floats(1, 1, 3, 3), stop_gradient=False)
    grid = paddle.to_tensor(floats(1, 2, 2, 2))
    out = F.grid_sample(x, grid).sum()
    with pytest.raises((RuntimeError, ValueError), match="no second derivative"):
        paddle.grad([out], [x], create_graph=True)
