# SPDX-License-Identifier: Apache-2.0
"""paddle.vision.transforms against numpy, torch and closed forms."""

import colorsys
import random

import numpy as np
import paddle
import pytest
import torch
from paddle.vision import get_image_backend, image_load, set_image_backend
from paddle.vision import transforms as T
from paddle.vision.transforms import functional as F
from paddle.vision.transforms import transforms
from PIL import Image


def picture(height=12, width=20, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    shape = (height, width, channels) if channels else (height, width)
    return rng.integers(0, 256, shape, dtype=np.uint8)


def both(pixels):
    """The same image as array and as Pillow image."""
    return [pixels, Image.fromarray(pixels)]


def array(img):
    return img.numpy() if isinstance(img, paddle.Tensor) else np.asarray(img)


# -- to_tensor and normalize


def test_to_tensor_scales_bytes_and_moves_channels_first():
    pixels = picture()
    for img in both(pixels):
        out = T.ToTensor()(img)
        assert isinstance(out, paddle.Tensor)
        assert out.shape == [3, 12, 20]
        assert out.numpy().dtype == np.float32
        np.testing.assert_allclose(
            out.numpy(), pixels.transpose(2, 0, 1) / 255.0, rtol=1e-6
        )


def test_to_tensor_can_keep_channels_last():
    pixels = picture()
    out = F.to_tensor(pixels, data_format="HWC")
    np.testing.assert_allclose(out.numpy(), pixels / 255.0, rtol=1e-6)
    with pytest.raises(ValueError, match="data_format"):
        F.to_tensor(pixels, "WHC")


def test_to_tensor_gives_a_grey_image_one_channel():
    pixels = picture(channels=0)
    for img in both(pixels):
        assert F.to_tensor(img).shape == [1, 12, 20]


def test_to_tensor_keeps_values_that_are_not_bytes():
    values = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)
    for img in both(values):
        np.testing.assert_array_equal(F.to_tensor(img).numpy()[0], values)
    wide = Image.fromarray(np.array([[100000, -5]], np.int32))
    assert F.to_tensor(wide).numpy().tolist() == [[[100000, -5]]]
    bits = Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1")
    assert F.to_tensor(bits).numpy().tolist() == [[[0.0, 1.0]]]


def test_to_tensor_owns_its_memory():
    values = np.ones((1, 2, 3), np.float32)
    out = F.to_tensor(values, "HWC")
    values[:] = 7
    np.testing.assert_array_equal(out.numpy(), np.ones((1, 2, 3)))


@pytest.mark.parametrize("function", [F.to_tensor, F.hflip, F.to_grayscale])
def test_what_is_no_image_is_refused_by_name(function):
    with pytest.raises(TypeError, match=r"not ndarray of shape \[3\]"):
        function(np.zeros(3))
    with pytest.raises(TypeError, match="not list"):
        function([1, 2])


def test_normalize_works_on_arrays_tensors_and_pillow_images():
    pixels = picture()
    mean, std = [120.0, 100.0, 80.0], [50.0, 60.0, 70.0]
    expected = (pixels - np.array(mean)) / np.array(std)
    chw = pixels.transpose(2, 0, 1)
    out = T.Normalize(mean, std)(chw)
    assert isinstance(out, np.ndarray) and out.dtype == np.float32
    np.testing.assert_allclose(out, expected.transpose(2, 0, 1), rtol=1e-5)
    for img in both(pixels):
        out = F.normalize(img, mean, std, data_format="HWC")
        np.testing.assert_allclose(out, expected, rtol=1e-5)
    out = T.Normalize(mean, std)(F.to_tensor(pixels.astype("float32")))
    assert isinstance(out, paddle.Tensor)
    np.testing.assert_allclose(out.numpy(), expected.transpose(2, 0, 1), rtol=1e-5)


def test_normalize_takes_one_number_for_all_channels_and_reverses_them():
    chw = picture().transpose(2, 0, 1)
    np.testing.assert_allclose(T.Normalize(127.5, 127.5)(chw), chw / 127.5 - 1, 1e-5)
    out = F.normalize(chw, [1.0, 2.0, 3.0], [1.0, 1.0, 1.0], to_rgb=True)
    np.testing.assert_allclose(out[0], chw[2] - 1.0)


def test_normalize_names_a_wrong_number_of_channels():
    with pytest.raises(ValueError, match="3 values of mean for 12 channels"):
        F.normalize(picture(), [1, 2, 3], [1, 1, 1])  # HWC passed as CHW


