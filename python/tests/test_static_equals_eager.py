# SPDX-License-Identifier: Apache-2.0
"""A program computes what eager calls do, to the bit: where both round, they round alike.
So it is without plans, and with plans that fuse nothing, in which operations run over bare
memory (docs/design/0015)."""

import contextlib

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import _core, nn, optimizer, static
from paddle.regularizer import L1Decay, L2Decay

STEPS = 4


def draw(shape, seed, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@contextlib.contextmanager
def programs():
    with (
        paddle.utils.unique_name.guard(),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        yield
    paddle.disable_static()


def weights(values, dtype):
    assign = nn.initializer.Assign
    return [
        paddle.create_parameter(
            list(value.shape), dtype, default_initializer=assign(value.astype(dtype))
        )
        for value in values
    ]


def both(loss_of, values, make, feeds, dtype="float32"):
    """The losses of all steps and the parameters at the end, eagerly and as a program.
    `loss_of(inputs, parameters)`; `feeds(step)` gives arrays by name."""
    paddle.disable_static()
    parameters = weights(values, dtype)
    rule = make(parameters)
    losses = []
    for step in range(STEPS):
        inputs = {name: paddle.to_tensor(a) for name, a in feeds(step).items()}
        loss = loss_of(inputs, parameters)
        loss.backward()
        rule.step()
        rule.clear_grad()
        losses.append(loss.numpy())
        if isinstance(rule._learning_rate, optimizer.lr.LRScheduler):
            rule._learning_rate.step()
    eager = losses + [p.numpy() for p in parameters]

    plain, unfused = (
        trained_program(loss_of, values, make, feeds, dtype, planning)
        for planning in (False, True)
    )
    assert_equal(plain, unfused)
    return eager, plain


def trained_program(loss_of, values, make, feeds, dtype, planning):
    paddle.enable_static()
    with programs():
        inputs = {
            name: static.data(name, list(a.shape), a.dtype.name)
            for name, a in feeds(0).items()
        }
        parameters = weights(values, dtype)
        rule = make(None)
        loss = loss_of(inputs, parameters)
        rule.minimize(loss)
        executor = static.Executor(paddle.CPUPlace())
        executor._engine = _core.Executor("cpu", planning, False)
        executor.run(static.default_startup_program())
        losses = []
        for step in range(STEPS):
            losses += executor.run(feed=feeds(step), fetch_list=[loss])
            if isinstance(rule._learning_rate, optimizer.lr.LRScheduler):
                rule._learning_rate.step()
        find = static.global_scope().find_var
        ends = [np.array(find(p.name).get_tensor()) for p in parameters]
    return losses + ends


def assert_equal(eager, program):
    for ours, theirs in zip(eager, program, strict=True):
        np.testing.assert_array_equal(ours, theirs)


CLIPS = [nn.ClipGradByNorm(0.05), nn.ClipGradByGlobalNorm(0.07)]
DECAYS = [None, L1Decay(0.03), L2Decay(0.02)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip", CLIPS, ids=["norm", "global norm"])
@pytest.mark.parametrize("decay", DECAYS, ids=["no decay", "L1", "L2"])
def test_clipping_by_norm(clip, decay, dtype):
    for seed in range(10):
        assert_equal(
            *both(
                lambda x, p: paddle.mean(paddle.matmul(x["x"], p[0]) * p[1]),
                [draw((5, 3), seed), draw((3,), seed + 1)],
                lambda p: optimizer.Momentum(
                    0.1, parameters=p, grad_clip=clip, weight_decay=decay
                ),
                lambda step: {"x": draw((4, 5), [seed, step], dtype)},
                dtype,
            )
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip", [None, *CLIPS], ids=["no clip", "norm", "global norm"])
@pytest.mark.parametrize("decay", DECAYS, ids=["no decay", "L1", "L2"])
def test_rows_that_occur_several_times(clip, decay, dtype):
    """Also where the table is read as a dense value, after or before its rows."""
    terms = {
        "rows": lambda rows, table: paddle.mean(rows * rows),
        "dense after": lambda rows, table: (
            paddle.mean(rows * rows) + paddle.mean(table * table)
        ),
        "dense before": lambda rows, table: (
            paddle.mean(table * table) + paddle.mean(rows * rows)
        ),
    }
    for term in terms.values():
        assert_equal(
            *both(
                lambda x, p: term(F.embedding(x["ids"], p[0], sparse=True), p[0]),  # noqa: B023
                [draw((9, 4), 1)],
                lambda p: optimizer.Adamax(
                    0.1, parameters=p, grad_clip=clip, weight_decay=decay
                ),
                lambda step: {
                    "ids": np.random.default_rng(step).integers(0, 9, (8, 2))
                },
                dtype,
            )
        )


RULES = {
    "SGD": lambda rate, p: optimizer.SGD(rate, parameters=p),
    "Adam": lambda rate, p: optimizer.Adam(rate, parameters=p),
    "AdamW": lambda rate, p: optimizer.AdamW(rate, parameters=p),
    "Adamax": lambda rate, p: optimizer.Adamax(rate, parameters=p),
    "Lamb": lambda rate, p: optimizer.Lamb(rate, parameters=p),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheduled", [False, True])
def test_rates_and_powers_of_betas_of_doubles(rule, scheduled):
    def make(parameters):
        rate = optimizer.lr.ExponentialDecay(0.03, 0.7) if scheduled else 0.03
        return RULES[rule](rate, parameters)

    assert_equal(
        *both(
            lambda x, p: paddle.mean(paddle.tanh(paddle.matmul(x["x"], p[0]))),
            [draw((5, 3), 1)],
            make,
            lambda step: {"x": draw((4, 5), step, "float64")},
            "float64",
        )
    )


READERS = {
    "mean": lambda part, x: paddle.mean(part),
    "gelu": lambda part, x: paddle.sum(F.gelu(part)),
    "mse": lambda part, x: F.mse_loss(part, x["y"]),
    "logsumexp": lambda part, x: paddle.mean(paddle.logsumexp(part, 1)),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_reads_a_slice(reader):
    for seed in range(10):
        assert_equal(
            *both(
                lambda x, p: READERS[reader](p[0][:, 1:4], x),
                [draw((7, 5), seed)],
                lambda p: optimizer.SGD(0.1, parameters=p),
                lambda step: {"y": draw((7, 3), [seed, step])},
            )
        )


PARTS = {
    "cut": lambda x: x[:, 1:],
    "repeated": lambda x: x.unsqueeze(-1).expand([5, 9, 7]),
    "grid": lambda x: paddle.meshgrid(x[0], x[1])[0],
}


@pytest.mark.parametrize("part", PARTS)
def test_a_detached_part(part):
    """Eagerly it is a view, in a program a copy."""
    for seed in range(10):
        assert_equal(
            *both(
                lambda x, p: paddle.sum(PARTS[part](p[0]).detach()) + paddle.sum(p[0]),
                [draw((5, 9), seed)],
                lambda p: optimizer.SGD(0.1, parameters=p),
                lambda step: {},
            )
        )


@pytest.mark.parametrize("sparse", [True, False])
def test_an_l1_decay_of_values_that_became_infinite(sparse):
    def loss_of(x, p):
        return paddle.sum(F.embedding(x["ids"], p[0], sparse=sparse) * 3e38)

    eager, program = both(
        loss_of,
        [draw((5, 2), 1)],
        lambda p: optimizer.SGD(10.0, parameters=p, weight_decay=L1Decay(0.03)),
        lambda step: {"ids": np.array([step, 1])},
    )
    assert_equal(eager, program)
    assert np.isinf(eager[-1]).any() and not np.isnan(eager[-1]).any()


def test_layers_of_doubles_on_rows_of_several_dimensions():
    for seed in range(10):
        assert_equal(
            *both(
                lambda x, p: paddle.mean(
                    paddle.square(F.linear(F.linear(x["x"], p[0], p[1]), p[2], p[3]))
                ),
                [draw(shape, seed) for shape in ((4, 4), (4,), (4, 3), (3,))],
                lambda p: optimizer.SGD(0.1, parameters=p),
                lambda step: {"x": draw((6, 3, 4), [seed, step], "float64")},
                "float64",
            )
        )


def test_a_square_root_of_one_number_is_the_nearest():
    for dtype in ("float32", "float64"):
        values = np.random.default_rng(1).uniform(0.001, 50, 300).astype(dtype)
        for value in values:
            got = paddle.sqrt(paddle.to_tensor(value.reshape(1))).numpy()
            np.testing.assert_array_equal(got, np.sqrt(value.reshape(1)))


def norm(data_format):
    def call(x, p):
        zeros, ones = paddle.zeros([5]), paddle.ones([5])
        return F.batch_norm(
            p[0], zeros, ones, p[1], p[2], training=True, data_format=data_format
        )

    return call


def pooled(pool):
    return lambda x, p: pool(paddle.reshape(p[0], [2, 3, 6, 4]))


# What the forms over bare memory compute, from a parameter and from smaller ones that
# broadcast: name: (shapes, function of feeds and parameters).
FORMS = {
    "relu": ([(7, 5)], lambda x, p: F.relu(p[0])),
    "tanh": ([(7, 5)], lambda x, p: paddle.tanh(p[0])),
    "sigmoid": ([(7, 5)], lambda x, p: F.sigmoid(p[0])),
    "square": ([(7, 5)], lambda x, p: paddle.square(p[0])),
    "softsign": ([(7, 5)], lambda x, p: F.softsign(p[0])),
    "long": ([(300, 301)], lambda x, p: F.relu(paddle.tanh(p[0]))),
    "scale": ([(7, 5)], lambda x, p: paddle.scale(p[0], 1.3, 0.7)),
    "shift": ([(7, 5)], lambda x, p: paddle.scale(p[0], 1.3, 0.7, False)),
    "factor": ([(7, 5)], lambda x, p: paddle.scale(p[0], 1.3)),
    "add": ([(7, 5), (7, 5)], lambda x, p: p[0] + p[1]),
    "add rows": ([(70, 5), (5,)], lambda x, p: p[0] + p[1]),
    "subtract rows": ([(70, 5), (5,)], lambda x, p: p[0] - p[1]),
    "multiply rows": ([(70, 5), (5,)], lambda x, p: p[0] * p[1]),
    "add channels": ([(4, 5, 6, 7), (5, 1, 1)], lambda x, p: p[0] + p[1]),
    "subtract channels": ([(4, 5, 6, 7), (5, 1, 1)], lambda x, p: p[0] - p[1]),
    "multiply channels": ([(4, 5, 6, 7), (5, 1, 1)], lambda x, p: p[0] * p[1]),
    "add a number": ([(300, 301), (1,)], lambda x, p: p[0] + p[1]),
    "multiply by a number": ([(300, 301), (1,)], lambda x, p: p[0] * p[1]),
    "add the larger": ([(5,), (70, 5)], lambda x, p: p[0] + p[1]),
    "multiply the larger": ([(5,), (70, 5)], lambda x, p: p[0] * p[1]),
    "sum of a list": ([(7, 5)] * 3, lambda x, p: paddle.add_n(p)),
    "sum": ([(300, 301)], lambda x, p: paddle.sum(p[0])),
    "sum of axes": ([(6, 7)], lambda x, p: paddle.sum(p[0], axis=[0, 1])),
    "mean": ([(300, 301)], lambda x, p: paddle.mean(p[0])),
    "mean of one row": ([(1, 7)], lambda x, p: paddle.mean(p[0], axis=1)),
    "reshape": ([(6, 4)], lambda x, p: paddle.reshape(p[0], [3, 8])),
    "matmul": (
        [(6, 5), (4, 5)],
        lambda x, p: paddle.matmul(p[0], p[1], transpose_y=True),
    ),
    "linear": ([(6, 5), (5, 4), (4,)], lambda x, p: F.linear(*p)),
    "softmax": ([(6, 5)], lambda x, p: F.softmax(p[0])),
    "cross entropy": ([(4, 5)], lambda x, p: F.cross_entropy(p[0], x["label"])),
    "norm of rows": ([(300, 5), (5,), (5,)], norm("NC")),
    "norm of images": ([(4, 5, 6, 7), (5,), (5,)], norm("NCHW")),
    "norm of one pixel": ([(40, 5, 1, 1), (5,), (5,)], norm("NCHW")),
    "norm, channels last": ([(4, 6, 7, 5), (5,), (5,)], norm("NHWC")),
    "maximum": ([(2, 72)], pooled(lambda v: F.max_pool2d(v, 3, 2, 1))),
    "mean of images": ([(2, 72)], pooled(lambda v: F.adaptive_avg_pool2d(v, 1))),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_over_bare_memory(form):
    shapes, function = FORMS[form]

    def loss_of(x, p):
        out = function(x, p)
        return paddle.mean(out * out)

    assert_equal(
        *both(
            loss_of,
            [draw(shape, seed) for seed, shape in enumerate(shapes)],
            lambda p: optimizer.SGD(0.1, parameters=p),
            lambda step: {"label": np.random.default_rng(step).integers(0, 5, (4,))},
        )
    )
