# SPDX-License-Identifier: Apache-2.0
"""Pascal VOC 2012: photographs and the classes of their pixels."""

from ...framework.dtype import get_default_dtype
from ...io import Dataset
from .archive import (
    Members,
    backend_or_default,
    check_mode,
    decode,
    find,
    transformed,
)

_URL = "https://dataset.bj.bcebos.com/voc/VOCtrainval_11-May-2012.tar"
_ROOT = "VOCdevkit/VOC2012/"
# As Paddle divides them: there are no labels for the true test images.
_SETS = {"train": "trainval", "test": "train", "valid": "val"}


class VOC2012(Dataset):
    """Images for segmentation.

    Args:
        data_file: the archive; by default VOCtrainval_11-May-2012.tar in
            ~/.cache/paddle/dataset/voc2012. Nothing is downloaded.
        mode: 'train', 'valid' or 'test'.
        transform: called with each photograph, as the backend gives it.
        backend: 'pil' or 'cv2'; by default get_image_backend().

    A sample is the photograph and an image of the same size with the class of
    each pixel.
    """

    def __init__(
        self,
        data_file=None,
        mode="train",
        transform=None,
        download=True,
        backend=None,
    ):
        super().__init__()
        self.mode = check_mode(mode, _SETS)
        self.backend = backend_or_default(backend)
        self.data_file = find(data_file, _URL, "voc2012")
        self.transform = transform
        self.dtype = get_default_dtype()
        self._files = Members(self.data_file, lambda name: name.startswith(_ROOT))
        listing = f"{_ROOT}ImageSets/Segmentation/{_SETS[self.mode]}.txt"
        self._names = self._files[listing].decode().split()

    def __getitem__(self, idx):
        name = self._names[idx]
        photograph = self._files[f"{_ROOT}JPEGImages/{name}.jpg"]
        classes = self._files[f"{_ROOT}SegmentationClass/{name}.png"]
        image = decode(photograph, self.backend)
        label = decode(classes, self.backend, None)
        if self.backend == "cv2":
            label = label.astype(self.dtype)
        return transformed(self, image), label

    def __len__(self):
        return len(self._names)
