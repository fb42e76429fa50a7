# SPDX-License-Identifier: Apache-2.0
"""Oxford 102 flowers."""

import numpy as np

from ...dataset.matlab import load_matrices
from ...framework.dtype import get_default_dtype
from ...io import Dataset
from .archive import (
    Members,
    backend_or_default,
    check_mode,
    decode,
    find,
    reading,
    transformed,
)

_URL = "http://paddlemodels.bj.bcebos.com/flowers/"
# The set that its authors call "test" is the largest; Paddle trains on it.
_SETS = {"train": "tstid", "test": "trnid", "valid": "valid"}


class Flowers(Dataset):
    """Photographs of 102 kinds of flowers.

    Args:
        data_file, label_file, setid_file: by default 102flowers.tgz,
            imagelabels.mat and setid.mat in ~/.cache/paddle/dataset/flowers.
            Nothing is downloaded.
        mode: 'train', 'valid' or 'test'.
        transform: called with each image: a Pillow image, or with backend 'cv2'
            an array uint8 [H, W, 3].
        backend: 'pil' or 'cv2'; by default get_image_backend().

    A sample is the image, and its label, 1 to 102, as an int64 array of shape
    [1].
    """

    def __init__(
        self,
        data_file=None,
        label_file=None,
        setid_file=None,
        mode="train",
        transform=None,
        download=True,
        backend=None,
    ):
        super().__init__()
        self.mode = check_mode(mode, _SETS)
        self.backend = backend_or_default(backend)
        self.data_file = find(data_file, _URL + "102flowers.tgz", "flowers")
        self.label_file = find(label_file, _URL + "imagelabels.mat", "flowers")
        self.setid_file = find(setid_file, _URL + "setid.mat", "flowers")
        self.transform = transform
        self.dtype = get_default_dtype()
        with reading(self.label_file):
            self.labels = load_matrices(self.label_file)["labels"].ravel()
        with reading(self.setid_file):
            self.indexes = load_matrices(self.setid_file)[_SETS[self.mode]].ravel()
        wanted = {_name(number) for number in self.indexes}
        self._files = Members(self.data_file, wanted.__contains__)

    def __getitem__(self, idx):
        number = self.indexes[idx]
        image = decode(self._files[_name(number)], self.backend)
        return transformed(self, image), np.array([self.labels[number - 1]], np.int64)

    def __len__(self):
        return len(self.indexes)


def _name(number):
    return f"jpg/image_{int(number):05d}.jpg"
