# SPDX-License-Identifier: Apache-2.0
"""paddle.fluid in static mode: scripts of Paddle 1.8 and the names that they use."""

import math

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
import torch
from paddle import static
from paddle.fluid import layers
from static_check import drawn, fresh_programs, op_types, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")

F = torch.nn.functional


def peers(*names):
    return [torch.tensor(value_of(name), requires_grad=True) for name in names]


# ---- training scripts


def test_an_mlp_of_1_8_trains_as_in_torch():
    img = layers.data(name="img", shape=[4], dtype="float32")
    label = layers.data(name="label", shape=[1], dtype="int64")
    assert (img.shape, label.shape) == ([-1, 4], [-1, 1])
    hidden = layers.fc(input=img, size=8, act="tanh")
    prediction = layers.fc(input=[hidden], size=3, act="softmax")
    cost = layers.cross_entropy(input=prediction, label=label)
    assert cost.shape == [-1, 1]
    loss = layers.mean(cost)
    accuracy = layers.accuracy(input=prediction, label=label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGDOptimizer(learning_rate=0.5).minimize(loss)
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
    peer = peers("fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0")
    sgd = torch.optim.SGD(peer, 0.5)
    rng = np.random.default_rng(0)
    reader = fluid.io.batch(
        lambda: ((rng.standard_normal(4), int(rng.integers(3))) for _ in range(24)), 6
    )
    for batch in reader():
        got, share = executor.run(
            fluid.default_main_program(),
            feed=feeder.feed(batch),
            fetch_list=[loss, accuracy],
        )
        x = torch.tensor(np.array([row[0] for row in batch]), dtype=torch.float32)
        y = torch.tensor([row[1] for row in batch])
        logits = torch.tanh(x @ peer[0] + peer[1]) @ peer[2] + peer[3]
        wanted = F.cross_entropy(logits, y)
        sgd.zero_grad()
        wanted.backward()
        sgd.step()
        assert got.shape == (1,)
        np.testing.assert_allclose(got, [wanted.item()], 1e-5)
        np.testing.assert_allclose(
            share, [(logits.argmax(1) == y).float().mean().item()], 1e-6
        )
    for name, value in zip(["fc_0.w_0", "fc_1.b_0"], [peer[0], peer[3]]):
        np.testing.assert_allclose(value_of(name), value.detach().numpy(), 1e-5, 1e-6)
    assert not {"sgd", "mean_grad"} & set(op_types(test_program))
    executor.run(test_program, feed=feeder.feed(batch), fetch_list=[loss.name])


def test_a_convolutional_net_trains_as_in_torch():
    img = layers.data("img", [1, 8, 8])
    label = layers.data("label", [1], dtype="int64")
    conv = fluid.nets.simple_img_conv_pool(
        img, 4, 3, pool_size=2, pool_stride=2, conv_padding=1, act="relu"
    )
    conv = layers.batch_norm(conv)
    conv = layers.pool2d(conv, 2, "avg", 2)
    prediction = layers.fc(conv, 3)
    loss = layers.mean(layers.softmax_with_cross_entropy(prediction, label))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    start()
    names = "conv2d_0.w_0 conv2d_0.b_0 batch_norm_0.w_0 batch_norm_0.b_0".split()
    peer = peers(*names, "fc_0.w_0", "fc_0.b_0")
    sgd = torch.optim.SGD(peer, 0.1, 0.9)
    rng = np.random.default_rng(0)
    for _ in range(4):
        images = rng.standard_normal((5, 1, 8, 8)).astype("float32")
        labels = rng.integers(3, size=(5, 1))
        (got,) = run([loss], {"img": images, "label": labels})
        x = torch.relu(F.conv2d(torch.tensor(images), peer[0], peer[1], padding=1))
        x = F.max_pool2d(x, 2)
        x = F.batch_norm(x, None, None, peer[2], peer[3], True)
        x = F.avg_pool2d(x, 2).flatten(1) @ peer[4] + peer[5]
        wanted = F.cross_entropy(x, torch.tensor(labels[:, 0]))
        sgd.zero_grad()
        wanted.backward()
        sgd.step()
        np.testing.assert_allclose(got, [wanted.item()], 1e-4)
    np.testing.assert_allclose(
        value_of("conv2d_0.w_0"), peer[0].detach().numpy(), 1e-3, 1e-5
    )


def test_words_of_different_numbers_train_as_in_torch():
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    label = layers.data("label", [1], dtype="float32")
    emb = layers.embedding(words, [20, 4], param_attr="table", is_sparse=False)
    assert emb.shape == [-1, 4]
    pooled = layers.sequence_pool(emb, "sum")
    score = layers.fc(pooled, 1)
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(score, label))
    fluid.optimizer.Adagrad(0.1).minimize(loss)
    start()
    peer = peers("table", "fc_0.w_0", "fc_0.b_0")
    moments = [torch.zeros_like(p) for p in peer]
    rng = np.random.default_rng(0)
    for _ in range(4):
        lengths = rng.integers(1, 5, size=3).tolist()
        ids = rng.integers(20, size=(sum(lengths), 1))
        labels = rng.integers(2, size=(3, 1)).astype("float32")
        fed = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
        (got,) = run([loss], {"words": fed, "label": labels})
        parts = torch.split(peer[0][torch.tensor(ids[:, 0])], lengths)
        x = torch.stack([part.sum(0) for part in parts]) @ peer[1] + peer[2]
        wanted = F.binary_cross_entropy_with_logits(x, torch.tensor(labels))
        gradients = torch.autograd.grad(wanted, peer)
        with torch.no_grad():
            for p, m, g in zip(peer, moments, gradients):
                m += g * g
                p -= 0.1 * g / (m.sqrt() + 1e-6)
        np.testing.assert_allclose(got, [wanted.item()], 1e-5)
    np.testing.assert_allclose(value_of("table"), peer[0].detach().numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize(
    "rule",
    [
        lambda: fluid.optimizer.SGD(0.5),
        lambda: fluid.optimizer.Adagrad(0.5),
        lambda: fluid.optimizer.Adam(0.1),
        lambda: fluid.optimizer.Momentum(0.1, 0.9),
    ],
)
def test_tables_train_the_same_with_sparse_gradients(rule):
    rng = np.random.default_rng(0)
    first = drawn(30, 4, seed=2)
    feeds = []
    for _ in range(4):
        ids = rng.integers(30, size=(6, 1))
        words = fluid.create_lod_tensor(ids, [[1, 2, 3]], fluid.CPUPlace())
        feeds.append({"words": words, "dense": drawn(3, 5, seed=len(feeds))})
    tables = []
    for is_sparse in (False, True):
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.scope_guard(fluid.Scope()),
        ):
            words = layers.data("words", [1], dtype="int64", lod_level=1)
            dense = layers.data("dense", [5])
            attr = fluid.ParamAttr("t", fluid.initializer.NumpyArrayInitializer(first))
            rows = layers.embedding(words, [30, 4], is_sparse, param_attr=attr)
            pooled = layers.sequence_pool(rows, "sum")
            joined = layers.concat([pooled, dense], axis=1)
            loss = layers.mean(layers.square(joined))
            rule().minimize(loss)
            start()
            for feed in feeds:
                run([loss], feed)
            tables.append(value_of("t"))
    assert (tables[0] != first).any()
    np.testing.assert_allclose(tables[0], tables[1], 1e-5, 1e-6)


