# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and CIFAR-100: 32x32 colour images."""

import tarfile

import numpy as np

from ...framework import pickle_reader
from ...framework.dtype import get_default_dtype
from ...io import Dataset
from .archive import (
    backend_or_default,
    check_mode,
    find,
    from_pixels,
    reading,
    transformed,
)

_URL = "https://dataset.bj.bcebos.com/cifar/"


class Cifar10(Dataset):
    """CIFAR-10 from the archive of its authors.

    Args:
        data_file: the archive; by default cifar-10-python.tar.gz in
            ~/.cache/paddle/dataset/cifar. Nothing is downloaded.
        mode: 'train' or 'test'.
        transform: called with each image: a Pillow image, or with backend 'cv2'
            an array uint8 [32, 32, 3].
        backend: 'pil' or 'cv2'; by default get_image_backend().

    A sample is the image, and its label as an int64 array of no dimensions.
    """

    NAME = "cifar-10-python.tar.gz"
    NUM_CLASSES = 10
    # What the names of the files for a mode contain, and where labels are.
    PARTS = {"train": "data_batch", "test": "test_batch"}
    LABELS = "labels"

    def __init__(
        self,
        data_file=None,
        mode="train",
        transform=None,
        download=True,
        backend=None,
    ):
        super().__init__()
        self.mode = check_mode(mode, self.PARTS)
        self.backend = backend_or_default(backend)
        self.data_file = find(data_file, _URL + self.NAME, "cifar")
        self.transform = transform
        self.dtype = get_default_dtype()
        with reading(self.data_file):
            self._images, self._labels = self._load()

    def __getitem__(self, idx):
        image = from_pixels(self._images[idx], self.backend)
        return transformed(self, image), np.array(self._labels[idx])

    def __len__(self):
        return len(self._labels)

    def _load(self):
        images, labels = [], []
        with tarfile.open(self.data_file) as archive:
            for member in archive:
                part = member.name.rsplit("/", 1)[-1]
                if member.isfile() and self.PARTS[self.mode] in part:
                    file = archive.extractfile(member)
                    batch = pickle_reader.read_file(file, part)
                    pixels, classes = self._check(batch, part)
                    images.append(pixels)
                    labels.append(classes)
        if not images:
            raise ValueError(f"has no file named {self.PARTS[self.mode]}")
        planes = np.concatenate(images).reshape(-1, 3, 32, 32)
        pixels = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        return pixels, np.concatenate(labels)

    def _check(self, batch, part):
        if not isinstance(batch, dict):
            raise ValueError(f"{part} holds no dict")
        # Python 2 and 3 wrote the keys in their own ways.
        batch = {k.decode() if isinstance(k, bytes) else k: v for k, v in batch.items()}
        pixels, labels = batch.get("data"), batch.get(self.LABELS)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
            raise ValueError(f"{part} has no images")
        if pixels.size != 3072 * len(pixels):
            raise ValueError(f"{part} has images of shape {pixels.shape[1:]}")
        if labels is None or len(labels) != len(pixels):
            raise ValueError(f"{part} has no {self.LABELS} for {len(pixels)} images")
        labels = np.asarray(labels, np.int64)
        if labels.size and not 0 <= labels.min() <= labels.max() < self.NUM_CLASSES:
            raise ValueError(
                f"{part} has labels from {labels.min()} to {labels.max()}, not "
                f"0 to {self.NUM_CLASSES - 1}"
            )
        return pixels.reshape(-1, 3072), labels


class Cifar100(Cifar10):
    """As Cifar10, with the 100 fine classes of cifar-100-python.tar.gz."""

    NAME = "cifar-100-python.tar.gz"
    NUM_CLASSES = 100
    PARTS = {"train": "train", "test": "test"}
    LABELS = "fine_labels"
