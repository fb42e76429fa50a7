# SPDX-License-Identifier: Apache-2.0
"""MNIST and Fashion-MNIST: 28x28 grey images."""

from ...dataset.mnist import read_idx
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


class MNIST(Dataset):
    """Handwritten digits.

    Args:
        image_path, label_path: gzipped IDX files; by default those of MNIST's
            authors in ~/.cache/paddle/dataset/mnist. Nothing is downloaded.
        mode: 'train' or 'test'.
        transform: called with each image: a Pillow image, or with backend 'cv2'
            an array uint8 [28, 28].
        backend: 'pil' or 'cv2'; by default get_image_backend().

    A sample is the image, and its label as an int64 array of shape [1].
    """

    NAME = "mnist"
    URL = "https://dataset.bj.bcebos.com/mnist/"
    PREFIXES = {"train": "train", "test": "t10k"}

    def __init__(
        self,
        image_path=None,
        label_path=None,
        mode="train",
        transform=None,
        download=True,
        backend=None,
    ):
        super().__init__()
        self.mode = check_mode(mode, self.PREFIXES)
        self.backend = backend_or_default(backend)
        prefix = self.URL + self.PREFIXES[self.mode]
        self.image_path = find(image_path, prefix + "-images-idx3-ubyte.gz", self.NAME)
        self.label_path = find(label_path, prefix + "-labels-idx1-ubyte.gz", self.NAME)
        self.transform = transform
        self.dtype = get_default_dtype()
        with reading(self.image_path):
            self.images = read_idx(self.image_path, 3)
        with reading(self.label_path):
            self.labels = read_idx(self.label_path, 1).astype("int64").reshape(-1, 1)
        if len(self.images) != len(self.labels):
            raise ValueError(
                f"{self.image_path}: {len(self.images)} images, but "
                f"{len(self.labels)} labels in {self.label_path}"
            )

    def __getitem__(self, idx):
        image = from_pixels(self.images[idx], self.backend)
        return transformed(self, image), self.labels[idx].copy()

    def __len__(self):
        return len(self.labels)


class FashionMNIST(MNIST):
    """Articles of clothing, in the files and the form of MNIST; by default in
    ~/.cache/paddle/dataset/fashion-mnist."""

    NAME = "fashion-mnist"
    URL = "https://dataset.bj.bcebos.com/fashion_mnist/"
