# SPDX-License-Identifier: Apache-2.0
"""Dataset files: where they lie, members of archives by name, and their images."""

import contextlib
import gzip
import io
import os
import tarfile
import zlib

import numpy as np

from ..._core import DataLossError
from ...dataset.common import download as cached
from ..image import check_backend, get_image_backend


def find(path, url, folder, name=None):
    """`path` if it was given, else the place of `url` in Paddle's cache folder.

    FileNotFoundError says which file to put where.
    """
    if path is None:
        return cached(url, folder, save_name=name)
    if not os.path.exists(path):
        raise FileNotFoundError(f"dataset {folder}: there is no file {path}")
    return path


def check_mode(mode, known):
    """`mode` in lower case; ValueError if it is not one of `known`."""
    if not isinstance(mode, str) or mode.lower() not in known:
        raise ValueError(f"mode must be one of {tuple(known)}, not {mode!r}")
    return mode.lower()


def backend_or_default(backend):
    return check_backend(backend or get_image_backend())


def decode(data, backend, mode="RGB"):
    """The image in the bytes of a file, as `backend` says; `mode` is Pillow's."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    if mode is not None:
        image = image.convert(mode)
    return image if backend == "pil" else np.array(image)


def from_pixels(array, backend):
    """The image that a uint8 array holds, as `backend` says."""
    if backend != "pil":
        return array
    from PIL import Image

    return Image.fromarray(array)


def transformed(dataset, image):
    """What a sample of `dataset` holds for an image: Pillow's, or numbers of the
    default type."""
    if dataset.transform is not None:
        image = dataset.transform(image)
    return image.astype(dataset.dtype) if dataset.backend == "cv2" else image


@contextlib.contextmanager
def reading(path):
    """Errors of a damaged file in the block become one that names `path`."""
    try:
        yield
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise DataLossError(f"{path}: the file is damaged: {error}") from error
    except (DataLossError, ValueError, KeyError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


class Members:
    """The contents of an archive's files for which `wanted(name)` holds.

    Of a plain archive only the places are kept, and a file is read when asked
    for. A compressed one cannot be entered in the middle: the files are kept in
    memory as they are, which workers share.
    """

    def __init__(self, path, wanted):
        self._path = path
        self._found = {}
        with reading(path), tarfile.open(path) as archive:
            plain = isinstance(archive.fileobj, io.BufferedReader)
            for member in archive:
                if member.isfile() and wanted(member.name):
                    self._found[member.name] = (
                        (member.offset_data, member.size)
                        if plain
                        else archive.extractfile(member).read()
                    )

    def names(self):
        return list(self._found)

    def __getitem__(self, name):
        try:
            found = self._found[name]
        except KeyError:
            raise DataLossError(f"{self._path}: has no file {name}") from None
        if isinstance(found, bytes):
            return found
        offset, size = found
        with open(self._path, "rb") as file:
            file.seek(offset)
            return file.read(size)
