# SPDX-License-Identifier: Apache-2.0
"""Programs that the tests train, and their data: for a worker with its share of each
batch, and for one process with all of it."""

import numpy as np
import paddle
from paddle import static

BATCH = 24  # of all workers together
KEYS = 60  # ids of the tables lie below


def batch(number):
    rng = np.random.default_rng(1000 + number)
    ids = rng.integers(0, KEYS, (BATCH, 3))
    dense = rng.standard_normal((BATCH, 5)).astype("float32")
    label = (ids.sum(1, keepdims=True) % 2).astype("float32")
    return {"ids": ids, "dense": dense, "label": label}


def share(feed, rank, num_ranks):
    size = BATCH // num_ranks
    return {name: a[rank * size : (rank + 1) * size] for name, a in feed.items()}


def _rows(kind, ids, **options):
    # Rows begin equal in every process, whoever makes them.
    fill = paddle.nn.initializer.Constant(0.02)
    attr = paddle.ParamAttr(name="table", initializer=fill)
    size = [KEYS, 4]
    if kind == "bounded":
        return static.nn.embedding(ids, size, is_sparse=True, param_attr=attr)
    if kind == "disk":
        options["table_class"] = "SSDSparseTable"
    return static.nn.sparse_embedding(ids, size, param_attr=attr, **options)


def build(kind, **options):
    """(loss, prediction) of a model in the default program: "dense" has no table,
    "bounded" one of known size, "sparse" one that grows, "disk" one that may grow
    beyond memory."""
    ids = static.data("ids", [None, 3], "int64")
    dense = static.data("dense", [None, 5], "float32")
    label = static.data("label", [None, 1], "float32")
    hidden = dense
    if kind != "dense":
        rows = paddle.reshape(_rows(kind, ids, **options), [-1, 12])
        hidden = paddle.concat([rows, dense], axis=1)
    hidden = static.nn.fc(hidden, 16, activation="tanh")
    prediction = paddle.nn.functional.sigmoid(static.nn.fc(hidden, 1))
    error = paddle.nn.functional.square_error_cost(prediction, label)
    return paddle.mean(error), prediction


def make_optimizer(name):
    decay = paddle.optimizer.lr.ExponentialDecay
    return {
        "SGD": lambda: paddle.optimizer.SGD(0.3),
        "Momentum": lambda: paddle.optimizer.Momentum(0.1, 0.9),
        "Adam": lambda: paddle.optimizer.Adam(0.01),
        "lazy Adam": lambda: paddle.optimizer.Adam(0.01, lazy_mode=True),
        "Adagrad": lambda: paddle.optimizer.Adagrad(0.05),
        "decayed": lambda: paddle.optimizer.SGD(
            0.3, weight_decay=paddle.regularizer.L2Decay(0.01)
        ),
        "scheduled": lambda: paddle.optimizer.SGD(decay(0.3, 0.9)),
        "lambda": lambda: paddle.optimizer.SGD(
            paddle.optimizer.lr.LambdaDecay(0.3, lambda epoch: 1.0 / (1 + epoch))
        ),
        "cosine": lambda: paddle.optimizer.SGD(
            paddle.optimizer.lr.LinearWarmup(
                paddle.optimizer.lr.CosineAnnealingDecay(0.3, 8), 3, 0.1, 0.3
            )
        ),
    }[name]()


def dense_parameters():
    """Values in the scope, by name."""
    scope = static.global_scope()
    return {
        p.name: np.array(scope.find_var(p.name).get_tensor())
        for p in static.default_main_program().all_parameters()
        if p.name != "table"
    }
