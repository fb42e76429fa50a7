# SPDX-License-Identifier: Apache-2.0
"""Operations on one image.

An image is a Pillow image, a numpy array [H, W, C] or [H, W], or a Tensor
[C, H, W]; the result is of the same kind. TypeError on anything else.
"""

import numbers

import numpy as np

from ... import _names
from ..._core import Tensor, from_dlpack
from . import functional_cv2
from .geometry import pair

_PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


def is_pil_image(img):
    """Whether `img` is a Pillow image; does not import Pillow to find out."""
    return hasattr(img, "getbands") and hasattr(img, "transpose")


def to_tensor(pic, data_format="CHW"):
    """A float32 Tensor with bytes scaled to [0, 1]; other types keep their values.

    `pic` is a Pillow image or an array [H, W, C] or [H, W]. The Tensor lies in
    the memory of the CPU: transforms run in workers that must not use a GPU.
    """
    if data_format not in ("CHW", "HWC"):
        raise ValueError(
            f"to_tensor: data_format must be 'CHW' or 'HWC': {data_format!r}"
        )
    if isinstance(pic, Tensor):
        return pic
    pixels = _pixels(pic, "to_tensor")
    if data_format == "CHW":
        pixels = pixels.transpose(2, 0, 1)
    if pixels.dtype == np.uint8:
        pixels = np.divide(pixels, np.float32(255), dtype=np.float32, order="C")
    else:
        kept = np.float32 if pixels.dtype == bool else pixels.dtype
        pixels = np.array(pixels, kept, order="C")
    return _tensor(pixels)


def resize(img, size, interpolation="bilinear"):
    """Scales to `size`: (height, width), or one number for the shorter edge.

    Interpolation: 'nearest', 'bilinear', 'bicubic', 'area', 'lanczos', and for
    Pillow images also 'box' and 'hamming'. Pillow averages over the pixels that
    a new one covers; arrays are sampled, as OpenCV does.
    """
    return _call("resize", img, size, interpolation)


def pad(img, padding, fill=0, padding_mode="constant"):
    """Adds a margin: one width, (left and right, top and bottom), or (left, top,
    right, bottom); filled with `fill`, one value or one for each channel, or by
    mode 'edge', 'reflect' or 'symmetric' from the image."""
    if padding_mode not in _PADDING_MODES:
        raise ValueError(
            f"pad: padding_mode must be one of {_PADDING_MODES}, not {padding_mode!r}"
        )
    return _call("pad", img, padding, fill, padding_mode)


def crop(img, top, left, height, width):
    """The part of the image that starts at row `top` and column `left`."""
    return _call("crop", img, top, left, height, width)


def center_crop(img, output_size):
    """The part of size `output_size` in the middle."""
    height, width = pair(output_size, "center_crop")
    full_height, full_width = image_size(img)
    top = round((full_height - height) / 2.0)
    left = round((full_width - width) / 2.0)
    return crop(img, top, left, height, width)


def hflip(img):
    """Mirrors left and right."""
    return _call("hflip", img)


def vflip(img):
    """Mirrors top and bottom."""
    return _call("vflip", img)


def adjust_brightness(img, brightness_factor):
    """0 gives black, 1 the image itself, 2 twice as bright."""
    _check_factor("adjust_brightness", brightness_factor)
    return _call("adjust_brightness", img, brightness_factor)


def adjust_contrast(img, contrast_factor):
    """0 gives plain grey, 1 the image itself, 2 twice the contrast."""
    _check_factor("adjust_contrast", contrast_factor)
    return _call("adjust_contrast", img, contrast_factor)


def adjust_saturation(img, saturation_factor):
    """0 gives a grey image, 1 the image itself, 2 twice the saturation."""
    _check_factor("adjust_saturation", saturation_factor)
    return _call("adjust_saturation", img, saturation_factor)