@pytest.mark.parametrize(
    "kind, of",
    [
        ("sum", lambda part: part.sum(0)),
        ("average", lambda part: part.mean(0)),
        ("sqrt", lambda part: part.sum(0) / math.sqrt(len(part))),
        ("max", lambda part: part.max(0)),
        ("first", lambda part: part[0]),
        ("last", lambda part: part[-1]),
    ],
)
def test_sequence_pool(kind, of):
    x = layers.data("x", [3], lod_level=1)
    out = layers.sequence_pool(x, kind)
    rows, lengths = drawn(6, 3), [2, 3, 1]
    fed = fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())
    (got,) = run([out], {"x": fed})
    parts = np.split(rows, np.cumsum(lengths)[:-1])
    np.testing.assert_allclose(got, np.stack([of(part) for part in parts]), 1e-6)
    with pytest.raises(ValueError, match="lod_level 1, but what is fed has 0 levels"):
        plain = fluid.LoDTensor()
        plain.set(rows, fluid.CPUPlace())
        run([out], {"x": plain})


def test_first_and_last_steps():
    x = layers.data("x", [2], lod_level=1)
    out = [layers.sequence_first_step(x), layers.sequence_last_step(x)]
    rows = drawn(5, 2)
    fed = fluid.create_lod_tensor(rows, [[3, 2]], fluid.CPUPlace())
    first, last = run(out, {"x": fed})
    np.testing.assert_array_equal(first, rows[[0, 3]])
    np.testing.assert_array_equal(last, rows[[2, 4]])


# ---- layers


def test_data_prepends_the_batch_only_where_it_is_missing():
    assert layers.data("a", [3, 4]).shape == [-1, 3, 4]
    assert layers.data("b", [-1, 4]).shape == [-1, 4]
    assert layers.data("c", [None, 4]).shape == [-1, 4]
    assert layers.data("d", [3, 4], append_batch_size=False).shape == [3, 4]
    assert not layers.data("e", [3], stop_gradient=False).stop_gradient
    assert fluid.data("f", [None, 3], "int64").dtype == paddle.int64


def test_embedding_drops_the_last_one_and_fluid_embedding_keeps_it():
    ids = layers.data("ids", [1], dtype="int64")
    old = layers.embedding(ids, [5, 2], param_attr="t", padding_idx=1)
    new = fluid.embedding(ids, [5, 2], param_attr="t", padding_idx=1)
    assert (old.shape, new.shape) == ([-1, 2], [-1, 1, 2])
    start()
    a, b = run([old, new], {"ids": np.array([[1], [3]])})
    np.testing.assert_array_equal(a, b[:, 0])
    assert not a[0].any() and a[1].any()
    with pytest.raises(ValueError, match="padding_idx 7"):
        layers.embedding(ids, [5, 2], padding_idx=7)


