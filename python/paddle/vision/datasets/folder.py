# SPDX-License-Identifier: Apache-2.0
"""Images in folders of one's own."""

import os

import numpy as np

from ...framework.dtype import get_default_dtype
from ...io import Dataset
from ..image import get_image_backend

IMG_EXTENSIONS = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)


class DatasetFolder(Dataset):
    """Samples in a folder for each class: root/dog/a.png, root/cat/b/c.png.

    Args:
        root: the folder.
        loader: path to sample; by default the image as get_image_backend() says:
            a Pillow image, or an array uint8 [H, W, 3], red first.
        extensions: endings of the files to take; by default those of images.
        transform: called with each sample.
        is_valid_file: path to bool; takes the place of `extensions`.

    A sample is what the loader gives and the number of its class. `classes` are
    the names in order, `class_to_idx` their numbers, `samples` pairs of path and
    number, `targets` the numbers.
    """

    def __init__(
        self,
        root,
        loader=None,
        extensions=None,
        transform=None,
        is_valid_file=None,
    ):
        super().__init__()
        self.root = root
        self.transform = transform
        self.loader = default_loader if loader is None else loader
        self.extensions = extensions
        self.dtype = get_default_dtype()
        accept = _filter(extensions, is_valid_file)
        self.classes = sorted(
            entry.name for entry in os.scandir(root) if entry.is_dir()
        )
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (path, number)
            for name, number in self.class_to_idx.items()
            for path in _files(os.path.join(root, name), accept)
        ]
        if not self.samples:
            raise RuntimeError(_nothing(f"the folders in {root}", extensions))
        self.targets = [number for _, number in self.samples]

    def __getitem__(self, index):
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        return sample, target

    def __len__(self):
        return len(self.samples)


class ImageFolder(Dataset):
    """All images below a folder, without labels: a sample is a list of one.

    The arguments are those of DatasetFolder; `samples` are the paths.
    """

    def __init__(
        self,
        root,
        loader=None,
        extensions=None,
        transform=None,
        is_valid_file=None,
    ):
        super().__init__()
        self.root = root
        self.transform = transform
        self.loader = default_loader if loader is None else loader
        self.extensions = extensions
        self.dtype = get_default_dtype()
        self.samples = list(_files(root, _filter(extensions, is_valid_file)))
        if not self.samples:
            raise RuntimeError(_nothing(root, extensions))

    def __getitem__(self, index):
        sample = self.loader(self.samples[index])
        if self.transform is not None:
            sample = self.transform(sample)
        return [sample]

    def __len__(self):
        return len(self.samples)


def default_loader(path):
    """The image in a file, as get_image_backend() says, in colour."""
    from PIL import Image

    with Image.open(path) as image:
        image = image.convert("RGB")
    return image if get_image_backend() == "pil" else np.array(image)


def _filter(extensions, is_valid_file):
    if extensions is not None and is_valid_file is not None:
        raise ValueError("give either extensions or is_valid_file, not both")
    if is_valid_file is not None:
        return is_valid_file
    endings = tuple(ending.lower() for ending in extensions or IMG_EXTENSIONS)
    return lambda path: path.lower().endswith(endings)


def _files(root, accept):
    """The accepted files below `root`, in the same order everywhere."""
    for folder, inner, names in os.walk(root, followlinks=True):
        inner.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if accept(path):
                yield path


def _nothing(where, extensions):
    endings = ", ".join(extensions or IMG_EXTENSIONS)
    return f"no samples in {where}: looked for files that end in {endings}"
