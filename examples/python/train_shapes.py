# SPDX-License-Identifier: Apache-2.0
"""Trains a small network to tell noisy pictures of shapes apart, in one process or
in many. The pictures are drawn here, so nothing has to be fetched:

    python examples/python/train_shapes.py
    fleetrun --nproc_per_node 2 examples/python/train_shapes.py

The batch is shared out among the processes, so that both learn the same.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed import fleet
from paddle.io import DataLoader, Dataset, DistributedBatchSampler
from progress import Progress

SIZE = 32
NAMES = ["disc", "ring", "square", "frame", "cross", "saltire", "bars", "triangle"]


def draw(kind, rng):
    """One picture of SIZE x SIZE in [0, 1]: a shape somewhere, of some size, under
    noise and on a sloping background."""
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype("float32")
    cx, cy = rng.uniform(12, 20, 2)
    r = rng.uniform(6, 10)
    u, v = x - cx, y - cy
    distance = np.hypot(u, v)
    box = np.maximum(abs(u), abs(v))
    inside = {
        "disc": distance < r,
        "ring": abs(distance - r) < 1.8,
        "square": box < r * 0.85,
        "frame": abs(box - r * 0.85) < 1.5,
        "cross": (np.minimum(abs(u), abs(v)) < 1.8) & (box < r),
        "saltire": (abs(abs(u) - abs(v)) < 2.2) & (box < r * 0.8),
        "bars": (np.floor(v / 2.5) % 2 == 0) & (box < r),
        "triangle": (v > abs(u) * 1.6 - r) & (v < r * 0.7),
    }[kind]
    slope = rng.uniform(-0.01, 0.01, 2)
    picture = 0.3 + slope[0] * u + slope[1] * v + rng.uniform(0.25, 0.6) * inside
    return np.clip(picture + rng.normal(0, 0.15, (SIZE, SIZE)), 0, 1)


class Shapes(Dataset):
    """`count` pictures with their labels; the same seed draws the same pictures."""

    def __init__(self, count: int, seed: int):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(NAMES), count)
        self.pictures = np.stack([draw(NAMES[k], rng) for k in self.labels])
        self.pictures = self.pictures.astype("float32")[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.pictures[i] - 0.4, self.labels[i]


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 16, 3, padding=1),
            nn.BatchNorm2D(16),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(16, 32, 3, padding=1),
            nn.BatchNorm2D(32),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2D(4),
        )
        self.classify = nn.Linear(32 * 16, len(NAMES))

    def forward(self, x):
        return self.classify(paddle.flatten(self.features(x), 1))


def train(model, data, epochs, batch_size, rate):
    """Trains; returns the loss of every step, the mean over all ranks."""
    sampler = DistributedBatchSampler(
        data, batch_size // fleet.worker_num(), shuffle=True, drop_last=True
    )
    loader = DataLoader(data, batch_sampler=sampler)
    total = epochs * len(loader)
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(rate, T_max=total)
    adam = paddle.optimizer.Adam(schedule, parameters=model.parameters())
    adam = fleet.distributed_optimizer(adam)
    model = fleet.distributed_model(model)
    progress = Progress(total) if fleet.is_first_worker() else None
    losses, accuracy = [], 0.0
    model.train()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for pictures, labels in loader:
            logits = model(pictures)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            adam.step()
            adam.clear_grad()
            schedule.step()
            losses.append(float(loss))
            if progress:
                hit = float(paddle.metric.accuracy(logits, labels.unsqueeze(1)))
                accuracy += (hit - accuracy) * 0.05
                progress.step(loss=losses[-1], accuracy=accuracy)
    total = paddle.to_tensor(losses)
    paddle.distributed.all_reduce(total)
    return total.numpy() / fleet.worker_num()


def evaluate(model, data):
    """The share of pictures that get their right name."""
    meter = paddle.metric.Accuracy()
    model.eval()
    with paddle.no_grad():
        for pictures, labels in DataLoader(data, batch_size=256):
            meter.update(meter.compute(model(pictures), labels.unsqueeze(1)))
    return meter.accumulate()


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=6000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--report", type=Path, help="where to write the figures")
    args = parser.parse_args()

    strategy = fleet.DistributedStrategy()
    strategy.sync_batch_norm = True
    fleet.init(is_collective=True, strategy=strategy)
    paddle.seed(1)
    np.random.seed(1)
    data, held_out = Shapes(args.pictures, seed=1), Shapes(1000, seed=2)
    model = Net()
    if fleet.is_first_worker():
        weights = sum(p.size for p in model.parameters())
        print(
            f"training a network of {weights} weights on {args.pictures} pictures, "
            f"{fleet.worker_num()} x {paddle.get_device()}"
        )
    start = time.monotonic()
    losses = train(model, data, args.epochs, args.batch_size, args.rate)
    seconds = time.monotonic() - start
    if not fleet.is_first_worker():
        return 0
    speed = len(losses) * args.batch_size / seconds
    accuracy = evaluate(model, held_out)
    print(f"{len(losses)} steps in {seconds:.1f} s, {speed:.0f} pictures/s")
    print(f"accuracy on {len(held_out)} pictures never seen: {accuracy:.3f}")
    if args.report:
        report = {"speed": speed, "accuracy": accuracy, "losses": losses.tolist()}
        args.report.write_text(json.dumps(report))
    return 0 if accuracy > 0.9 else 1


if __name__ == "__main__":
    raise SystemExit(main())