@pytest.mark.parametrize(
    "name, of",
    [
        ("elementwise_add", np.add),
        ("elementwise_sub", np.subtract),
        ("elementwise_mul", np.multiply),
        ("elementwise_div", np.divide),
        ("elementwise_max", np.maximum),
        ("elementwise_min", np.minimum),
    ],
)
def test_elementwise_with_axis_and_activation(name, of):
    x, y = layers.data("x", [3, 4]), layers.data("y", [3], append_batch_size=False)
    out = getattr(layers, name)(x, y, axis=1, act="relu")
    a, b = drawn(2, 3, 4), drawn(3, seed=1)
    (got,) = run([out], {"x": a, "y": b})
    np.testing.assert_allclose(got, np.maximum(of(a, b[:, None]), 0), 1e-5)


def test_functions_of_open_batches():
    x, y = layers.data("x", [3, 4]), layers.data("y", [12])
    outs = {
        "flat": layers.flatten(x),
        "whole": layers.flatten(x, axis=0),
        "mul": layers.mul(x, layers.create_parameter([12, 2], "float32", name="w")),
        "reshaped": layers.reshape(x, [-1, 12]),
        "normal": layers.l2_normalize(y, axis=1),
        "cos": layers.cos_sim(y, layers.reshape(x, [-1, 12])),
        "like": layers.fill_constant_batch_size_like(x, [-1, 5], "float32", 2.5),
        "pool": layers.pool2d(layers.reshape(x, [-1, 3, 2, 2]), global_pooling=True),
        "concat": layers.concat([y, layers.flatten(x)], axis=1),
        "sum": layers.reduce_sum(x, dim=[1, 2]),
        "mean": layers.reduce_mean(x, dim=-1, keep_dim=True),
        "top": layers.topk(y, k=2)[0],
        "softsign": layers.softsign(y),
        "floor": layers.ops.floor(layers.ops.cos(y)),
        "log": layers.log_loss(layers.sigmoid(y), layers.sigmoid(y)),
        "cost": layers.square_error_cost(y, layers.square(y)),
    }
    start()
    a, b = drawn(2, 3, 4), drawn(2, 12, seed=1)
    got = dict(zip(outs, run(list(outs.values()), {"x": a, "y": b})))
    flat = a.reshape(2, 12)
    np.testing.assert_array_equal(got["flat"], flat)
    np.testing.assert_array_equal(got["whole"], a.reshape(1, 24))
    np.testing.assert_allclose(got["mul"], flat @ value_of("w"), 1e-5)
    np.testing.assert_array_equal(got["reshaped"], flat)
    length = np.sqrt((b**2).sum(1, keepdims=True))
    np.testing.assert_allclose(got["normal"], b / length, 1e-5)
    cosine = (b * flat).sum(1) / (length[:, 0] * np.sqrt((flat**2).sum(1)))
    np.testing.assert_allclose(got["cos"], cosine[:, None], 1e-5)
    np.testing.assert_array_equal(got["like"], np.full((2, 5), 2.5))
    np.testing.assert_array_equal(got["pool"][:, :, 0, 0], a.max(2))
    np.testing.assert_array_equal(got["concat"], np.concatenate([b, flat], 1))
    np.testing.assert_allclose(got["sum"], a.sum((1, 2)), 1e-5)
    np.testing.assert_allclose(got["mean"], a.mean(-1, keepdims=True), 1e-5, 1e-6)
    np.testing.assert_array_equal(got["top"], -np.sort(-b, 1)[:, :2])
    np.testing.assert_allclose(got["softsign"], b / (1 + np.abs(b)), 1e-5)
    np.testing.assert_array_equal(got["floor"], np.floor(np.cos(b)))
    s = 1 / (1 + np.exp(-b))
    wanted = -s * np.log(s + 1e-4) - (1 - s) * np.log(1 - s + 1e-4)
    np.testing.assert_allclose(got["log"], wanted, 1e-4)
    np.testing.assert_allclose(got["cost"], (b - b**2) ** 2, 1e-4, 1e-5)


def test_dropout_is_off_in_programs_for_tests():
    x = layers.data("x", [50])
    out = layers.dropout(x, 0.5)
    test = fluid.default_main_program().clone(for_test=True)
    value = np.ones((4, 50), "float32")
    (trained,) = run([out], {"x": value})
    assert 0 < (trained == 0).sum() < 200 and set(np.unique(trained)) == {0.0, 1.0}
    (tested,) = run([out.name], {"x": value}, test)
    np.testing.assert_allclose(tested, value * 0.5)  # downgrade_in_infer