# -- geometry


@pytest.mark.parametrize("size", [(7, 9), (24, 40), 6, 30])
def test_array_resize_samples_as_torch_does(size):
    pixels = picture().astype(np.float32)
    target = size if isinstance(size, tuple) else (size, int(size * 20 / 12))
    planes = torch.tensor(pixels.transpose(2, 0, 1))[None]
    for mode in ("bilinear", "bicubic"):
        expected = torch.nn.functional.interpolate(
            planes, target, mode=mode, align_corners=False
        )[0]
        out = F.resize(pixels, size, mode)
        np.testing.assert_allclose(
            out, expected.numpy().transpose(1, 2, 0), atol=2e-3, rtol=1e-4
        )
    expected = torch.nn.functional.interpolate(planes, target, mode="nearest")[0]
    np.testing.assert_array_equal(
        F.resize(pixels, size, "nearest"), expected.numpy().transpose(1, 2, 0)
    )


def test_array_resize_by_area_averages():
    pixels = picture(12, 20)
    expected = pixels.reshape(4, 3, 10, 2, 3).mean((1, 3))
    out = F.resize(pixels, (4, 10), "area")
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(out, np.rint(expected))


def test_lanczos_keeps_a_constant_image():
    pixels = np.full((9, 11, 3), 37, np.uint8)
    np.testing.assert_array_equal(F.resize(pixels, (13, 5), "lanczos"), 37)


def test_one_number_is_the_shorter_edge():
    for img in both(picture(12, 20)):
        assert array(F.resize(img, 6)).shape == (6, 10, 3)
    for img in both(picture(20, 12)):
        assert array(F.resize(img, 6)).shape == (10, 6, 3)
        assert F.resize(img, 12) is img


def test_pillow_resize_is_pillows():
    img = Image.fromarray(picture())
    expected = img.resize((9, 7), Image.BICUBIC)
    out = T.Resize((7, 9), "bicubic")(img)
    assert isinstance(out, Image.Image)
    np.testing.assert_array_equal(array(out), array(expected))


def test_resize_names_an_unknown_interpolation():
    for img in both(picture()):
        with pytest.raises(ValueError, match="'cubist'"):
            F.resize(img, 5, "cubist")
    with pytest.raises(ValueError, match="size"):
        T.Resize((3, 0))


def test_crops_and_flips():
    pixels = picture()
    for img in both(pixels):
        np.testing.assert_array_equal(array(F.crop(img, 2, 3, 4, 5)), pixels[2:6, 3:8])
        np.testing.assert_array_equal(
            array(T.CenterCrop((6, 8))(img)), pixels[3:9, 6:14]
        )
        np.testing.assert_array_equal(array(F.hflip(img)), pixels[:, ::-1])
        np.testing.assert_array_equal(array(F.vflip(img)), pixels[::-1])
    tensor = F.to_tensor(pixels)
    np.testing.assert_array_equal(F.hflip(tensor).numpy(), tensor.numpy()[:, :, ::-1])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [2, (1, 3), (1, 2, 3, 0)])
def test_padding(mode, padding):
    left, top, right, bottom = {
        2: (2, 2, 2, 2),
        (1, 3): (1, 3, 1, 3),
        (1, 2, 3, 0): (1, 2, 3, 0),
    }[padding]
    pixels = picture(6, 8)
    sides = [(top, bottom), (left, right), (0, 0)]
    expected = np.pad(pixels, sides, mode=mode)
    for img in both(pixels):
        np.testing.assert_array_equal(
            array(T.Pad(padding, padding_mode=mode)(img)), expected
        )


def test_padding_fills_each_channel():
    for img in both(picture(4, 4)):
        out = array(F.pad(img, 1, fill=(10, 20, 30)))
        assert out[0, 0].tolist() == [10, 20, 30]
    with pytest.raises(ValueError, match="padding_mode"):
        F.pad(picture(), 1, padding_mode="wrap")
    with pytest.raises(ValueError, match="one, two or four"):
        F.pad(picture(), (1, 2, 3))


def test_rotation_by_right_angles_is_exact():
    pixels = picture(10, 10)
    for img in both(pixels):
        for turns in range(4):
            np.testing.assert_array_equal(
                array(F.rotate(img, 90 * turns)), np.rot90(pixels, turns)
            )
    wide = picture(6, 10)
    for img in both(wide):
        np.testing.assert_array_equal(
            array(F.rotate(img, 90, expand=True)), np.rot90(wide)
        )


