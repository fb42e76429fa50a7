# SPDX-License-Identifier: Apache-2.0
"""What `functional` does to Pillow images. Sizes are (height, width)."""

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from .geometry import fitted_size, four_sides

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "box": Image.Resampling.BOX,
    "area": Image.Resampling.BOX,
    "lanczos": Image.Resampling.LANCZOS,
    "hamming": Image.Resampling.HAMMING,
}

# How the pixels of the rarer modes are held in an array; others are bytes.
_PIXEL_TYPES = {"I": np.int32, "I;16": np.int16, "F": np.float32}


def to_array(img):
    """The pixels as [H, W, C] with memory of their own."""
    if img.mode in _PIXEL_TYPES:
        pixels = np.array(img, _PIXEL_TYPES[img.mode])
    elif img.mode == "1":
        pixels = np.array(img, np.uint8) * np.uint8(255)
    else:
        pixels = np.array(img, np.uint8)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def resize(img, size, interpolation):
    filter = _filter(interpolation, "resize")
    height, width = fitted_size(img.size[::-1], size)
    if (width, height) == img.size:
        return img
    return img.resize((width, height), filter)


def pad(img, padding, fill, padding_mode):
    left, top, right, bottom = four_sides(padding)
    if padding_mode == "constant":
        if isinstance(fill, (list, tuple)):
            fill = tuple(fill)
        elif img.mode in ("RGB", "RGBA"):
            fill = (fill,) * len(img.getbands())
        palette = img.getpalette() if img.mode == "P" else None
        img = ImageOps.expand(img, (left, top, right, bottom), fill)
        if palette:
            img.putpalette(palette)
        return img
    pixels = np.asarray(img)
    sides = [(top, bottom), (left, right)] + [(0, 0)] * (pixels.ndim - 2)
    padded = Image.fromarray(np.pad(pixels, sides, mode=padding_mode))
    if img.mode == "P":
        padded.putpalette(img.getpalette())
    return padded


def crop(img, top, left, height, width):
    return img.crop((left, top, left + width, top + height))


def hflip(img):
    return img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vflip(img):
    return img.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def adjust_brightness(img, factor):
    return ImageEnhance.Brightness(img).enhance(factor)


def adjust_contrast(img, factor):
    return ImageEnhance.Contrast(img).enhance(factor)


def adjust_saturation(img, factor):
    return ImageEnhance.Color(img).enhance(factor)


def adjust_hue(img, factor):
    if img.mode in ("L", "1", "I", "F"):
        return img
    hue, saturation, value = img.convert("HSV").split()
    # The hue is a byte that wraps around.
    turned = np.asarray(hue).astype(np.int32) + int(factor * 255)
    hue = Image.fromarray((turned % 256).astype(np.uint8))
    return Image.merge("HSV", (hue, saturation, value)).convert(img.mode)


def rotate(img, angle, interpolation, expand, center, fill):
    filter = _filter(interpolation, "rotate", ("nearest", "bilinear", "bicubic"))
    if isinstance(fill, (list, tuple)):
        fill = tuple(fill)
    elif img.mode in ("RGB", "RGBA"):
        fill = (fill,) * len(img.getbands())
    return img.rotate(angle, filter, expand, center, fillcolor=fill)


def to_grayscale(img, num_output_channels):
    grey = img.convert("L")
    return grey if num_output_channels == 1 else Image.merge("RGB", [grey] * 3)


def _filter(name, what, known=tuple(_FILTERS)):
    if name not in known:
        raise ValueError(f"{what}: interpolation must be one of {known}, not {name!r}")
    return _FILTERS[name]