def test_auc_and_metrics_over_batches():
    x, y = layers.data("x", [2]), layers.data("y", [1], dtype="int64")
    area, last, states = layers.auc(input=x, label=y, num_thresholds=255)
    assert len(states) == 4
    start()
    scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], "float32")
    labels = np.array([[0], [1], [1], [0]])
    got = run([area, last], {"x": scores, "y": labels})
    np.testing.assert_allclose(got, [[0.5], [0.5]], 1e-6)
    metric = fluid.metrics.Auc("auc", num_thresholds=255)
    metric.update(scores, labels)
    np.testing.assert_allclose(metric.eval(), 0.5, 1e-6)


def test_nets():
    img = layers.data("img", [4, 8, 8])
    group = fluid.nets.img_conv_group(
        img, [3, 5], 2, conv_act="relu", conv_with_batchnorm=True, pool_stride=2
    )
    assert group.shape == [-1, 5, 4, 4]
    glu = fluid.nets.glu(layers.data("x", [6]))
    start()
    value = drawn(2, 6)
    (got,) = run([glu], {"x": value, "img": drawn(2, 4, 8, 8)})
    np.testing.assert_allclose(
        got, value[:, :3] / (1 + np.exp(-value[:, 3:])), 1e-5, 1e-6
    )
    with pytest.raises(ValueError, match="2 convolutions"):
        fluid.nets.img_conv_group(img, [3, 5], 2, conv_padding=[1])


# ---- learning rates


