# SPDX-License-Identifier: Apache-2.0
"""MNIST: 28x28 grey digits; pixels scaled to [-1, 1], labels 0 to 9."""

import gzip
import struct

import numpy as np

from .common import download

URL_PREFIX = "https://dataset.bj.bcebos.com/mnist/"


def train():
    """A reader of (float32[784], int) over the training digits."""
    return _reader("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")


def test():
    """A reader of (float32[784], int) over the test digits."""
    return _reader("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def read_idx(path, num_dims):
    """The bytes of a gzipped IDX file, in the shape that its header states."""
    with gzip.open(path, "rb") as file:
        data = file.read()
    magic = 0x0800 + num_dims  # unsigned bytes in num_dims dimensions
    head = 4 + 4 * num_dims
    if len(data) < head or struct.unpack(">I", data[:4])[0] != magic:
        raise ValueError(f"{path}: not an IDX file of bytes in {num_dims} dimensions")
    shape = struct.unpack(f">{num_dims}I", data[4:head])
    if len(data) - head != np.prod(shape, dtype=np.int64):
        raise ValueError(
            f"{path}: {len(data) - head} bytes of data, but the header says {shape}"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _reader(images_name, labels_name):
    images_path = download(URL_PREFIX + images_name, "mnist")
    labels_path = download(URL_PREFIX + labels_name, "mnist")

    def read():
        images = read_idx(images_path, 3)
        labels = read_idx(labels_path, 1)
        if len(images) != len(labels):
            raise ValueError(
                f"{images_path}: {len(images)} images, but {len(labels)} labels"
            )
        for image, label in zip(images, labels):
            pixels = image.reshape(-1).astype("float32")
            yield pixels / 255.0 * 2.0 - 1.0, int(label)

    return read