def adjust_hue(img, hue_factor):
    """Turns the hue by `hue_factor` of the full circle, -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(
            f"adjust_hue: hue_factor must be in [-0.5, 0.5], not {hue_factor}"
        )
    return _call("adjust_hue", img, hue_factor)


def rotate(img, angle, interpolation="nearest", expand=False, center=None, fill=0):
    """Turns by `angle` degrees, counter-clockwise, around `center` (x, y).

    With `expand` the result is large enough for the whole image.
    """
    if not isinstance(angle, numbers.Number):
        raise TypeError(f"rotate: angle must be a number, not {angle!r}")
    # False is what the parameter was called with before it had names.
    return _call("rotate", img, angle, interpolation or "nearest", expand, center, fill)


def to_grayscale(img, num_output_channels=1):
    """A grey image of one channel, or of three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError(
            "to_grayscale: num_output_channels must be 1 or 3, not "
            f"{num_output_channels}"
        )
    return _call("to_grayscale", img, num_output_channels)


def normalize(img, mean, std, data_format="CHW", to_rgb=False):
    """(img - mean) / std for each channel; an array, or a Tensor of a Tensor.

    With `to_rgb` the order of the channels is reversed first.
    """
    if data_format not in ("CHW", "HWC"):
        raise ValueError(
            f"normalize: data_format must be 'CHW' or 'HWC': {data_format!r}"
        )
    pixels = img.numpy() if isinstance(img, Tensor) else np.asarray(img)
    pixels = pixels.astype(np.float32, copy=False)
    axis = 0 if data_format == "CHW" else pixels.ndim - 1
    if to_rgb:
        pixels = np.flip(pixels, axis)
    mean = _per_channel("mean", mean, pixels, axis)
    std = _per_channel("std", std, pixels, axis)
    out = (pixels - mean) / std
    return _tensor(out, like=img) if isinstance(img, Tensor) else out


def image_size(img):
    """(height, width) of an image."""
    if is_pil_image(img):
        return img.size[::-1]
    if isinstance(img, Tensor):
        return tuple(img.shape[-2:])
    if isinstance(img, np.ndarray) and img.ndim in (2, 3):
        return img.shape[:2]
    raise TypeError(_not_an_image("transform", img))


def _call(name, img, *args):
    """Runs the function `name` of the module for the kind of `img`."""
    if is_pil_image(img):
        from . import functional_pil

        return getattr(functional_pil, name)(img, *args)
    function = getattr(functional_cv2, name)
    if isinstance(img, np.ndarray) and img.ndim in (2, 3):
        return function(img, *args)
    if isinstance(img, Tensor) and img.ndim == 3:
        out = function(img.numpy().transpose(1, 2, 0), *args)
        return _tensor(out.transpose(2, 0, 1), like=img)
    raise TypeError(_not_an_image(name, img))


def _pixels(pic, what):
    """[H, W, C] of a Pillow image or an array."""
    if is_pil_image(pic):
        from . import functional_pil

        return functional_pil.to_array(pic)
    if isinstance(pic, np.ndarray) and pic.ndim in (2, 3):
        return pic[:, :, None] if pic.ndim == 2 else pic
    raise TypeError(_not_an_image(what, pic))


def _not_an_image(what, img):
    kind = type(img).__name__
    if isinstance(img, (np.ndarray, Tensor)):
        kind += f" of shape {list(img.shape)}"
    return (
        f"{what}: needs a Pillow image, an array [H, W, C] or [H, W], or a Tensor "
        f"[C, H, W], not {kind}"
    )


def _tensor(pixels, like=None):
    """A Tensor over the memory of `pixels`, on the CPU or where `like` is."""
    tensor = from_dlpack(np.ascontiguousarray(pixels))
    if like is None or like._device == "cpu":
        return tensor
    return tensor._to(like._device, True)


def _check_factor(what, factor):
    if factor < 0:
        raise ValueError(f"{what}: the factor must not be negative: {factor}")


def _per_channel(what, values, pixels, axis):
    values = np.asarray(values, np.float32).reshape(-1)
    channels = pixels.shape[axis] if pixels.ndim == 3 else 1
    if values.size not in (1, channels):
        raise ValueError(
            f"normalize: {values.size} values of {what} for {channels} channels of "
            f"an image {list(pixels.shape)}"
        )
    shape = [1] * pixels.ndim
    shape[axis] = -1
    return values.reshape(shape)


__all__ = _names.own(globals(), "image_size", "is_pil_image")
