# SPDX-License-Identifier: Apache-2.0
"""Image steps of the old dataset readers: arrays [H, W, C], channels BGR."""

import io

import numpy as np


def load_image_bytes(bytes, is_color=True):
    """Decodes an image file's bytes to uint8, [H, W, 3] or grey [H, W]."""
    from PIL import Image

    image = Image.open(io.BytesIO(bytes)).convert("RGB" if is_color else "L")
    array = np.asarray(image)
    return array[:, :, ::-1].copy() if is_color else array.copy()


def load_image(file, is_color=True):
    """As load_image_bytes, from a path."""
    with open(file, "rb") as stream:
        return load_image_bytes(stream.read(), is_color)


def resize_short(im, size):
    """Scales the shorter edge to `size`, keeping the proportions."""
    from PIL import Image

    height, width = im.shape[:2]
    scale = size / min(height, width)
    extent = max(size, int(width * scale)), max(size, int(height * scale))
    return np.asarray(Image.fromarray(im).resize(extent, Image.BICUBIC))


def to_chw(im, order=(2, 0, 1)):
    """Moves the channels to the front."""
    return im.transpose(order)


def center_crop(im, size, is_color=True):
    """The `size` x `size` pixels in the middle."""
    top = (im.shape[0] - size) // 2
    left = (im.shape[1] - size) // 2
    return im[top : top + size, left : left + size]


def random_crop(im, size, is_color=True):
    """`size` x `size` pixels from a random place, by numpy's generator."""
    top = np.random.randint(0, im.shape[0] - size + 1)
    left = np.random.randint(0, im.shape[1] - size + 1)
    return im[top : top + size, left : left + size]


def left_right_flip(im, is_color=True):
    """Mirrors left and right."""
    return im[:, ::-1]


def simple_transform(im, resize_size, crop_size, is_train, is_color=True, mean=None):
    """Resize, crop (and flip, at random when training), to float32 [C, H, W]."""
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size, is_color)
        if np.random.randint(2) == 0:
            im = left_right_flip(im, is_color)
    else:
        im = center_crop(im, crop_size, is_color)
    if im.ndim == 3:
        im = to_chw(im)
    im = im.astype("float32")
    if mean is not None:
        mean = np.array(mean, "float32")
        im = im - (mean.reshape(-1, 1, 1) if mean.ndim == 1 and is_color else mean)
    return im


def load_and_transform(
    filename, resize_size, crop_size, is_train, is_color=True, mean=None
):
    """simple_transform of an image file."""
    im = load_image(filename, is_color)
    return simple_transform(im, resize_size, crop_size, is_train, is_color, mean)
