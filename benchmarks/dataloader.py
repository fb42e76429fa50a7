# SPDX-License-Identifier: Apache-2.0
"""paddle.io.DataLoader against torch's: images/s through two workers.

Both loaders get the same Dataset class, whose numpy transforms are those of a
small image classifier: pad, crop and flip at random, scale to float32. Runs
alternate, and the best of each side counts.
"""

import argparse
import time
import zlib

import numpy as np
import paddle.io
import torch.utils.data
from measure import Row

NUM_WORKERS = 2
BAR = 1.2


class Images:
    """32x32 colour images, augmented by numpy; item i always gives the same."""

    def __init__(self, size):
        rng = np.random.RandomState(0)
        self.images = rng.randint(0, 256, (size, 3, 32, 32), dtype=np.uint8)
        self.labels = rng.randint(0, 10, size).tolist()
        # Drawn here, so that the data does not depend on who loads it.
        self.flips = rng.rand(size) < 0.5
        self.shifts = rng.randint(0, 9, (size, 2)).tolist()
        self.mean = np.array([125.3, 123.0, 113.9], "float32").reshape(3, 1, 1)
        self.scale = 1 / np.array([63.0, 62.1, 66.7], "float32").reshape(3, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        padded = np.zeros((3, 40, 40), np.uint8)
        padded[:, 4:36, 4:36] = self.images[i]
        top, left = self.shifts[i]
        image = padded[:, top : top + 32, left : left + 32]
        if self.flips[i]:
            image = image[:, :, ::-1]
        image = (image - self.mean) * self.scale
        return image, self.labels[i]


def _paddle_epoch(dataset, batch_size):
    return paddle.io.DataLoader(dataset, batch_size=batch_size, num_workers=NUM_WORKERS)


def _torch_epoch(dataset, batch_size):
    return torch.utils.data.DataLoader(
        dataset, batch_size=batch_size, num_workers=NUM_WORKERS
    )


def _checksum(loader):
    """What two loaders share if their data and the order of it are equal."""
    total = []
    for images, labels in loader:
        images, labels = images.numpy(), labels.numpy()
        digest = zlib.crc32(images.tobytes())
        total.append((images.dtype, labels.dtype, images.shape, digest, *labels))
    return total


def _images_per_second(loader):
    """Over a whole epoch, the start of the workers included."""
    start = time.perf_counter()
    count = 0
    for _, labels in loader:
        count += labels.shape[0]
    return count / (time.perf_counter() - start)


def run(size=20000, batch_size=128, rounds=5):
    """Measures both sides, after making sure that both give the same data."""
    small = Images(1000)
    if _checksum(_paddle_epoch(small, batch_size)) != _checksum(
        _torch_epoch(small, batch_size)
    ):
        raise AssertionError("the two loaders give different data")
    dataset = Images(size)
    ours, peer = [], []
    for _ in range(rounds):
        ours.append(_images_per_second(_paddle_epoch(dataset, batch_size)))
        peer.append(_images_per_second(_torch_epoch(dataset, batch_size)))
    return [
        Row(
            "DataLoader, 2 workers",
            max(ours),
            max(peer),
            "images/s",
            BAR,
            higher_is_better=True,
        )
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=20000, help="images per epoch")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    for row in run(**vars(parser.parse_args())):
        print(row)
