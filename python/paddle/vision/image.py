# SPDX-License-Identifier: Apache-2.0
"""How image files are read: as Pillow images or as arrays."""

import numpy as np

_BACKENDS = ("pil", "cv2")
_backend = "pil"


def set_image_backend(backend):
    """'pil': datasets give Pillow images; 'cv2': numpy arrays [H, W, C].

    OpenCV itself is not needed for 'cv2'.
    """
    global _backend
    _backend = check_backend(backend)


def get_image_backend():
    """The backend that set_image_backend chose; 'pil' at first."""
    return _backend


def image_load(path, backend=None):
    """The image in a file: a Pillow image, or by backend 'cv2' an array uint8
    [H, W, 3] with the channels blue, green, red, as OpenCV reads it."""
    from PIL import Image

    image = Image.open(path)
    if check_backend(backend or _backend) == "pil":
        return image
    with image:
        return np.array(image.convert("RGB"))[:, :, ::-1].copy()


def check_backend(backend):
    if backend not in _BACKENDS:
        raise ValueError(f"image backend must be one of {_BACKENDS}, not {backend!r}")
    return backend
