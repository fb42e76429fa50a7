# SPDX-License-Identifier: Apache-2.0
"""One training run, for a rank with its share of each batch and for one process with
all of it: both must end with the same parameters."""

import hashlib

import numpy as np
import paddle
from paddle import nn

BATCH = 24  # of all ranks together; 2, 3 and 4 ranks have equal shares


class Mlp(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 32)
        self.second = nn.Linear(32, 1)

    def forward(self, x):
        return self.second(nn.functional.tanh(self.first(x)))


class Cnn(nn.Layer):
    """With batch norm: that of all ranks where there are several."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(1, 4, 3, padding=1),
            nn.BatchNorm2D(4),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
            nn.Flatten(),
            nn.Linear(4 * 9, 1),
        )

    def forward(self, x):
        return self.body(x.reshape([-1, 1, 6, 6]))


class Words(nn.Layer):
    """An embedding whose gradients are rows."""

    def __init__(self, sparse=True):
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=sparse)
        self.out = nn.Linear(8, 1)

    def forward(self, ids):
        return self.out(self.table(ids).sum(1))


class Branches(nn.Layer):
    """Which parameters take part depends on the batch; one never does."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(10, 1)
        self.right = nn.Linear(10, 1)
        self.never = nn.Linear(10, 1)

    def forward(self, x, left=True, right=True):
        parts = []
        if left:
            parts.append(self.left(x))
        if right:
            parts.append(self.right(x))
        return sum(parts)


MODELS = {
    "mlp": Mlp,
    "cnn": Cnn,
    "words": Words,
    "dense_words": lambda: Words(sparse=False),
    "branches": Branches,
}


def make(kind, seed=7):
    paddle.seed(seed)
    return MODELS[kind]()


def batch(kind, step):
    """(inputs, labels) of all ranks."""
    rng = np.random.RandomState(100 + step)
    if "words" in kind:
        x = rng.randint(0, 50, (BATCH, 3))
    else:
        x = rng.randn(BATCH, 36 if kind == "cnn" else 10).astype("float32")
    return x, rng.randn(BATCH, 1).astype("float32")


def share(array, rank, size):
    rows = len(array) // size
    return paddle.to_tensor(array[rank * rows : (rank + 1) * rows])


def make_optimizer(name, model):
    rate = {"SGD": 0.05, "Momentum": 0.02, "Adam": 0.01, "Adagrad": 0.05}[name]
    return getattr(paddle.optimizer, name)(
        learning_rate=rate, parameters=model.parameters()
    )


def step(model, optimizer, kind, number, rank=0, size=1):
    x, y = (share(a, rank, size) for a in batch(kind, number))
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    return loss


def state(model):
    return {k: v.numpy() for k, v in model.state_dict().items()}


def digest(model):
    values = state(model)
    return hashlib.sha256(b"".join(v.tobytes() for v in values.values())).hexdigest()


def assert_close(found, expected, tolerance):
    """Relative to the length of all parameters together: some, as a bias before batch
    norm, are nothing but rounding."""
    assert list(found) == list(expected)
    error = np.concatenate([(found[k] - expected[k]).ravel() for k in expected])
    size = np.concatenate([expected[k].ravel() for k in expected])
    relative = np.linalg.norm(error) / np.linalg.norm(size)
    assert relative <= tolerance, relative
