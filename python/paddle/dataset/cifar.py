# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and CIFAR-100: 32x32 colour images; pixels scaled to [0, 1]."""

import tarfile

import numpy as np

from ..framework import pickle_reader
from .common import download

URL_PREFIX = "https://dataset.bj.bcebos.com/cifar/"
CIFAR10_URL = URL_PREFIX + "cifar-10-python.tar.gz"
CIFAR100_URL = URL_PREFIX + "cifar-100-python.tar.gz"


def train10(cycle=False):
    """A reader of (float32[3072], int); with `cycle` it never ends."""
    return _reader(CIFAR10_URL, "data_batch", cycle)


def test10(cycle=False):
    """As train10, over the test images."""
    return _reader(CIFAR10_URL, "test_batch", cycle)


def train100():
    """A reader of (float32[3072], int) with the fine labels."""
    return _reader(CIFAR100_URL, "train", False)


def test100():
    """As train100, over the test images."""
    return _reader(CIFAR100_URL, "test", False)


def _reader(url, part, cycle):
    path = download(url, "cifar")

    def read():
        while True:
            for images, labels in _batches(path, part):
                for image, label in zip(images, labels):
                    yield (image / 255.0).astype(np.float32), int(label)
            if not cycle:
                return

    return read


def _batches(path, part):
    with tarfile.open(path) as archive:
        members = [m for m in archive.getmembers() if part in m.name and m.isfile()]
        if not members:
            raise ValueError(f"{path}: has no file named {part}")
        for member in members:
            batch = _read(archive.extractfile(member), f"{path}: {member.name}")
            labels = batch.get("labels", batch.get("fine_labels"))
            if labels is None or "data" not in batch:
                raise ValueError(f"{path}: {member.name} has no images and labels")
            yield batch["data"], labels


def _read(file, name):
    batch = pickle_reader.read_file(file, name)
    if not isinstance(batch, dict):
        raise ValueError(f"{name} holds no dict")
    # Python 2 and 3 wrote the keys in their own ways.
    return {k.decode() if isinstance(k, bytes) else k: v for k, v in batch.items()}
