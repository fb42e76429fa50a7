# SPDX-License-Identifier: Apache-2.0
"""Programs that the tests train, and their data: for a worker with its share of each
batch, and for one process with all of it."""

import numpy as np
import paddle
from paddle import nn, static

BATCH = 24  # of all workers together; 2, 3 and 4 workers have equal shares


def batch(kind, number):
    rng = np.random.default_rng(1000 + number)
    if kind in ("words", "rows"):
        ids = rng.integers(0, 50, (BATCH, 5))
        return {"x": ids, "y": (ids.sum(1, keepdims=True) % 2).astype("int64")}
    shape = (BATCH, 1, 6, 6) if kind in ("cnn", "norm") else (BATCH, 10)
    x = rng.standard_normal(shape).astype("float32")
    y = x.reshape(BATCH, -1)[:, :3].argmax(1, keepdims=True)
    return {"x": x, "y": y.astype("int64")}


def share(feed, rank, num_ranks):
    size = BATCH // num_ranks
    return {name: a[rank * size : (rank + 1) * size] for name, a in feed.items()}


def _mlp(x, width=32):
    hidden = static.nn.fc(x, width, activation="tanh")
    hidden = static.nn.fc(hidden, 16, activation="relu")
    return static.nn.fc(hidden, 3)


def _cnn(x):
    hidden = nn.Conv2D(1, 4, 3, padding=1)(x)
    hidden = nn.functional.max_pool2d(nn.functional.relu(hidden), 2, 2)
    return nn.Linear(4 * 9, 3)(paddle.flatten(hidden, 1))


def _norm(x):
    # A bias before the norm would have no gradient but rounding errors.
    hidden = nn.Conv2D(1, 4, 3, padding=1, bias_attr=False)(x)
    hidden = nn.functional.relu(nn.BatchNorm2D(4)(hidden))
    return nn.Linear(4 * 36, 3)(paddle.flatten(hidden, 1))


def _words(ids, sparse=False):
    return nn.Linear(8, 3)(nn.Embedding(50, 8, sparse=sparse)(ids).sum(1))


def _rows(ids):
    """Gradients of the table are rows."""
    return _words(ids, sparse=True)


def build(kind, **options):
    """The loss of the model, in the default program."""
    if kind in ("words", "rows"):
        x = static.data("x", [None, 5], "int64")
    else:
        x = static.data("x", [None, 1, 6, 6] if kind in ("cnn", "norm") else [None, 10])
    y = static.data("y", [None, 1], "int64")
    models = {"mlp": _mlp, "cnn": _cnn, "norm": _norm, "words": _words, "rows": _rows}
    out = models[kind](x, **options)
    return paddle.mean(nn.functional.cross_entropy(out, y))


def make_optimizer(name):
    clip = nn.ClipGradByGlobalNorm(0.5)
    return {
        "SGD": lambda: paddle.optimizer.SGD(0.1),
        "Momentum": lambda: paddle.optimizer.Momentum(0.05, 0.9),
        "Adam": lambda: paddle.optimizer.Adam(0.01),
        "Adagrad": lambda: paddle.optimizer.Adagrad(0.05),
        "Lamb": lambda: paddle.optimizer.Lamb(0.01),
        # What comes between the exchange and the update.
        "clipped": lambda: paddle.optimizer.Momentum(
            0.05, 0.9, weight_decay=0.01, grad_clip=clip
        ),
        "scheduled": lambda: paddle.optimizer.SGD(
            paddle.optimizer.lr.ExponentialDecay(0.1, 0.9)
        ),
    }[name]()


def parameters(program=None):
    """Values by name, in the order of the program, whose names count up."""
    scope = static.global_scope()
    program = program or static.default_main_program()
    return {
        p.name: np.array(scope.find_var(p.name).get_tensor())
        for p in program.list_vars()
        if p.is_parameter or "batch_norm" in p.name and p.persistable
    }