def exponential(step):
    return 0.5 * 0.8 ** (step // 2)


RATES = {
    "exponential": (
        lambda: layers.exponential_decay(0.5, 2, 0.8, staircase=True),
        exponential,
    ),
    "natural": (
        lambda: layers.natural_exp_decay(0.5, 3, 0.2),
        lambda s: 0.5 * math.exp(-0.2 * s / 3),
    ),
    "inverse": (
        lambda: layers.inverse_time_decay(0.5, 2, 0.3),
        lambda s: 0.5 / (1 + 0.3 * s / 2),
    ),
    "polynomial": (
        lambda: layers.polynomial_decay(0.5, 4, 0.1, 2.0),
        lambda s: 0.4 * (1 - min(s, 4) / 4) ** 2 + 0.1,
    ),
    "cycle": (
        lambda: layers.polynomial_decay(0.5, 4, 0.1, cycle=True),
        lambda s: 0.4 * (1 - s / (4 * max(1, math.ceil(s / 4)))) + 0.1,
    ),
    "piecewise": (
        lambda: layers.piecewise_decay([2, 4], [0.5, 0.2, 0.1]),
        lambda s: 0.5 if s < 2 else 0.2 if s < 4 else 0.1,
    ),
    "cosine": (
        lambda: layers.cosine_decay(0.5, 2, 5),
        lambda s: 0.5 * 0.5 * (math.cos(s // 2 * math.pi / 5) + 1),
    ),
    "noam": (
        lambda: layers.noam_decay(16, 3),
        lambda s: 16**-0.5 * min((s + 1) ** -0.5, (s + 1) * 3**-1.5),
    ),
    "warmup": (
        lambda: layers.linear_lr_warmup(0.5, 3, 0.1, 0.4),
        lambda s: 0.1 + 0.3 * s / 3 if s < 3 else 0.5,
    ),
    "warmup of a decay": (
        lambda: layers.linear_lr_warmup(
            layers.exponential_decay(0.5, 2, 0.8, True), 3, 0.1, 0.4
        ),
        lambda s: 0.1 + 0.3 * s / 3 if s < 3 else exponential(s),
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_learning_rates_move_with_each_run(name):
    make, wanted = RATES[name]
    rate = make()
    weight = layers.create_parameter([1], "float32", name="w")
    loss = layers.mean(weight)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    start()
    before = value_of("w").item()
    for step in range(7):
        (got,) = run([rate])
        np.testing.assert_allclose(got, [wanted(step)], 2e-5)
        after = value_of("w").item()
        np.testing.assert_allclose(before - after, wanted(step), 1e-3, 1e-6)
        before = after
        run([loss.name], program=test)  # does not count


def test_step_counters():
    counter = layers.learning_rate_scheduler._decay_step_counter()
    own = layers.autoincreased_step_counter("mine", begin=5, step=2)
    assert layers.autoincreased_step_counter("mine") is own
    start()
    got = [[v.item() for v in run([counter, own])] for _ in range(3)]
    assert got == [[0.0, 5], [1.0, 7], [2.0, 9]]


def test_learning_rates_in_eager_mode_are_those_of_dygraph():
    paddle.disable_static()
    rate = layers.exponential_decay(0.5, 2, 0.8, staircase=True)
    assert rate() == 0.5
    with pytest.raises(ValueError, match="2 boundaries need 3 values"):
        layers.piecewise_decay([2, 4], [0.5, 0.2])


# ---- optimizers


OPTIMIZERS = {
    "SGD": {},
    "Momentum": {"momentum": 0.9},
    "Adam": {},
    "Adagrad": {},
    "Adamax": {},
    "Adadelta": {},
    "RMSProp": {},
    "Ftrl": {},
    "Lamb": {},
    "LarsMomentum": {"momentum": 0.9},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_do_in_programs_what_they_do_in_eager_mode(name):
    x = drawn(5, 4)
    first = drawn(4, 2, seed=1)
    data = layers.data("x", [4])
    attr = fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(first))
    out = layers.fc(data, 2, param_attr=attr, bias_attr=False, act="tanh")
    loss = layers.mean(layers.square(out))
    kinds = [
        getattr(fluid.optimizer, name),
        getattr(fluid.optimizer, f"{name}Optimizer"),
    ]
    assert kinds[0] is kinds[1]
    made, pairs = kinds[0](learning_rate=0.1, **OPTIMIZERS[name]).minimize(loss)
    assert len(made) == len(pairs) == 1
    start()
    for _ in range(3):
        run([loss], {"x": x})
    got = value_of("w")
    with fluid.dygraph.guard():
        weight = paddle.create_parameter([4, 2], "float32", name="w")
        weight.set_value(first)
        rule = kinds[0](learning_rate=0.1, parameter_list=[weight], **OPTIMIZERS[name])
        for _ in range(3):
            out = paddle.tanh(paddle.matmul(paddle.to_tensor(x), weight))
            paddle.mean(out * out).backward()
            rule.minimize(paddle.mean(out))
            rule.clear_gradients()
        np.testing.assert_allclose(got, weight.numpy(), 1e-5, 1e-6)
    assert (got != first).any()


def test_decayed_adagrad_in_both_modes():
    kind = fluid.optimizer.DecayedAdagradOptimizer
    assert fluid.optimizer.DecayedAdagrad is kind
    x, first = drawn(5, 4), drawn(4, 2, seed=1)
    attr = fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(first))
    out = layers.fc(layers.data("x", [4]), 2, param_attr=attr, bias_attr=False)
    kind(0.1, decay=0.9, regularization=0.2).minimize(layers.mean(layers.square(out)))
    start()
    weight, moment = first.astype("float64"), 0.0
    paddle.disable_static()
    eager = paddle.create_parameter([4, 2], "float32")
    eager.set_value(first)
    rule = kind(0.1, 0.9, parameter_list=[eager], regularization=0.2)
    for _ in range(3):
        paddle.enable_static()
        run([out], {"x": x})
        paddle.disable_static()
        paddle.mean(paddle.square(paddle.matmul(paddle.to_tensor(x), eager))).backward()
        rule.minimize(eager)
        rule.clear_gradients()
        gradient = x.T @ (x @ weight) * 2 / 10 + 0.2 * weight
        moment = 0.9 * moment + 0.1 * gradient**2
        weight = weight - 0.1 * gradient / (np.sqrt(moment) + 1e-6)
        np.testing.assert_allclose(value_of("w"), weight, 1e-4)
        np.testing.assert_allclose(eager.numpy(), weight, 1e-4)


def test_gradients_are_merged_over_runs():
    x = drawn(8, 4)
    data = layers.data("x", [4])
    out = layers.fc(data, 2, bias_attr=False)
    loss = layers.mean(layers.square(out))
    inner = fluid.optimizer.Momentum(0.1, 0.9)
    merged = fluid.optimizer.GradientMergeOptimizer(inner, k_steps=2)
    merged.minimize(loss)
    start()
    (peer,) = peers("fc_0.w_0")
    sgd = torch.optim.SGD([peer], 0.1, 0.9)
    for step in range(4):
        part = x[2 * step : 2 * step + 2]
        run([loss], {"x": part})
        ((torch.tensor(part) @ peer) ** 2).mean().div(2).backward()
        if step % 2 == 1:
            sgd.step()
            sgd.zero_grad()
        np.testing.assert_allclose(
            value_of("fc_0.w_0"), peer.detach().numpy(), 1e-5, 1e-6
        )
    with pytest.raises(ValueError, match="k_steps"):
        fluid.optimizer.GradientMergeOptimizer(inner, k_steps=0)


def deep_model():
    """The loss, and checkpoints with a tenth of the memory of what lies between them."""
    value, checkpoints = layers.data("x", [4]), []
    for _ in range(4):
        value = layers.fc(layers.fc(value, 40, act="tanh"), 4, act="tanh")
        value = layers.dropout(value, 0.25)
        checkpoints.append(value)
    return layers.mean(layers.square(value)), checkpoints


def train_deep_model(optimizer_of):
    with fluid.unique_name.guard(), static.scope_guard(static.Scope()):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            loss, checkpoints = deep_model()
            optimizer_of(checkpoints).minimize(loss, startup)
        executor = fluid.Executor()
        paddle.seed(5)
        executor.run(startup)
        feed = {"x": drawn(3, 4)}
        losses = [executor.run(main, feed, [loss])[0].item() for _ in range(5)]
    return losses, [op.type for op in main.global_block().ops]


def test_recompute_is_the_same_training():
    def plain(checkpoints):
        return fluid.optimizer.SGD(0.1)

    def recompute(checkpoints):
        wrapped = fluid.optimizer.RecomputeOptimizer(plain(checkpoints))
        wrapped._set_checkpoints(checkpoints)
        return wrapped

    expected, kept = train_deep_model(plain)
    losses, repeated = train_deep_model(recompute)
    assert losses == expected
    assert len(set(losses)) == 5
    # All but the dropouts and what only the next checkpoint needs.
    assert repeated.count("tanh") > kept.count("tanh")
    assert repeated.count("dropout") == kept.count("dropout")
    with pytest.raises(TypeError, match="must be a list"):
        recompute([])._set_checkpoints(static.data("h", [1]))


def test_append_backward_takes_checkpoints():
    data = layers.data("x", [4])
    hidden = layers.fc(layers.fc(data, 8, act="tanh"), 3, act="tanh")
    loss = layers.mean(layers.fc(hidden, 1))
    static.append_backward(loss, checkpoints=[hidden.name])
    types = [op.type for op in static.default_main_program().global_block().ops]
    assert types.count("tanh") == 3
    start()
    assert np.isfinite(run([loss], {"x": drawn(3, 4)})[0]).all()


def test_recompute_names_a_checkpoint_that_is_none():
    loss = layers.mean(layers.fc(layers.data("x", [4]), 1))
    with pytest.raises(KeyError, match="no operation of forward makes nobody"):
        static.append_backward(loss, checkpoints=["nobody"])


def test_gradient_clip_and_regularization():
    data = layers.data("x", [4])
    out = layers.fc(data, 2, bias_attr=False)
    loss = layers.mean(out) * 100.0
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    fluid.optimizer.SGD(
        1.0, regularization=fluid.regularizer.L2DecayRegularizer(0.1)
    ).minimize(loss)
    start()
    before = value_of("fc_0.w_0")
    x = drawn(3, 4)
    run([loss], {"x": x})
    gradient = np.repeat(x.mean(0)[:, None], 2, 1) * 50
    gradient *= 0.5 / max(0.5, np.sqrt((gradient**2).sum()))
    np.testing.assert_allclose(
        value_of("fc_0.w_0"), before - gradient - 0.1 * before, 1e-4, 1e-5
    )
    with pytest.raises(TypeError, match="clip must be"):
        fluid.clip.set_gradient_clip(3)
    with pytest.raises(ValueError, match="param_list"):
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(1.0), [out])


def test_append_backward_and_gradients():
    x = layers.data("x", [4], stop_gradient=False)
    loss = layers.mean(layers.square(x))
    (gradient,) = fluid.gradients([loss], [x])
    weight = layers.create_parameter([4], "float32", name="w")
    pairs = fluid.backward.append_backward(layers.mean(weight * 3.0))
    assert [p.name for p, _ in pairs] == ["w"]
    assert fluid.framework.grad_var_name("w") == "w@GRAD"
    start()
    value = drawn(2, 4)
    dx, dw = run([gradient, pairs[0][1]], {"x": value})
    np.testing.assert_allclose(dx, value / 4, 1e-5)
    np.testing.assert_allclose(dw, [0.75] * 4, 1e-6)


# ---- programs, executors, scopes


def test_programs_are_switched_and_guarded():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        assert fluid.default_main_program() is main
        assert fluid.default_startup_program() is startup
        with fluid.name_scope("part"), fluid.device_guard("cpu"):
            layers.fc(layers.data("x", [2]), 3)
    op = main.global_block().ops[-1]
    assert isinstance(op, fluid.framework.Operator)
    assert isinstance(main.global_block(), fluid.framework.Block)
    assert op.attr("op_namescope") == "/part/" and op.attr("op_device") == "cpu"
    old = fluid.framework.switch_main_program(main)
    old_startup = fluid.framework.switch_startup_program(startup)
    try:
        assert fluid.default_main_program() is main
        assert fluid.default_startup_program() is startup
    finally:
        fluid.framework.switch_main_program(old)
        fluid.framework.switch_startup_program(old_startup)
    names = fluid.core.op_proto_and_checker_maker
    assert names.kOpRoleAttrName() == "op_role" and names.OpRole.Optimize == 2
    assert names.kOpRoleVarAttrName() == "op_role_var"


def test_compiled_programs_and_parallel_executors_run():
    x = layers.data("x", [2])
    loss = layers.mean(layers.fc(x, 1, name="f"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.fuse_all_optimizer_ops = True
    build.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    execution.num_threads = 1
    with pytest.raises(AttributeError, match="no setting"):
        build.no_such_setting = 1
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    compiled = compiled.with_data_parallel(loss.name, build, execution)
    feed = {"x": drawn(3, 2)}
    (first,) = executor.run(compiled, feed=feed, fetch_list=[loss.name])
    parallel = fluid.ParallelExecutor(False, loss.name)
    assert parallel.device_count == 1
    (second,) = parallel.run([loss.name], feed=feed)
    assert second < first
    fluid.memory_optimize(fluid.default_main_program())
    fluid.release_memory(fluid.default_main_program())
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.run(compiled, feed=feed)


def test_scopes_and_tensors():
    scope = fluid.core.Scope()
    assert isinstance(scope, fluid.Scope)
    with fluid.scope_guard(scope):
        assert fluid.global_scope() is scope
        layers.create_global_var([2], 1.5, "float32", persistable=True, name="v")
        start()
        tensor = fluid.global_scope().find_var("v").get_tensor()
        np.testing.assert_array_equal(np.array(tensor), [1.5, 1.5])
        tensor.set(np.array([3.0, 4.0], "float32"), fluid.CPUPlace())
        assert tensor._get_dims() == [2]
        np.testing.assert_array_equal(value_of("v"), [3.0, 4.0])
    assert fluid.global_scope().find_var("v") is None
    assert fluid.Tensor is fluid.LoDTensor
    assert fluid.core.LoDTensorArray([1]) == [1] and fluid.LoDTensorArray


def test_lod_tensors():
    place = fluid.CPUPlace()
    made = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]], place)
    assert made.lod() == [[0, 2, 3]]
    assert made.recursive_sequence_lengths() == [[2, 1]]
    np.testing.assert_array_equal(np.array(made), [[1], [2], [3]])
    again = fluid.create_lod_tensor(made, [[1, 2]], place)
    assert again.lod() == [[0, 1, 3]]
    drawn_ids = fluid.create_random_int_lodtensor([[2, 3]], [1], place, 4, 6)
    values = np.array(drawn_ids)
    assert values.shape == (5, 1) and values.min() >= 4 and values.max() <= 6
    with pytest.raises(ValueError, match="do not add up"):
        fluid.create_lod_tensor(np.zeros((3, 1)), [[1, 1]], place)
    with pytest.raises(ValueError, match="lengths"):
        fluid.create_lod_tensor([[1, 2], [3]], [[1, 2]], place)


def test_flags():
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 0.5})
    assert fluid.get_flags("FLAGS_eager_delete_tensor_gb") == {
        "FLAGS_eager_delete_tensor_gb": 0.5
    }
    assert fluid.core.globals()["FLAGS_eager_delete_tensor_gb"] == 0.5
    with pytest.raises(ValueError, match="begin with FLAGS_"):
        fluid.set_flags({"eager": 1})
    with pytest.raises(ValueError, match="is not set"):
        fluid.get_flags(["FLAGS_nobody_set_this"])