def test_rotation_agrees_between_kinds_and_fills_corners():
    pixels = picture(16, 16)
    out, from_pillow = [
        array(F.rotate(img, 30, "bilinear", fill=9)) for img in both(pixels)
    ]
    assert out[0, 0].tolist() == [9, 9, 9]
    # Pillow rounds down, we to the nearest.
    difference = np.abs(out.astype(int) - from_pillow.astype(int))
    assert difference.max() <= 1


# -- colours


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 1.7])
def test_colour_changes_agree_with_pillow(factor):
    pixels = picture()
    for function in (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation):
        out, from_pillow = [array(function(img, factor)) for img in both(pixels)]
        difference = np.abs(out.astype(int) - from_pillow.astype(int))
        assert difference.max() <= 1, function.__name__
    for function in (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation):
        with pytest.raises(ValueError, match="negative"):
            function(pixels, -0.1)


def test_brightness_of_floats_is_not_clipped():
    values = np.array([[0.5, 200.0]], np.float32)
    np.testing.assert_array_equal(F.adjust_brightness(values, 2.0), [[1.0, 400.0]])


def test_hue_turns_as_colorsys_does():
    pixels = picture(8, 8)
    expected = np.empty((8, 8, 3))
    for y, x in np.ndindex(8, 8):
        h, s, v = colorsys.rgb_to_hsv(*(pixels[y, x] / 255.0))
        expected[y, x] = colorsys.hsv_to_rgb((h + 0.25) % 1, s, v)
    for img in both(pixels):
        out = array(F.adjust_hue(img, 0.25)) / 255.0
        # The hue is kept in a byte on the way: 1/255 of the circle.
        assert np.abs(out - expected).max() < 0.05
    with pytest.raises(ValueError, match="hue_factor"):
        F.adjust_hue(pixels, 0.6)
    with pytest.raises(TypeError, match="uint8"):
        F.adjust_hue(pixels.astype(np.float32), 0.1)


def test_grayscale():
    pixels = picture()
    expected = pixels @ np.array([0.299, 0.587, 0.114])
    for img in both(pixels):
        one = array(T.Grayscale()(img)).reshape(12, 20)
        assert np.abs(one - expected).max() < 1
        three = array(F.to_grayscale(img, 3))
        assert three.shape == (12, 20, 3)
        np.testing.assert_array_equal(three[..., 0], three[..., 2])
    with pytest.raises(ValueError, match="1 or 3"):
        F.to_grayscale(pixels, 2)


# -- random transforms


def test_flips_follow_their_probability():
    random.seed(3)
    pixels = picture(2, 2)
    for transform, flipped in [
        (T.RandomHorizontalFlip, pixels[:, ::-1]),
        (T.RandomVerticalFlip, pixels[::-1]),
    ]:
        np.testing.assert_array_equal(transform(1.0)(pixels), flipped)
        np.testing.assert_array_equal(transform(0.0)(pixels), pixels)
        half = transform()
        count = sum(np.array_equal(half(pixels), flipped) for _ in range(400))
        assert 150 < count < 250
        with pytest.raises(ValueError, match="prob"):
            transform(1.5)


def test_random_crop_takes_every_place():
    random.seed(1)
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    seen = {int(T.RandomCrop(2)(pixels)[0, 0]) for _ in range(200)}
    assert seen == {0, 1, 2, 4, 5, 6}


def test_random_crop_pads_and_complains_when_too_small():
    for img in both(picture(4, 4)):
        assert array(T.RandomCrop(6, padding=1)(img)).shape == (6, 6, 3)
        out = T.RandomCrop((9, 5), pad_if_needed=True)(img)
        assert array(out).shape == (9, 5, 3)
        with pytest.raises(ValueError, match="4x4, smaller than 6x6"):
            T.RandomCrop(6)(img)


def test_random_resized_crop_stays_in_its_ranges():
    random.seed(2)
    transform = T.RandomResizedCrop(8, scale=(0.25, 0.5), ratio=(0.5, 2.0))
    pixels = picture(40, 60)
    for img in both(pixels):
        assert array(transform(img)).shape == (8, 8, 3)
    for _ in range(100):
        top, left, height, width = transform._get_params((pixels,))
        assert 0 <= top <= 40 - height and 0 <= left <= 60 - width
        assert 0.2 <= height * width / 2400 <= 0.55
        assert 0.45 <= width / height <= 2.2


