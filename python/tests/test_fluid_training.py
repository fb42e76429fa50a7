# SPDX-License-Identifier: Apache-2.0
"""Training scripts of Paddle 1.8 in static mode, against torch."""

import math

import numpy as np
import paddle.fluid as fluid
import pytest
import torch
from paddle.fluid import layers
from static_check import drawn, fresh_programs, op_types, peers, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")

F = torch.nn.functional


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
