# SPDX-License-Identifier: Apache-2.0
"""Programs on a GPU are recorded as CUDA graphs after a few runs, and give the same values
as without. Where the tests run on the CPU nothing is recorded, and everything else holds."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import paddle
import pytest
from conftest import DEVICE
from paddle import nn, optimizer, static
from paddle.tensor.creation import computed_tensor
from static_check import drawn, fresh_programs  # noqa: F401

pytestmark = pytest.mark.usefixtures("fresh_programs")

ON_GPU = DEVICE.startswith("gpu")
NOT_REPLAYED = 3  # two plain runs, and the one that is recorded


def place():
    return paddle.CUDAPlace(0) if ON_GPU else paddle.CPUPlace()


def replays(exe):
    return exe._engine.num_replays


def expect_replays(exe, runs):
    assert replays(exe) == (runs - NOT_REPLAYED if ON_GPU else 0)


def mlp(x, label):
    layers = [nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(32, 5))
    return model, nn.CrossEntropyLoss()(model(x), label)


def cnn(x, label):
    layers = [nn.Conv2D(3, 8, 3), nn.ReLU(), nn.MaxPool2D(2, 2), nn.BatchNorm2D(8)]
    layers += [nn.Conv2D(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)]
    model = nn.Sequential(*layers)
    return model, nn.CrossEntropyLoss()(model(x), label)


SHAPES = {mlp: (12,), cnn: (3, 12, 12)}


class Training:
    """A program of its own in a scope of its own. The weights depend on nothing."""

    def __init__(self, net, make, where=None):
        self.scope, self.main, startup = (
            static.Scope(),
            static.Program(),
            static.Program(),
        )
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, startup):
            x = static.data("x", [None, *SHAPES[net]])
            label = static.data("label", [None, 1], "int64")
            model, self.loss = net(x, label)
            self.names = [p.name for p in model.parameters()]
            self.rule = make()
            self.rule.minimize(self.loss)
        self.exe = static.Executor(where or place())
        self.exe.run(startup, scope=self.scope)
        for i, p in enumerate(model.parameters()):
            if not p.stop_gradient:
                self.set(p.name, drawn(*p.shape, seed=i) * 0.3)
        self.net = net

    def set(self, name, array):
        self.scope.var(name).get_tensor().set(array, self.exe.place)

    def values(self):
        return [np.array(self.scope.find_var(n).get_tensor()) for n in self.names]

    def batch(self, step, rows=16):
        rng = np.random.default_rng(step)
        x = rng.standard_normal((rows, *SHAPES[self.net])).astype("float32")
        return {"x": x, "label": rng.integers(0, 5, (rows, 1))}

    def step(self, feed):
        return self.exe.run(self.main, feed, [self.loss], scope=self.scope)[0].item()


def rates():
    return optimizer.lr.StepDecay(0.1, step_size=3, gamma=0.8)


RULES = {
    "sgd": lambda: optimizer.SGD(rates()),
    "momentum": lambda: optimizer.Momentum(rates(), 0.9),
    "adam": lambda: optimizer.Adam(rates(), epsilon=1e-3),
}


def train(net, make, steps, change=lambda training, step: None):
    training = Training(net, make)
    losses = []
    for step in range(steps):
        change(training, step)
        losses.append(training.step(training.batch(step)))
        training.rule._learning_rate.step()
    return training, losses


def train_both(monkeypatch, net, make, steps, **more):
    """With records and without: the same losses, the same values."""
    training, losses = train(net, make, steps, **more)
    monkeypatch.setenv("FLEET_CUDA_GRAPHS", "0")
    plain, wanted = train(net, make, steps, **more)
    assert replays(plain.exe) == 0
    # Convolutions may add up in another order from run to run.
    tolerance = (
        {"rtol": 1e-6, "atol": 1e-7} if net is mlp else {"rtol": 5e-4, "atol": 1e-5}
    )
    np.testing.assert_allclose(losses, wanted, **tolerance)
    for value, other in zip(training.values(), plain.values()):
        np.testing.assert_allclose(value, other, **tolerance)
    return training, losses


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("net", [mlp, cnn])
def test_replays_train_as_plain_runs_do(monkeypatch, net, rule):
    training, losses = train_both(monkeypatch, net, RULES[rule], 30)
    expect_replays(training.exe, 30)
    assert len(set(losses)) == 30


def test_a_learning_rate_that_changes_is_seen():
    constant, _ = train(
        mlp, lambda: optimizer.SGD(optimizer.lr.StepDecay(0.1, 1000)), 12
    )
    falling, _ = train(
        mlp, lambda: optimizer.SGD(optimizer.lr.StepDecay(0.1, 6, 0.0)), 12
    )
    stopped, _ = train(mlp, lambda: optimizer.SGD(optimizer.lr.StepDecay(0.1, 1000)), 6)
    for a, b, c in zip(falling.values(), stopped.values(), constant.values()):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)


def test_a_parameter_that_is_set_is_seen(monkeypatch):
    def change(training, step):
        if step == 10:
            training.set(training.names[0], drawn(12, 32, seed=99))

    training, _ = train_both(monkeypatch, mlp, RULES["adam"], 15, change=change)
    expect_replays(training.exe, 15)


def test_a_parameter_in_other_memory_is_recorded_anew(monkeypatch):
    def change(training, step):
        if step == 10:
            training.scope.erase([training.names[2]])
            training.set(training.names[2], drawn(32, 32, seed=98))

    training, _ = train_both(monkeypatch, mlp, RULES["momentum"], 15, change=change)
    if ON_GPU:  # one run more is recorded, not replayed
        assert replays(training.exe) == 15 - NOT_REPLAYED - 1


def test_every_shape_has_a_record_of_its_own(monkeypatch):
    def run():
        training = Training(mlp, RULES["momentum"])
        sizes = [4, 9, 16] * 6 + list(range(20, 32)) * 2 + [4, 9, 16] * 4
        return training, [
            training.step(training.batch(i, n)) for i, n in enumerate(sizes)
        ]

    training, losses = run()
    if ON_GPU:
        assert replays(training.exe) == 3 * 3 + 3  # the long list pushed records out
    monkeypatch.setenv("FLEET_CUDA_GRAPHS", "0")
    np.testing.assert_allclose(losses, run()[1], rtol=1e-6)


def test_tensors_and_arrays_feed_alike():
    training = Training(mlp, RULES["sgd"])
    other = Training(mlp, RULES["sgd"])
    for step in range(8):
        feed = training.batch(step)
        tensors = {k: computed_tensor(v, place=place()) for k, v in feed.items()}
        kept = {k: v.numpy() for k, v in tensors.items()}
        assert training.step(feed) == other.step(tensors)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(tensor.numpy(), kept[name])
    expect_replays(training.exe, 8)


def test_what_was_fetched_stays():
    training = Training(mlp, RULES["sgd"])
    fetched, copies = [], []
    for step in range(8):
        (value,) = training.exe.run(
            training.main,
            training.batch(step),
            [training.loss],
            scope=training.scope,
            return_numpy=False,
        )
        fetched.append(value)
        copies.append(value.numpy().copy())
    for value, copy in zip(fetched, copies):
        np.testing.assert_array_equal(value.numpy(), copy)
    assert len({c.item() for c in copies}) == 8


def test_a_label_outside_fails_at_the_latest_in_the_next_run():
    training = Training(mlp, RULES["sgd"])
    for step in range(6):
        training.step(training.batch(step))
    bad = training.batch(6)
    bad["label"][3] = 5
    with pytest.raises(ValueError, match=r"label 5 at \w+ 3 is outside \[0, 5\)"):
        training.step(bad)
        training.step(training.batch(7))
    before = training.values()
    assert all(np.isfinite(v).all() for v in before)
    training.step(training.batch(8))
    assert not np.array_equal(before[0], training.values()[0])


def test_a_label_outside_fails_in_the_run_that_would_be_recorded():
    training = Training(mlp, RULES["momentum"])
    for step in range(2):
        training.step(training.batch(step))
    before = training.values()
    bad = training.batch(2)
    bad["label"][0] = -1
    with pytest.raises(ValueError, match=r"label -1 at \w+ 0 is outside"):
        training.step(bad)
    for value, old in zip(training.values(), before):
        np.testing.assert_array_equal(value, old)


def test_threads_record_side_by_side():
    alone = Training(mlp, RULES["adam"])
    wanted = [alone.step(alone.batch(step)) for step in range(20)]
    trainings = [Training(mlp, RULES["adam"]) for _ in range(3)]

    def run(training):
        return [training.step(training.batch(step)) for step in range(20)]

    with ThreadPoolExecutor(3) as pool:
        for losses in pool.map(run, trainings):
            np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for training in trainings:
        expect_replays(training.exe, 20)


def test_embeddings_are_recorded():
    ids = static.data("ids", [None, 3], "int64")
    table = nn.Embedding(20, 4)
    loss = paddle.mean(paddle.square(table(ids)))
    optimizer.SGD(0.5).minimize(loss)
    exe = static.Executor(place())
    exe.run(static.default_startup_program())
    name = table.weight.name
    scope = static.global_scope()
    weight = drawn(20, 4)
    scope.var(name).get_tensor().set(weight, place())
    for step in range(7):
        rows = np.random.default_rng(step).integers(0, 20, (6, 3))
        (got,) = exe.run(feed={"ids": rows}, fetch_list=[loss])
        picked = weight[rows]
        np.testing.assert_allclose(got, np.mean(picked**2), rtol=1e-5)
        gradient = np.zeros_like(weight)
        np.add.at(gradient, rows, 2 * picked / picked.size)
        weight = weight - 0.5 * gradient
    np.testing.assert_allclose(
        np.array(scope.find_var(name).get_tensor()), weight, rtol=1e-5
    )
    expect_replays(exe, 7)
    bad = rows.copy()
    bad[0, 1] = 20
    with pytest.raises(
        (ValueError, IndexError), match=r"id 20 at position 1 is outside"
    ):
        exe.run(feed={"ids": bad}, fetch_list=[loss])
        exe.run(feed={"ids": rows}, fetch_list=[loss])


def test_losses_of_probabilities_and_accuracy_are_recorded(monkeypatch):
    def train():
        scope, main, startup = static.Scope(), static.Program(), static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
            x = static.data("x", [None, 12])
            label = static.data("label", [None, 1], "int64")
            weight = paddle.create_parameter([12, 5], "float32")
            p = nn.functional.softmax(paddle.matmul(x, weight))
            loss = paddle.mean(paddle.fluid.layers.cross_entropy(p, label))
            right = static.accuracy(p, label)
            optimizer.SGD(0.3).minimize(loss)
        exe = static.Executor(place())
        exe.run(startup, scope=scope)
        scope.var(weight.name).get_tensor().set(drawn(12, 5), place())
        rng = np.random.default_rng(1)
        values = []
        for _ in range(8):
            x = rng.standard_normal((16, 12)).astype("float32")
            feed = {"x": x, "label": rng.integers(0, 5, (16, 1))}
            fetched = exe.run(main, feed, [loss, right], scope=scope)
            values.append([v.item() for v in fetched])
        return exe, (main, scope, feed, [loss, right]), values

    exe, again, values = train()
    expect_replays(exe, 8)
    main, scope, feed, fetches = again
    feed["x"][2, 3] = np.nan
    with pytest.raises(ValueError, match="input has a NaN"):
        exe.run(main, feed, fetches, scope=scope)
        exe.run(main, feed, fetches, scope=scope)
    monkeypatch.setenv("FLEET_CUDA_GRAPHS", "0")
    np.testing.assert_allclose(values, train()[2], rtol=1e-5)


def test_replays_draw_new_numbers():
    x = static.data("x", [None, 64])
    dropped = nn.functional.dropout(x, 0.5)
    exe = static.Executor(place())
    paddle.seed(7)
    seen = [
        exe.run(feed={"x": np.ones((4, 64), "float32")}, fetch_list=[dropped])[0]
        for _ in range(8)
    ]
    expect_replays(exe, 8)
    for i, value in enumerate(seen):
        assert set(np.unique(value)) == {0.0, 2.0}
        assert not any(np.array_equal(value, other) for other in seen[:i])


def test_a_seed_of_its_own_gives_the_same_numbers_in_every_run():
    numbers = paddle.fluid.layers.uniform_random([4, 3], seed=5)
    exe = static.Executor(place())
    seen = [exe.run(fetch_list=[numbers])[0] for _ in range(6)]
    assert all(np.array_equal(value, seen[0]) for value in seen)
    assert replays(exe) == 0


def test_a_program_that_decides_on_the_host_is_not_recorded():
    x = static.data("x", [None, 2])
    big = paddle.sum(x) > 0
    y = static.nn.cond(big, lambda: x + 1, lambda: x - 1)
    exe = static.Executor(place())
    for step in range(6):
        sign = -1.0 if step % 2 else 1.0
        feed = np.full((3, 2), sign, "float32")
        np.testing.assert_array_equal(
            exe.run(feed={"x": feed}, fetch_list=[y])[0], 2 * feed
        )
    assert replays(exe) == 0


def test_a_program_whose_shapes_depend_on_values_is_not_recorded():
    x = static.data("x", [None])
    y = paddle.masked_select(x, x > 0)
    exe = static.Executor(place())
    for step in range(6):
        feed = drawn(10, seed=step)
        np.testing.assert_array_equal(
            exe.run(feed={"x": feed}, fetch_list=[y])[0], feed[feed > 0]
        )
    assert replays(exe) == 0


ALL_RULES = {
    "sgd": lambda: optimizer.SGD(0.1, weight_decay=0.01),
    "nesterov": lambda: optimizer.Momentum(
        0.1, 0.9, use_nesterov=True, weight_decay=0.01
    ),
    "adam": lambda: optimizer.Adam(0.05, epsilon=1e-3),
    "adamw": lambda: optimizer.AdamW(0.05, epsilon=1e-3, weight_decay=0.1),
    "adagrad": lambda: optimizer.Adagrad(0.1, epsilon=1e-3),
    "adamax": lambda: optimizer.Adamax(0.05, epsilon=1e-3),
    "rmsprop": lambda: optimizer.RMSProp(0.05, epsilon=1e-3, momentum=0.5),
    "centered": lambda: optimizer.RMSProp(0.05, epsilon=1e-3, centered=True),
    "adadelta": lambda: optimizer.Adadelta(0.5, epsilon=1e-3),
    "lamb": lambda: optimizer.Lamb(0.01, epsilon=1e-3),
    "ftrl": lambda: paddle.fluid.optimizer.Ftrl(0.1, l1=0.001, l2=0.01),
    "clipped": lambda: optimizer.Adam(
        0.05, epsilon=1e-3, grad_clip=nn.ClipGradByValue(0.01)
    ),
}


@pytest.mark.parametrize("rule", ALL_RULES)
def test_rules_on_the_device_are_those_of_the_cpu(rule):
    training = Training(mlp, ALL_RULES[rule])
    reference = Training(mlp, ALL_RULES[rule], paddle.CPUPlace())
    for step in range(8):
        feed = training.batch(step)
        np.testing.assert_allclose(training.step(feed), reference.step(feed), rtol=1e-4)
    for value, other in zip(training.values(), reference.values()):
        np.testing.assert_allclose(value, other, rtol=1e-3, atol=1e-5)


def cross_entropy(logits, label, ignored):
    shifted = logits - logits.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    counts = label != ignored
    rows = -log_p[np.arange(len(label)), np.where(counts, label, 0)] * counts
    hot = np.eye(logits.shape[1])[np.where(counts, label, 0)]
    return rows, counts, (np.exp(log_p) - hot) * counts[:, None]


# The last two are more than one block of the GPU's kernel computes.
@pytest.mark.parametrize("rows, classes", [(7, 3), (130, 40), (300, 200), (5, 9000)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_any_size(rows, classes, reduction):
    paddle.disable_static()
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((rows, classes)) * 5).astype("float32")
    label = rng.integers(0, classes, rows)
    label[::4] = 2
    each, counts, slope = cross_entropy(logits.astype("float64"), label, 2)
    weight = {"mean": 1 / counts.sum(), "sum": 1.0, "none": 1.0}[reduction]
    x = paddle.to_tensor(logits, stop_gradient=False)
    loss = nn.functional.cross_entropy(
        x, paddle.to_tensor(label), ignore_index=2, reduction=reduction
    )
    wanted = each if reduction == "none" else each.sum() * weight
    np.testing.assert_allclose(
        loss.numpy().reshape(-1), np.reshape(wanted, -1), rtol=2e-5
    )
    loss.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slope * weight, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize(
    "rows, columns", [(1, 3), (5, 70), (128, 2), (4096, 33), (5000, 3)]
)
def test_gradients_of_a_bias_of_any_size(rows, columns):
    paddle.disable_static()
    weight = drawn(rows, columns)
    wanted = weight.astype("float64").sum(0)
    for add in (lambda x, b: x + b, paddle.add):
        bias = paddle.to_tensor(drawn(columns), stop_gradient=False)
        y = add(paddle.to_tensor(drawn(rows, columns)), bias)
        (y * paddle.to_tensor(weight)).sum().backward()
        np.testing.assert_allclose(bias.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)
    layer = nn.Linear(2, columns)
    y = layer(paddle.to_tensor(drawn(rows, 2)))
    (y * paddle.to_tensor(weight)).sum().backward()
    np.testing.assert_allclose(layer.bias.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "shape", [(2, 3, 1, 1), (4, 5, 9, 7), (32, 16, 30, 30), (1, 2, 400, 300)]
)
def test_gradients_of_a_channel_bias_of_any_size(shape):
    paddle.disable_static()
    weight = drawn(*shape)
    wanted = weight.astype("float64").sum((0, 2, 3))
    layer = nn.Conv2D(2, shape[1], 1)
    y = layer(paddle.to_tensor(drawn(shape[0], 2, *shape[2:])))
    (y * paddle.to_tensor(weight)).sum().backward()
    np.testing.assert_allclose(layer.bias.grad.numpy(), wanted, rtol=1e-4, atol=1e-3)
