# SPDX-License-Identifier: Apache-2.0
"""A model that is trained eagerly, by plain runs of its program, and by planned ones.

An executor runs a program plainly when it meets it first, and by a plan from the second
run on: a new executor in each step never plans.
"""

import numpy as np
import paddle
import pytest
from paddle import nn, static
from paddle.utils import unique_name

STEPS = 4


def train(make, optimizer, batches, way):
    """The loss of each step, and the parameters after the last."""
    paddle.seed(7)
    with unique_name.guard():
        if way == "eager":
            return train_eagerly(make, optimizer, batches)
        paddle.enable_static()
        try:
            with (
                static.program_guard(static.Program(), static.Program()),
                static.scope_guard(static.Scope()),
            ):
                return train_program(make, optimizer, batches, way)
        finally:
            paddle.disable_static()


def train_eagerly(make, optimizer, batches):
    model = make()
    rule = optimizer(parameters=model.parameters())
    losses = []
    for batch in batches:
        loss = model(*[paddle.to_tensor(array) for array in batch])
        loss.backward()
        rule.step()
        rule.clear_grad()
        losses.append(float(loss))
    return losses, {p.name: p.numpy() for p in model.parameters()}


def train_program(make, optimizer, batches, way):
    model = make()
    if batches:
        data = [
            static.data(f"x{i}", array.shape, str(array.dtype))
            for i, array in enumerate(batches[0])
        ]
        loss = model(*data)
        optimizer().minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    losses = []
    for batch in batches:
        if way == "plain":
            exe = static.Executor()
        feed = {f"x{i}": array for i, array in enumerate(batch)}
        (value,) = exe.run(feed=feed, fetch_list=[loss])
        losses.append(float(value.reshape(-1)[0]))
    scope = static.global_scope()
    return losses, {
        p.name: np.array(scope.find_var(p.name).get_tensor())
        for p in model.parameters()
    }


def assert_all_ways_agree(make, optimizer, batches):
    eager_losses, eager = train(make, optimizer, batches, "eager")
    for way in ("plain", "planned"):
        losses, values = train(make, optimizer, batches, way)
        np.testing.assert_allclose(losses, eager_losses, rtol=2e-6, err_msg=way)
        assert values.keys() == eager.keys()
        for name, value in values.items():
            scale = max(np.linalg.norm(eager[name]), 1e-6)
            distance = np.linalg.norm(value - eager[name])
            assert distance <= 2e-6 * scale, (way, name, distance / scale)


