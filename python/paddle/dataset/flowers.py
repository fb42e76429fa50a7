# SPDX-License-Identifier: Apache-2.0
"""Oxford 102 flowers: images as float32[3 * 224 * 224], labels 0 to 101."""

import functools
import itertools
import os
import tarfile

from paddle.reader import map_readers, xmap_readers

from .common import download
from .image import load_image_bytes, simple_transform
from .matlab import load_matrices

URL_PREFIX = "http://paddlemodels.bj.bcebos.com/flowers/"
DATA_URL = URL_PREFIX + "102flowers.tgz"
LABEL_URL = URL_PREFIX + "imagelabels.mat"
SETID_URL = URL_PREFIX + "setid.mat"
# The set called "test" is the largest; Paddle trains on it.
TRAIN_FLAG = "tstid"
TEST_FLAG = "trnid"
VALID_FLAG = "valid"

MEAN = [103.94, 116.78, 123.68]


def default_mapper(is_train, sample):
    """(file bytes, label) to (pixels, label)."""
    data, label = sample
    image = simple_transform(load_image_bytes(data), 256, 224, is_train, mean=MEAN)
    return image.flatten().astype("float32"), label


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def train(mapper=train_mapper, buffered_size=1024, use_xmap=True, cycle=False):
    """A reader of mapper((file bytes, label)); with `cycle` it never ends.

    With `use_xmap` threads map up to `buffered_size` images ahead.
    """
    return _reader(TRAIN_FLAG, mapper, buffered_size, use_xmap, cycle)


def test(mapper=test_mapper, buffered_size=1024, use_xmap=True, cycle=False):
    """As train, over the test images."""
    return _reader(TEST_FLAG, mapper, buffered_size, use_xmap, cycle)


def valid(mapper=test_mapper, buffered_size=1024, use_xmap=True):
    """As train, over the validation images."""
    return _reader(VALID_FLAG, mapper, buffered_size, use_xmap, False)


def _reader(flag, mapper, buffered_size, use_xmap, cycle):
    images = download(DATA_URL, "flowers")
    labels = load_matrices(download(LABEL_URL, "flowers"))["labels"].ravel()
    numbers = load_matrices(download(SETID_URL, "flowers"))[flag].ravel()
    by_name = {f"jpg/image_{n:05d}.jpg": int(labels[n - 1]) - 1 for n in numbers}

    def read():
        for _ in itertools.count() if cycle else range(1):
            # In the archive's order: seeking in a compressed file starts anew.
            with tarfile.open(images) as archive:
                for member in archive:
                    label = by_name.get(member.name)
                    if label is not None:
                        yield archive.extractfile(member).read(), label

    if use_xmap:
        threads = min(4, os.cpu_count() or 1)
        return xmap_readers(mapper, read, threads, buffered_size)
    return map_readers(mapper, read)