def test_types_of_variables():
    kinds = fluid.core.VarDesc.VarType
    x = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="x", shape=[2], dtype=kinds.FP32, type=kinds.LOD_TENSOR)
    )
    assert x.dtype == kinds.FP32 == paddle.float32
    assert kinds.INT64 == paddle.int64 and kinds.BOOL == paddle.bool
    assert isinstance(x, fluid.framework.Variable) and isinstance(x, fluid.Variable)
    with pytest.raises(fluid.core.EnforceNotMet):
        layers.mul(x, x)


def test_collective_operations_are_appended():
    x = layers.data("x", [4, 2], append_batch_size=False)
    summed = layers.collective._c_allreduce(x, reduce_type="max", use_calc_stream=True)
    gathered = layers.collective._c_allgather(x, 2)
    part = layers.collective._c_reducescatter(x, 2)
    layers.collective._c_broadcast(x, root=1)
    assert (summed.shape, gathered.shape, part.shape) == ([4, 2], [8, 2], [2, 2])
    assert op_types() == [
        "c_allreduce_max",
        "c_allgather",
        "c_reducescatter",
        "c_broadcast",
    ]
    with pytest.raises(TypeError, match="reduce_type"):
        layers.collective._c_allreduce(x, reduce_type="mean")
    with pytest.raises(ValueError, match="do not split"):
        layers.collective._c_reducescatter(x, 3)