def test_random_resized_crop_of_a_strip_takes_its_middle():
    transform = T.RandomResizedCrop(4)
    assert transform._get_params((np.zeros((3, 300, 1)),)) == (0, 148, 3, 4)


def test_random_rotation_draws_from_its_range():
    random.seed(0)
    transform = T.RandomRotation(30)
    angles = [transform._get_params(None) for _ in range(100)]
    assert -30 <= min(angles) < -20 and 20 < max(angles) <= 30
    assert array(transform(picture())).shape == (12, 20, 3)
    assert T.RandomRotation((10, 20)).degrees == (10, 20)
    with pytest.raises(ValueError, match="degrees"):
        T.RandomRotation(-5)


def test_colour_transforms_draw_their_factor():
    random.seed(0)
    grey = np.full((2, 2, 3), 100, np.uint8)
    levels = {int(T.BrightnessTransform(0.5)(grey)[0, 0, 0]) for _ in range(200)}
    assert min(levels) >= 50 and max(levels) <= 150 and len(levels) > 50
    assert T.ContrastTransform(0)(grey) is grey
    assert T.SaturationTransform(3).value == (0, 4)
    assert T.HueTransform((-0.1, 0.2)).value == (-0.1, 0.2)
    with pytest.raises(ValueError, match="HueTransform"):
        T.HueTransform(0.7)
    with pytest.raises(ValueError, match="negative"):
        T.BrightnessTransform(-1)


def test_color_jitter_changes_colours_only():
    random.seed(0)
    pixels = picture()
    for img in both(pixels):
        out = T.ColorJitter(0.4, 0.4, 0.4, 0.2)(img)
        assert type(out) is type(img)
        assert array(out).shape == (12, 20, 3)
        assert not np.array_equal(array(out), pixels)
        np.testing.assert_array_equal(array(T.ColorJitter()(img)), pixels)


def test_the_same_seed_gives_the_same_images():
    transform = T.Compose([T.RandomResizedCrop(8), T.ColorJitter(0.4, 0.4, 0.4, 0.1)])
    random.seed(5)
    first = transform(picture())
    random.seed(5)
    np.testing.assert_array_equal(transform(picture()), first)


# -- composition


def test_transforms_are_names_and_a_module():
    assert transforms.Compose is T.Compose
    for name in T.__all__:
        assert getattr(T, name) is not None
    pipeline = transforms.Compose([T.Transpose(), lambda x: x + 1])
    np.testing.assert_array_equal(pipeline(picture()), picture().transpose(2, 0, 1) + 1)
    assert "Transpose" in repr(pipeline)


def test_transpose_takes_grey_and_pillow_images():
    assert T.Transpose()(picture(channels=0)).shape == (1, 12, 20)
    assert T.Transpose((1, 0, 2))(Image.fromarray(picture())).shape == (20, 12, 3)
    assert T.Transpose((1, 2, 0))(F.to_tensor(picture())).shape == [12, 20, 3]


def test_keys_say_what_each_input_is():
    class Shift(T.BaseTransform):
        def _get_params(self, inputs):
            return len(inputs)

        def _apply_image(self, image):
            return image + self.params

        def _apply_mask(self, mask):
            return -mask

    image, mask = np.ones((2, 2)), np.ones((2, 2))
    out = Shift(keys=("image", "mask"))((image, mask, "label"))
    assert isinstance(out, tuple) and out[2] == "label"
    np.testing.assert_array_equal(out[0], 4)
    np.testing.assert_array_equal(out[1], -1)
    with pytest.raises(NotImplementedError, match="_apply_sound"):
        Shift(keys=("sound",))
    with pytest.raises(ValueError, match="keys"):
        Shift(keys="image")
    with pytest.raises(NotImplementedError, match="image"):
        T.BaseTransform()(image)


# -- backends


def test_image_load_gives_what_the_backend_says(tmp_path):
    pixels = picture()
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    assert get_image_backend() == "pil"
    np.testing.assert_array_equal(np.asarray(image_load(path)), pixels)
    np.testing.assert_array_equal(image_load(path, "cv2"), pixels[:, :, ::-1])
    try:
        set_image_backend("cv2")
        assert isinstance(image_load(path), np.ndarray)
    finally:
        set_image_backend("pil")
    with pytest.raises(ValueError, match="'gif'"):
        set_image_backend("gif")
