# SPDX-License-Identifier: Apache-2.0
"""What `functional` does to numpy images, [H, W, C] or [H, W].

The results are those of OpenCV's routines, up to rounding, but it is not needed.
Channels are taken in the order red, green, blue.
"""

import numpy as np

from .geometry import fitted_size, four_sides

# Shares of red, green and blue in the brightness of a colour (ITU-R 601).
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def resize(img, size, interpolation):
    if interpolation not in _TAPS and interpolation != "area":
        known = (*_TAPS, "area")
        raise ValueError(
            f"resize: interpolation must be one of {known}, not {interpolation!r}"
        )
    height, width = fitted_size(img.shape[:2], size)
    if (height, width) == img.shape[:2]:
        return img
    out = img if interpolation == "nearest" else img.astype(np.float32)
    out = _resample(out, 0, height, interpolation)
    out = _resample(out, 1, width, interpolation)
    return _as_type(out, img.dtype, np.rint)


def _resample(img, axis, size, interpolation):
    """`img` with `size` rows (axis 0) or columns (axis 1)."""
    old = img.shape[axis]
    if old == size:
        return img
    if interpolation == "area" and size < old:
        return _average(img, axis, size)
    if interpolation == "nearest":
        return np.take(img, np.arange(size) * old // size, axis)
    # Where the centres of the new pixels lie among those of the old ones.
    places = (np.arange(size) + 0.5) * (old / size) - 0.5
    radius, kernel = _TAPS["bilinear" if interpolation == "area" else interpolation]
    first = np.floor(places).astype(int) - radius + 1
    weights = [kernel(places - (first + k)) for k in range(2 * radius)]
    total = sum(weights)
    shape = (-1,) + (1,) * (img.ndim - axis - 1)
    out = 0
    for k, weight in enumerate(weights):
        pixels = np.take(img, np.clip(first + k, 0, old - 1), axis)
        out = out + pixels * (weight / total).astype(np.float32).reshape(shape)
    return out


def _average(img, axis, size):
    """Each new pixel is the mean of the area of old ones that it covers."""
    old = img.shape[axis]
    edges = np.arange(size + 1) * (old / size)
    low, high = edges[:-1, None], edges[1:, None]
    at = np.arange(old)[None, :]
    covered = np.clip(np.minimum(high, at + 1) - np.maximum(low, at), 0, None)
    share = (covered * (size / old)).astype(np.float32)
    return np.moveaxis(np.tensordot(share, img, (1, axis)), 0, axis)


def _linear(x):
    return np.clip(1 - np.abs(x), 0, None)


def _cubic(x, a=-0.75):  # OpenCV's choice of the free parameter
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _lanczos(x):
    return np.where(np.abs(x) < 4, np.sinc(x) * np.sinc(x / 4), 0)


# Radius in pixels and weight by distance.
_TAPS = {
    "nearest": None,
    "bilinear": (1, _linear),
    "bicubic": (2, _cubic),
    "lanczos": (4, _lanczos),
}


def pad(img, padding, fill, padding_mode):
    left, top, right, bottom = four_sides(padding)
    sides = [(top, bottom), (left, right)] + [(0, 0)] * (img.ndim - 2)
    if padding_mode != "constant":
        return np.pad(img, sides, mode=padding_mode)
    height, width = img.shape[:2]
    shape = (height + top + bottom, width + left + right) + img.shape[2:]
    out = np.empty(shape, img.dtype)
    out[...] = fill
    out[top : top + height, left : left + width] = img
    return out


def crop(img, top, left, height, width):
    return img[top : top + height, left : left + width]


def hflip(img):
    return img[:, ::-1]


def vflip(img):
    return img[::-1]


def adjust_brightness(img, factor):
    return _as_type(img.astype(np.float32) * factor, img.dtype)


def adjust_contrast(img, factor):
    mean = np.mean(_grey(img))
    if img.dtype == np.uint8:
        mean = np.floor(mean + 0.5)
    return _as_type((img.astype(np.float32) - mean) * factor + mean, img.dtype)


def adjust_saturation(img, factor):
    if img.ndim == 2 or img.shape[2] == 1:
        return img
    grey = _grey(img)[:, :, None]
    return _as_type((img.astype(np.float32) - grey) * factor + grey, img.dtype)


def adjust_hue(img, factor):
    if img.dtype != np.uint8:
        raise TypeError(f"adjust_hue: needs an image of uint8, not {img.dtype}")
    if img.ndim == 2 or img.shape[2] == 1:
        return img
    from PIL import Image

    from . import functional_pil

    return np.array(functional_pil.adjust_hue(Image.fromarray(img), factor))


def rotate(img, angle, interpolation, expand, center, fill):
    """Turns each channel as Pillow does, in floating point."""
    from PIL import Image

    from . import functional_pil

    planes = img[:, :, None] if img.ndim == 2 else img
    fills = np.broadcast_to(np.asarray(fill, np.float64), planes.shape[2:])
    turned = [
        np.asarray(
            functional_pil.rotate(
                Image.fromarray(planes[:, :, c].astype(np.float32)),
                angle,
                interpolation,
                expand,
                center,
                float(fills[c]),
            )
        )
        for c in range(planes.shape[2])
    ]
    out = turned[0] if img.ndim == 2 else np.stack(turned, axis=2)
    return _as_type(out, img.dtype, np.rint)


def to_grayscale(img, num_output_channels):
    grey = _as_type(_grey(img), img.dtype, np.rint)[:, :, None]
    return np.repeat(grey, num_output_channels, axis=2)


def _grey(img):
    if img.ndim == 2:
        return img.astype(np.float32)
    if img.shape[2] == 1:
        return img[:, :, 0].astype(np.float32)
    grey = img[:, :, :3].astype(np.float32) @ _LUMA
    # Pillow and OpenCV keep grey levels whole.
    return np.rint(grey) if img.dtype == np.uint8 else grey


def _as_type(values, dtype, whole=np.trunc):
    """`values` as `dtype`; integers are made whole and kept in their range."""
    if values.dtype == dtype:
        return values
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        values = np.clip(whole(values), limits.min, limits.max)
    return values.astype(dtype)