def test_fetch_handlers():
    handler = fluid.executor.FetchHandler({"loss": None}, period_secs=1)
    assert handler.period_secs == 1
    with pytest.raises(ValueError, match="var_dict"):
        fluid.executor.FetchHandler()


def test_static_mode_begins_by_itself(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "train.py"
    script.write_text(
        "import numpy as np, paddle.fluid as fluid\n"
        "x = fluid.layers.data('x', [2])\n"
        "y = fluid.layers.fc(x, 3)\n"
        "exe = fluid.Executor(fluid.CPUPlace())\n"
        "exe.run(fluid.default_startup_program())\n"
        "out, = exe.run(feed={'x': np.ones((4, 2), 'float32')}, fetch_list=[y])\n"
        "print(out.shape)\n"
    )
    import os

    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "(4, 3)\n", done.stderr
    assert "going on in static mode" in done.stderr


def test_what_belongs_to_other_parts_says_so():
    with pytest.raises(NotImplementedError, match="measuring"):
        fluid.profiler
    with pytest.raises(NotImplementedError, match="pipelines"):
        fluid.optimizer.PipelineOptimizer
    assert static.Program is fluid.Program


def test_settings_have_the_defaults_of_paddle():
    build = fluid.BuildStrategy()
    assert not build.enable_sequential_execution and not build.fuse_elewise_add_act_ops
    assert not build.fuse_bn_act_ops and not build.fuse_relu_depthwise_conv
    assert not build.fuse_broadcast_ops and build.fuse_all_optimizer_ops
    assert build.enable_inplace and build.enable_backward_optimizer_op_deps
    assert not build.cache_runtime_context and build.fuse_bn_add_act_ops
    assert not build.enable_auto_fusion and not build.enable_addto
    assert build.reduce_strategy == fluid.BuildStrategy.ReduceStrategy.AllReduce
    kinds = fluid.BuildStrategy.GradientScaleStrategy
    assert build.gradient_scale_strategy == kinds.CoeffNumDevice
    assert build.memory_optimize is None and build.remove_unnecessary_lock
    assert not build.sync_batch_norm and build.num_trainers == 1
    assert build.trainer_id == 0 and build.trainers_endpoints == []
    build.trainers_endpoints.append("127.0.0.1:80")
    assert fluid.BuildStrategy().trainers_endpoints == []
    execution = fluid.ExecutionStrategy()
    assert execution.num_threads == 0 and execution.num_iteration_per_run == 1
    assert execution.num_iteration_per_drop_scope == 100
    assert not execution.use_thread_barrier
    assert "num_threads=0" in repr(execution)


def filled(kind, *args, shape=(200, 300)):
    """What a startup program fills a parameter with."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        attr = fluid.ParamAttr(name="filled", initializer=kind(*args))
        layers.create_parameter(list(shape), "float32", attr=attr)
        start()
    return value_of("filled")


def test_initializers_fill_in_startup_programs():
    from paddle.fluid import initializer

    for kind in (initializer.Constant, initializer.ConstantInitializer):
        np.testing.assert_array_equal(
            filled(kind, 2.5, shape=(2, 3)), np.full((2, 3), 2.5)
        )
    for kind in (initializer.Uniform, initializer.UniformInitializer):
        value = filled(kind, -0.5, 1.5)
        assert -0.5 <= value.min() < -0.49 and 1.49 < value.max() <= 1.5
        assert abs(value.mean() - 0.5) < 0.02
    for kind in (initializer.Normal, initializer.NormalInitializer):
        value = filled(kind, 1.0, 2.0)
        assert abs(value.mean() - 1.0) < 0.05 and abs(value.std() - 2.0) < 0.05
    for kind in (initializer.TruncatedNormal, initializer.TruncatedNormalInitializer):
        value = filled(kind, 0.0, 1.0)
        assert np.abs(value).max() <= 2.0 and abs(value.std() - 0.88) < 0.02
    for kind in (initializer.Xavier, initializer.XavierInitializer):
        limit = math.sqrt(6 / 500)
        assert 0.98 * limit < np.abs(filled(kind)).max() <= limit * 1.0001
        assert abs(filled(kind, False).std() - math.sqrt(2 / 500)) < 0.002
    for kind in (initializer.MSRA, initializer.MSRAInitializer):
        limit = math.sqrt(6 / 200)
        assert 0.98 * limit < np.abs(filled(kind)).max() <= limit * 1.0001
        assert abs(filled(kind, False).std() - math.sqrt(2 / 200)) < 0.002
    with pytest.raises(ValueError, match="paddle.seed"):
        initializer.Normal(0.0, 1.0, seed=3)


def test_values_are_saved_and_loaded(tmp_path):
    out = layers.fc(layers.data("x", [3]), 2, act="tanh")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    feed = {"x": drawn(4, 3)}
    (before,) = run([out], feed)
    fluid.io.save_persistables(executor, str(tmp_path / "values"))
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [out], executor)
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    weight.set(np.zeros((3, 2), "float32"), fluid.CPUPlace())
    fluid.io.load_persistables(executor, str(tmp_path / "values"))
    np.testing.assert_array_equal(run([out], feed)[0], before)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(
            str(tmp_path / "model"), executor
        )
        assert feeds == ["x"]
        got = executor.run(program, feed=feed, fetch_list=fetches)
        np.testing.assert_allclose(got[0], before, 1e-6)


def test_modes_of_fluid():
    assert not fluid.in_dygraph_mode()
    fluid.enable_dygraph()
    assert fluid.in_dygraph_mode() and fluid.framework.in_dygraph_mode()
    fluid.disable_dygraph()
    assert not fluid.in_dygraph_mode()
    roles = fluid.core.op_proto_and_checker_maker.OpRole
    assert (roles.Forward, roles.Backward, roles.Loss) == (0, 1, 256)
    assert issubclass(fluid.framework.Parameter, fluid.framework.Variable)
    assert fluid.Parameter is fluid.framework.Parameter