class Model(nn.Layer):
    """Layers, and a function of them and the data."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *data):
        return self.function(self, *data)


OPTIMIZERS = {
    "sgd": lambda **more: paddle.optimizer.SGD(0.5, **more),
    "momentum": lambda **more: paddle.optimizer.Momentum(0.1, **more),
    "adam": lambda **more: paddle.optimizer.Adam(0.05, **more),
    "lazy_adam": lambda **more: paddle.optimizer.Adam(0.05, lazy_mode=True, **more),
    "adagrad": lambda **more: paddle.optimizer.Adagrad(0.1, **more),
}


# ---- gradients of sparse embeddings, whatever they come out of


def ids_of(rows, columns, high=40, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(0, high, (rows, columns)).astype("int64")] for _ in range(STEPS)
    ]


def concatenated(axis):
    return lambda m, x: paddle.concat([m.a(x[:, 0]), m.b(x[:, 1])], axis)


def split_in_two(m, x):
    left, right = paddle.split(m.a(x[:, 0]), 2, 1)
    return paddle.concat([left * right, m.b(x[:, 1])], 1)


def split_by_rows(m, x):
    up, down = paddle.split(m.a(x[:, 0]), 2, 0)
    return paddle.concat([up, down * 2.0, m.b(x[:, 1])], 0)


def shared_table(m, x):
    return paddle.concat([m.a(x[:, 0]), m.a(x[:, 1]), m.b(x[:, 0])], 1)


def one_read_twice(m, x):
    rows = m.a(x[:, 0])
    return paddle.concat([rows, rows * rows, m.b(x[:, 1])], 1)


def rows_reversed(m, x):
    return paddle.stack([m.a(x[:, 0])[::2], m.b(x[:, 1])[1::2]], 1)


WAYS_OUT = {
    "concat of columns": concatenated(1),
    "concat of rows": concatenated(0),
    "split": split_in_two,
    "split by rows": split_by_rows,
    "stack": lambda m, x: paddle.stack([m.a(x[:, 0]), m.b(x[:, 1])], 1),
    "reshape": lambda m, x: paddle.concat(
        [paddle.reshape(m.a(x), [-1, 8]), m.b(x[:, 1])], 1
    ),
    "transpose": lambda m, x: paddle.concat(
        [paddle.transpose(m.a(x[:, 0]), [1, 0]), m.b(x[:, 1]).t()], 0
    ),
    "slice": lambda m, x: paddle.concat([m.a(x)[:, 0], m.b(x)[:, 1]], 1),
    "strided slice": rows_reversed,
    "squeezed ids": lambda m, x: paddle.concat(
        [m.a(paddle.squeeze(x[:, 0:1], 1)), m.b(paddle.reshape(x[:, 1], [-1]))], 1
    ),
    "unsqueezed ids": lambda m, x: paddle.concat(
        [m.a(paddle.unsqueeze(x[:, 0], 1)), m.b(x[:, 1:])], 2
    ),
    "ids of split": lambda m, x: paddle.concat(
        [m.a(paddle.split(x, 2, 1)[0]), m.b(paddle.split(x, 2, 1)[1])], 1
    ),
    "ids that are computed": lambda m, x: paddle.concat(
        [m.a((x[:, 0] + x[:, 1]) // 2), m.b(paddle.reshape(x + x, [-1, 2])[:, 1] // 2)],
        1,
    ),
    "shared table": shared_table,
    "one read twice": one_read_twice,
    "sum": lambda m, x: m.a(x[:, 0]) + m.b(x[:, 1]),
    "mean over ids": lambda m, x: paddle.concat(
        [m.a(x).mean(axis=1), m.b(x).sum(axis=1)], 1
    ),
}


def tables(way_out, sparse):
    def loss(m, x):
        out = WAYS_OUT[way_out](m, x)
        return (paddle.tanh(out) * out).mean()

    def make():
        return Model(
            loss,
            a=nn.Embedding(40, 4, sparse=True),
            b=nn.Embedding(40, 4, sparse=sparse),
        )

    return make


@pytest.mark.parametrize("sparse", [True, False], ids=["both sparse", "one dense"])
@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_gradients_of_sparse_embeddings(way_out, sparse):
    assert_all_ways_agree(
        tables(way_out, sparse), OPTIMIZERS["sgd"], ids_of(6, 2, high=9)
    )


def test_rows_of_several_look_ups_are_added_in_one_order():
    """Eagerly and in a program, to the bit: each row occurs in all of them."""

    def loss(m, x):
        parts = [m.a(x[:, i]) * (0.3 + i) for i in range(4)]
        return paddle.mean(paddle.concat(parts, 1) ** 2)

    def make():
        return Model(loss, a=nn.Embedding(5, 3, sparse=True))

    batches = ids_of(9, 4, high=5)
    _, eager = train(make, OPTIMIZERS["sgd"], batches, "eager")
    _, plain = train(make, OPTIMIZERS["sgd"], batches, "plain")
    for name, table in eager.items():
        np.testing.assert_array_equal(plain[name], table)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_sparse_embeddings_with_every_rule(optimizer):
    # As many ids as make memory that is given back to the system at once.
    assert_all_ways_agree(
        tables("concat of columns", True), OPTIMIZERS[optimizer], ids_of(4096, 2)
    )


def test_sparse_embeddings_before_layers():
    """The most common model of clicks: a table for each slot, then layers."""

    def loss(m, x):
        rows = [getattr(m, f"slot{i}")(x[:, i]) for i in range(5)]
        hidden = nn.functional.relu(m.hidden(paddle.concat(rows, 1)))
        return nn.functional.sigmoid(m.out(hidden)).mean()

    def make():
        slots = {f"slot{i}": nn.Embedding(40, 3, sparse=True) for i in range(5)}
        return Model(loss, hidden=nn.Linear(15, 16), out=nn.Linear(16, 1), **slots)

    assert_all_ways_agree(make, OPTIMIZERS["sgd"], ids_of(64, 5))


@pytest.mark.parametrize(
    "clip",
    [
        nn.ClipGradByValue(0.001),
        nn.ClipGradByNorm(0.01),
        nn.ClipGradByGlobalNorm(0.01),
    ],
    ids=lambda clip: type(clip).__name__,
)
def test_clipped_gradients_name_the_same_rows(clip):
    """A lazy rule moves only these."""

    def rule(**more):
        return paddle.optimizer.Adam(0.05, lazy_mode=True, grad_clip=clip, **more)

    batches = ids_of(6, 2, high=9)
    assert_all_ways_agree(tables("concat of columns", True), rule, batches)
    _, before = train(tables("concat of columns", True), rule, [], "planned")
    _, after = train(tables("concat of columns", True), rule, batches, "planned")
    for name, table in before.items():  # ids are below 9
        np.testing.assert_array_equal(after[name][9:], table[9:])


# ---- convolutions


def convolved(layer, shape, activation=None):
    def loss(m, x):
        out = m.layer(x)
        return (out if activation is None else activation(out)).square().mean()

    rng = np.random.default_rng(1)
    batches = [[rng.standard_normal(shape).astype("float32")] for _ in range(3)]
    assert_all_ways_agree(
        lambda: Model(loss, layer=layer()), OPTIMIZERS["sgd"], batches
    )


@pytest.mark.parametrize(
    ("kernel", "padding"), [(1, 1), (1, 2), ((3, 6), 0), ((7, 6), 0), ((1, 6), (1, 0))]
)
@pytest.mark.parametrize("channels", [(1, 8), (3, 4), (16, 16)])
def test_convolutions_with_wide_borders_and_wide_kernels(channels, kernel, padding):
    convolved(
        lambda: nn.Conv2D(*channels, kernel, padding=padding),
        (2, channels[0], 7, 6),
        nn.functional.relu,
    )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("kernel", "padding"), [(1, 1), (3, 1), (5, 0)])
def test_depthwise_and_grouped_convolutions(kernel, padding, stride):
    for groups, out in ((4, 4), (4, 8), (2, 6)):
        convolved(
            lambda groups=groups, out=out: nn.Conv2D(
                4, out, kernel, stride, padding, groups=groups
            ),
            (2, 4, 5, 6),
        )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("kernel", "padding"), [(1, 0), (1, 1), (3, 1), (5, 2)])
def test_transposed_convolutions(kernel, padding, stride):
    convolved(lambda: nn.Conv2DTranspose(3, 4, kernel, stride, padding), (2, 3, 5, 6))
    convolved(lambda: nn.Conv1DTranspose(3, 4, kernel, stride, padding), (2, 3, 6))


@pytest.mark.parametrize(("kernel", "padding"), [(1, 1), (3, 0), (4, 1)])
def test_convolutions_of_one_and_three_dimensions(kernel, padding):
    convolved(lambda: nn.Conv1D(3, 4, kernel, padding=padding), (2, 3, 4))
    convolved(lambda: nn.Conv3D(2, 3, kernel, padding=padding), (2, 2, 4, 4, 4))


@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2D(1), nn.MaxPool2D(2)])
def test_pools_without_convolutions(pool):
    convolved(lambda: nn.Sequential(nn.GroupNorm(1, 3), pool), (2, 3, 4, 5))
    convolved(lambda: nn.Sequential(nn.BatchNorm2D(3), nn.GELU(), pool), (2, 3, 4, 5))


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(("op", "rank"), [("pool2d", 2), ("pool3d", 3)])
def test_max_pools_with_channels_last(op, rank, adaptive):
    """Their indices lie otherwise in a plan than where the kernel wrote them."""

    class Pool(nn.Layer):
        def __init__(self):
            super().__init__()
            self.scale = nn.Linear(5, 5)

        def forward(self, x):
            layout = "NHWC" if rank == 2 else "NDHWC"
            settings = {"adaptive": True} if adaptive else {"strides": [2] * rank}
            y = getattr(paddle._ops, op)(
                self.scale(x),
                ksize=[2] * rank,
                pooling_type="max",
                data_format=layout,
                **settings,
            )[0]
            return paddle.mean(y * y)

    rng = np.random.default_rng(0)
    batches = [
        [rng.standard_normal([2, *[4] * rank, 5]).astype("float32")]
        for _ in range(STEPS)
    ]
    assert_all_ways_agree(Pool, OPTIMIZERS["sgd"], batches)


def test_a_bilinear_layer_is_the_same_to_the_bit():
    def loss(m, x, y):
        return m.layer(x, y).mean()

    rng = np.random.default_rng(2)
    batches = [
        [rng.standard_normal((1, n)).astype("float32") for n in (7, 5)]
        for _ in range(STEPS)
    ]

    def make():
        return Model(loss, layer=nn.Bilinear(7, 5, 3))

    eager_losses, eager = train(make, OPTIMIZERS["sgd"], batches, "eager")
    losses, plain = train(make, OPTIMIZERS["sgd"], batches, "plain")
    assert losses == eager_losses
    for name, value in plain.items():
        np.testing.assert_array_equal(value, eager[name], name)
