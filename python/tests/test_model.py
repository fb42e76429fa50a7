# SPDX-License-Identifier: Apache-2.0
"""paddle.Model and its callbacks: the same as a loop written out, and what is said on
the way."""

import io

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.callbacks import (
    Callback,
    EarlyStopping,
    LRScheduler,
    ModelCheckpoint,
    ProgBarLogger,
    ReduceLROnPlateau,
)
from paddle.hapi.progress import Progress
from paddle.static import InputSpec


class Points(paddle.io.Dataset):
    """Points of two classes, on two sides of a plane."""

    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.x = rng.standard_normal((count, 4)).astype("float32")
        self.y = (self.x.sum(1, keepdims=True) > 0).astype("int64")

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __len__(self):
        return len(self.x)


def network():
    paddle.seed(7)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def prepared(net=None, rate=0.1, metrics=True, optimizer=None):
    net = network() if net is None else net
    model = paddle.Model(net)
    rule = optimizer or paddle.optimizer.Momentum(rate, parameters=net.parameters())
    measure = paddle.metric.Accuracy() if metrics else None
    model.prepare(rule, nn.CrossEntropyLoss(), measure)
    return model


def weights(model):
    return [p.numpy() for p in model.parameters()]


def batches(data, size):
    for begin in range(0, len(data), size):
        yield data.x[begin : begin + size], data.y[begin : begin + size]


def accuracy(net, data):
    net.eval()
    return (net(paddle.to_tensor(data.x)).numpy().argmax(1) == data.y[:, 0]).mean()


# ---- training


@pytest.mark.parametrize("every", [1, 2])
def test_fit_is_the_loop_that_one_would_write(every):
    data = Points(22)
    model = prepared()
    model.fit(
        data,
        batch_size=4,
        epochs=3,
        shuffle=False,
        verbose=0,
        accumulate_grad_batches=every,
    )
    net = network()
    rule = paddle.optimizer.Momentum(0.1, parameters=net.parameters())
    loss = nn.CrossEntropyLoss()
    for _ in range(3):
        pieces = list(batches(data, 4))
        for i, (x, y) in enumerate(pieces):
            loss(net(paddle.to_tensor(x)), paddle.to_tensor(y)).backward()
            if (i + 1) % every == 0 or i + 1 == len(pieces):
                rule.step()
                rule.clear_grad()
    for ours, theirs in zip(weights(model), net.parameters()):
        np.testing.assert_array_equal(ours, theirs.numpy())


def test_a_model_learns_and_says_how_well():
    train, test = Points(200), Points(50, seed=1)
    model = prepared()
    model.fit(train, test, batch_size=20, epochs=15, verbose=0)
    found = model.evaluate(test, batch_size=20, verbose=0)
    assert set(found) == {"loss", "acc"}
    assert found["acc"] == accuracy(model.network, test) > 0.9
    x, y = test.x[40:], test.y[40:]
    last = nn.CrossEntropyLoss()(
        model.network(paddle.to_tensor(x)), paddle.to_tensor(y)
    )
    np.testing.assert_allclose(found["loss"], last.numpy(), 1e-6)


def test_batches_may_come_from_anywhere():
    data = Points(12)
    wanted = prepared()
    wanted.fit(data, batch_size=4, shuffle=False, verbose=0)
    loader = paddle.io.DataLoader(data, batch_size=4)
    by_loader, by_list, by_iterator = prepared(), prepared(), prepared()
    by_loader.fit(loader, verbose=0)
    by_list.fit(list(batches(data, 4)), verbose=0)

    class Stream(paddle.io.IterableDataset):
        def __iter__(self):
            return iter([(x, y) for x, y in zip(data.x, data.y)])

    # Two batches at a time: that the third is the last one is known only afterwards.
    by_iterator.fit(Stream(), batch_size=4, verbose=0, accumulate_grad_batches=2)
    also = prepared()
    also.fit(data, batch_size=4, shuffle=False, verbose=0, accumulate_grad_batches=2)
    for model, other in ((by_loader, wanted), (by_list, wanted), (by_iterator, also)):
        for ours, theirs in zip(weights(model), weights(other)):
            np.testing.assert_array_equal(ours, theirs)


def test_it_ends_after_so_many_steps():
    class Count(Callback):
        steps = 0

        def on_train_batch_end(self, step, logs=None):
            self.steps += 1

    count = Count()
    prepared().fit(
        Points(12), batch_size=4, epochs=5, verbose=0, num_iters=4, callbacks=count
    )
    assert count.steps == 4


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_mixed_precision_is_the_loop_that_one_would_write(level, tmp_path):
    data = Points(16)
    scaling = {"init_loss_scaling": 64.0, "incr_every_n_steps": 3}
    net = network()
    model = paddle.Model(net)
    rule = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    configs = {"level": level, "dtype": "bfloat16", **scaling}
    model.prepare(rule, nn.CrossEntropyLoss(), amp_configs=configs)
    model.fit(data, batch_size=4, epochs=2, shuffle=False, verbose=0)
    other = network()
    rule = paddle.optimizer.SGD(0.1, parameters=other.parameters())
    scaler = paddle.amp.GradScaler(**scaling)
    for _ in range(2):
        for x, y in batches(data, 4):
            with paddle.amp.auto_cast(level=level, dtype="bfloat16"):
                out = other(paddle.to_tensor(x))
                loss = nn.CrossEntropyLoss()(out, paddle.to_tensor(y))
            scaler.scale(loss).backward()
            scaler.step(rule)
            scaler.update()
            rule.clear_grad()
    for ours, theirs in zip(weights(model), other.parameters()):
        np.testing.assert_array_equal(ours, theirs.numpy())
    exact = network()
    rule = paddle.optimizer.SGD(0.1, parameters=exact.parameters())
    settings = dict(batch_size=4, epochs=2, shuffle=False, verbose=0)
    prepared(exact, optimizer=rule).fit(data, **settings)
    assert not np.array_equal(exact[0].weight.numpy(), net[0].weight.numpy())
    np.testing.assert_allclose(exact[0].weight, net[0].weight, 0.1, 0.01)
    # Eight steps: it doubled twice, and goes on from there.
    assert model._scaler.state_dict() == scaler.state_dict()
    assert model._scaler.state_dict()["scale"] == 64.0 * 4
    model.save(str(tmp_path / "half"))
    again = paddle.Model(network())
    rule = paddle.optimizer.SGD(0.1, parameters=again.parameters())
    again.prepare(rule, nn.CrossEntropyLoss(), amp_configs=configs)
    again.load(str(tmp_path / "half"))
    assert again._scaler.state_dict()["scale"] == 64.0 * 4


def test_single_batches():
    model = prepared()
    x, y = np.ones((3, 4), "float32"), np.zeros((3, 1), "int64")
    before = weights(model)
    logits = model.network(paddle.to_tensor(x))
    wanted = nn.CrossEntropyLoss()(logits, paddle.to_tensor(y)).numpy()
    share = float(logits.numpy()[0].argmax() == 0)
    losses, metrics = model.eval_batch([x], [y])
    np.testing.assert_array_equal(losses[0], wanted)
    assert metrics == [share]
    (out,) = model.predict_batch([x])
    np.testing.assert_array_equal(out, logits.numpy())
    losses, metrics = model.train_batch([x], [y], update=False)
    np.testing.assert_array_equal(losses[0], wanted)
    for old, new in zip(before, weights(model)):
        np.testing.assert_array_equal(old, new)
    model.train_batch([x], [y])
    assert not np.array_equal(before[0], weights(model)[0])
    plain = prepared(metrics=False)
    assert len(plain.train_batch(x, y)) == 1


def test_several_inputs_outputs_and_losses():
    class Both(nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(2, 1), nn.Linear(3, 1)

        def forward(self, a, b, scale=1.0):
            return self.one(a) * scale, self.other(b) * scale

    def losses(p, q, y):
        return [((p - y) ** 2).mean(), ((q - y) ** 2).mean()]

    rng = np.random.default_rng(0)
    data = [
        tuple(rng.standard_normal((4, n)).astype("float32") for n in (2, 3, 1))
        for _ in range(3)
    ]
    paddle.seed(1)
    net = Both()
    model = paddle.Model(net)
    rule = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    model.prepare(rule, losses)
    logged = []

    class Log(Callback):
        def on_train_batch_end(self, step, logs=None):
            logged.append(logs["loss"])

    model.fit(data, epochs=20, verbose=0, callbacks=[Log()])
    assert all(len(values) == 2 for values in logged)
    assert sum(logged[-1]) < sum(logged[2])
    outputs = model.predict(data, verbose=0)
    assert [len(parts) for parts in outputs] == [3, 3]
    stacked = model.predict(data, stack_outputs=True, verbose=0)
    assert [part.shape for part in stacked] == [(12, 1), (12, 1)]
    np.testing.assert_array_equal(stacked[1], np.concatenate(outputs[1]))


def test_specs_say_what_goes_into_the_network():
    class Any(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, *parts):
            return self.linear(sum(parts))

    net = Any()
    model = paddle.Model(net, [InputSpec([None, 4]), InputSpec([None, 4])])
    model.prepare(
        paddle.optimizer.SGD(0.1, parameters=net.parameters()), nn.CrossEntropyLoss()
    )
    x, y = np.ones((2, 4), "float32"), np.zeros((2, 1), "int64")
    model.fit([(x, x, y)], verbose=0)
    with pytest.raises(ValueError, match="takes 2 inputs, but a batch has 1 parts"):
        model.predict([(x,)], verbose=0)
    free = paddle.Model(net)
    free.prepare(model._optimizer, nn.CrossEntropyLoss())
    free.fit([(x, x, y)], verbose=0)
    assert free.predict([(x, x)], verbose=0)[0][0].shape == (2, 2)


def test_metrics_of_several_numbers():
    model = prepared(metrics=False)
    model._metrics = [paddle.metric.Accuracy(topk=(1, 2))]
    found = model.evaluate(Points(10), batch_size=5, verbose=0)
    assert list(found) == ["loss", "acc_top1", "acc_top2"] and found["acc_top2"] == 1.0


# ---- files


def test_training_goes_on_from_what_was_saved(tmp_path):
    data = Points(16)
    settings = dict(batch_size=4, shuffle=False, verbose=0)
    straight = prepared()
    straight.fit(data, epochs=4, **settings)
    prepared().fit(data, epochs=2, save_dir=str(tmp_path), **settings)
    names = sorted(path.name for path in tmp_path.iterdir())
    stems = ("0", "1", "final")
    assert names == [f"{s}.{kind}" for s in stems for kind in ("pdopt", "pdparams")]
    # Under the names that the optimizer knows its states by.
    with paddle.utils.unique_name.guard():
        first = prepared()
    first.fit(data, epochs=2, **settings)
    first.save(str(tmp_path / "half"))
    with paddle.utils.unique_name.guard():
        second = prepared(rate=0.1)
    second.load(str(tmp_path / "half"))
    second.fit(data, epochs=2, **settings)
    for ours, theirs in zip(weights(second), weights(straight)):
        np.testing.assert_array_equal(ours, theirs)
    with paddle.utils.unique_name.guard():
        forgetful = prepared()
    forgetful.load(str(tmp_path / "half.pdparams"), reset_optimizer=True)
    forgetful.fit(data, epochs=2, **settings)
    assert not np.array_equal(weights(forgetful)[0], weights(straight)[0])


def test_what_does_not_fit_is_named_or_skipped(tmp_path):
    path = str(tmp_path / "model")
    prepared().save(path)
    other = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), nn.Linear(3, 2))
    model = prepared(other)
    with pytest.raises(
        ValueError, match=r"2.weight has shape \[8, 2\], but the network"
    ):
        model.load(path)
    last = other[3].weight.numpy()
    with pytest.warns(UserWarning) as warned:
        model.load(path, skip_mismatch=True, reset_optimizer=True)
    reasons = ["2.weight has shape", "2.bias has shape", "there is no 3.weight"]
    for one, reason in zip(warned, [*reasons, "there is no 3.bias"], strict=True):
        assert reason in str(one.message) and "it stays as it is" in str(one.message)
    np.testing.assert_array_equal(other[0].weight.numpy(), network()[0].weight.numpy())
    np.testing.assert_array_equal(other[3].weight.numpy(), last)
    with pytest.raises(ValueError, match="must end in a file name"):
        model.save(str(tmp_path) + "/")


def test_a_model_for_inference(tmp_path):
    model = prepared()
    with pytest.raises(RuntimeError, match="what the network takes is not known"):
        model.save(str(tmp_path / "net"), training=False)
    data = Points(6)
    model.fit(data, batch_size=3, verbose=0)
    model.save(str(tmp_path / "net"), training=False)
    assert model.network.training
    loaded = paddle.jit.load(str(tmp_path / "net"))
    loaded.eval()
    got = loaded(paddle.to_tensor(data.x)).numpy()
    (wanted,) = model.predict_batch(data.x)
    np.testing.assert_allclose(got, wanted, 1e-6)


# ---- callbacks


class Spy(Callback):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            self.calls.append(name)
        return super().__getattribute__(name)


def test_callbacks_are_called_in_order():
    spy = Spy()
    model = prepared()
    model.fit(Points(8), Points(4), batch_size=4, epochs=1, verbose=0, callbacks=[spy])
    train = ["on_train_batch_begin", "on_train_batch_end"]
    test = ["on_eval_batch_begin", "on_eval_batch_end"]
    assert spy.calls == [
        "on_train_begin",
        "on_epoch_begin",
        *train,
        *train,
        "on_epoch_end",
        "on_eval_begin",
        *test,
        "on_eval_end",
        "on_train_end",
    ]
    assert spy.model is model
    assert spy.params == {
        "batch_size": 4,
        "epochs": 1,
        "steps": 2,
        "verbose": 0,
        "metrics": ["loss", "acc"],
    }
    spy.calls.clear()
    model.predict(Points(4), batch_size=4, verbose=0, callbacks=spy)
    predict = ["begin", "batch_begin", "batch_end", "end"]
    assert spy.calls == [f"on_predict_{name}" for name in predict]


def test_evaluation_comes_every_so_many_epochs():
    spy = Spy()
    prepared().fit(Points(4), Points(4), 4, 5, eval_freq=2, verbose=0, callbacks=spy)
    assert spy.calls.count("on_eval_end") == 3


def test_what_is_printed(capsys):
    prepared().fit(Points(10), Points(6), batch_size=4, epochs=1, log_freq=2)
    lines = capsys.readouterr().out.splitlines()
    heads = [line.partition(":")[0] for line in lines]
    assert heads == [
        "The loss is that of the step that is shown, and metrics are those of the epoch "
        "so far.",
        "Epoch 1/1",
        "step 2/3 - loss",
        "step 3/3 - loss",
        "Eval begin...",
        "step 2/2 - loss",
        "Eval samples",
    ]
    assert lines[-1] == "Eval samples: 6" and " - acc: " in lines[3]
    assert lines[3].endswith("/step")
    prepared().predict(Points(6), batch_size=4, verbose=1)
    out = capsys.readouterr().out
    assert "\rstep 1/2 [===============>..............] - " in out
    assert out.splitlines()[-1] == "Predict samples: 6"
    prepared().fit(Points(4), batch_size=4, verbose=0)
    assert capsys.readouterr().out == ""


def test_the_line_of_progress():
    times = iter([0.0, 2.0, 2.5, 2.5005])
    out = io.StringIO()
    line = Progress(4, 1, out, lambda: next(times))
    line.show(1, [("loss", [0.25, 1.0])])
    line.show(2, [("acc", 0.5)])
    line.show(4, [], last=True)
    bars = ["=======>" + "." * 22, "=" * 15 + ">" + "." * 14, "=" * 30]
    shown = [
        f"step 1/4 [{bars[0]}] - loss: 0.2500 1.0000 - 2s/step",
        f"step 2/4 [{bars[1]}] - acc: 0.5000 - 1s/step",
        f"step 4/4 [{bars[2]}] - 625ms/step",
    ]
    found = out.getvalue()
    assert found.endswith("\n")
    assert [part.rstrip() for part in found.split("\r")[1:]] == shown
    # Each covers what stood there before.
    assert len({len(part.rstrip("\n")) for part in found.split("\r")[1:]}) == 1
    out = io.StringIO()
    Progress(None, 2, out, iter([0.0, 3e-5]).__next__).show(1, [])
    assert out.getvalue() == "step 1/Unknown - 30us/step\n"


def scheduled(net):
    schedule = paddle.optimizer.lr.StepDecay(0.1, step_size=1, gamma=0.5)
    return schedule, paddle.optimizer.SGD(schedule, parameters=net.parameters())


@pytest.mark.parametrize(
    "callback, halvings",
    [
        (None, 6),
        (LRScheduler(by_step=False, by_epoch=True), 2),
        (LRScheduler(False), 0),
    ],
)
def test_schedules_advance_by_step_or_by_epoch(callback, halvings):
    net = network()
    schedule, rule = scheduled(net)
    model = prepared(net, optimizer=rule)
    model.fit(Points(12), batch_size=4, epochs=2, verbose=0, callbacks=callback)
    assert schedule() == pytest.approx(0.1 * 0.5**halvings)
    with pytest.raises(ValueError, match="exclude each other"):
        LRScheduler(True, True)


class Says(Callback):
    """Puts values of its own into the logs of evaluations, before others see them."""

    def __init__(self, name, values):
        super().__init__()
        self._name = name
        self._values = iter(values)

    def on_eval_end(self, logs=None):
        logs[self._name] = next(self._values)


def fitted(values, *callbacks, name="loss", epochs=None, **settings):
    """The number of epochs that ran while evaluations said these values."""
    spy = Spy()
    model = prepared(rate=1.0)
    model.fit(
        Points(4),
        Points(4),
        batch_size=4,
        epochs=epochs or len(values),
        verbose=0,
        callbacks=[Says(name, values), *callbacks, spy],
        **settings,
    )
    return spy.calls.count("on_epoch_end"), model


@pytest.mark.parametrize(
    "values, settings, epochs",
    [
        ([3, 2, 1, 2, 1.5, 0], dict(patience=2), 5),
        ([3, 2, 1, 2, 0.5, 0], dict(patience=2), 6),
        ([3, 2, 2.5, 1], dict(), 3),
        ([3.0, 2.9, 2.85, 2.0], dict(patience=2, min_delta=0.2), 3),
        ([1, 2, 3, 2], dict(patience=1, mode="max"), 4),
        ([[3.0], [4.0], [2.0]], dict(patience=1, baseline=2.5), 1),
    ],
)
def test_training_ends_early(values, settings, epochs, capsys):
    stopping = EarlyStopping(save_best_model=False, **settings)
    assert fitted(values, stopping)[0] == epochs
    said = f"Epoch {epochs}: Early stopping." in capsys.readouterr().out
    assert said == (epochs < len(values) or values[-1] == 2)


def test_accuracies_are_better_when_they_rise_and_the_best_is_saved(tmp_path):
    stopping = EarlyStopping("acc", patience=2, verbose=0)
    values = [0.5, 0.7, 0.6, 0.65, 0.9]
    epochs, _ = fitted(values, stopping, name="acc", save_dir=str(tmp_path))
    assert epochs == 4 and stopping.best_value == 0.7
    best = paddle.load(str(tmp_path / "best_model.pdparams"))
    second = paddle.load(str(tmp_path / "1.pdparams"))
    last = paddle.load(str(tmp_path / "3.pdparams"))
    np.testing.assert_array_equal(best["0.weight"].numpy(), second["0.weight"].numpy())
    assert not np.array_equal(best["0.weight"].numpy(), last["0.weight"].numpy())


def test_the_rate_falls_on_a_plateau(capsys):
    reduce = ReduceLROnPlateau(factor=0.1, patience=2, cooldown=1, min_lr=0.05)
    _, model = fitted([3, 3, 3], reduce)
    assert model._optimizer.get_lr() == pytest.approx(0.1)
    assert "ReduceLROnPlateau: the learning rate is 0.1 now." in capsys.readouterr().out
    # One evaluation to cool down, two more to wait; never below the least rate.
    _, model = fitted([3] * 5, ReduceLROnPlateau(factor=0.1, patience=2, cooldown=2))
    assert model._optimizer.get_lr() == pytest.approx(0.1)
    _, model = fitted([3] * 9, ReduceLROnPlateau(factor=0.1, patience=2, min_lr=0.05))
    assert model._optimizer.get_lr() == pytest.approx(0.05)
    _, model = fitted([3, 2, 1, 0], ReduceLROnPlateau(factor=0.1, patience=1))
    assert model._optimizer.get_lr() == 1.0
    with pytest.raises(ValueError, match="factor must be below 1"):
        ReduceLROnPlateau(factor=1.5)


def test_checkpoints_come_every_so_many_epochs(tmp_path, capsys):
    prepared().fit(
        Points(4),
        batch_size=4,
        epochs=3,
        verbose=0,
        callbacks=[ModelCheckpoint(2, str(tmp_path))],
    )
    stems = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert stems == {"0", "2", "final"}
    assert f"save checkpoint at {tmp_path}/2" in capsys.readouterr().out


def test_an_epoch_without_a_batch_leaves_what_was_saved_as_it_is(tmp_path):
    trained = prepared()
    trained.fit(Points(8), batch_size=4, verbose=0, save_dir=str(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    used_up = iter(list(batches(Points(8), 4)))
    list(used_up)
    for data, settings in (
        (Points(0), {"shuffle": False}),
        (Points(3), {"batch_size": 4, "drop_last": True}),
        (used_up, {}),
    ):
        with pytest.raises(ValueError, match="epoch 0 had no batch"):
            prepared().fit(data, verbose=0, save_dir=str(tmp_path), **settings)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after == before

    # An iterator that lasts for one epoch is no data for two.
    once = iter(list(batches(Points(8), 4)))
    with pytest.raises(ValueError, match="epoch 1 had no batch.*used up"):
        prepared().fit(once, epochs=2, verbose=0)
    # Nobody asked for a step.
    prepared().fit(Points(8), num_iters=0, verbose=0)


# ---- mistakes


def test_mistakes_are_named():
    model = paddle.Model(network())
    with pytest.raises(RuntimeError, match="fit: there is no optimizer: give one to"):
        model.fit(Points(4))
    with pytest.raises(TypeError, match="takes a paddle.nn.Layer, but got a function"):
        paddle.Model(paddle.tanh)
    with pytest.raises(
        TypeError, match="inputs must be InputSpecs, but one is a tuple"
    ):
        paddle.Model(network(), inputs=[(1, 2)])
    with pytest.raises(TypeError, match="loss must be a layer or a function"):
        model.prepare(loss=3)
    with pytest.raises(TypeError, match="metrics must be paddle.metric.Metric"):
        model.prepare(metrics=["acc"])
    with pytest.raises(ValueError, match="level of amp_configs must be 'O0', 'O1' or"):
        model.prepare(amp_configs="O3")
    for exact in (None, {}, "O0", {"level": "O0"}):
        model.prepare(amp_configs=exact)
        assert model._scaler is None
    with pytest.raises(ValueError, match="amp_configs has no 'scale'"):
        model.prepare(amp_configs={"scale": 1})
    model = prepared()
    with pytest.raises(ValueError, match="train_data is missing"):
        model.fit()
    with pytest.raises(TypeError, match="data must be a Dataset, a DataLoader or give"):
        model.fit(3)
    with pytest.raises(ValueError, match="accumulate_grad_batches must be at least 1"):
        model.fit(Points(4), accumulate_grad_batches=0)
    with pytest.raises(TypeError, match="callbacks must be paddle.callbacks.Callback"):
        model.fit(Points(4), callbacks=["early"])
    with pytest.raises(ValueError, match="log_freq 0 must be at least 1"):
        ProgBarLogger(0)
    with pytest.warns(UserWarning, match="mode must be 'auto', 'min' or 'max'"):
        EarlyStopping(mode="up")
    with pytest.warns(UserWarning, match="the evaluation has no 'f1'"):
        fitted([1], EarlyStopping("f1"))
    with pytest.raises(ValueError, match="input_size is not known"):
        model.summary()
    with pytest.raises(
        NotImplementedError, match="paddle.callbacks.VisualDL belongs to"
    ):
        _ = paddle.callbacks.VisualDL
    paddle.enable_static()
    try:
        with pytest.raises(RuntimeError, match="call paddle.disable_static"):
            paddle.Model(model.network)
    finally:
        paddle.disable_static()


def test_a_model_prints_its_layers(capsys):
    model = prepared()
    model.evaluate(Points(4), batch_size=4, verbose=0)
    assert model.summary()["total_params"] == 4 * 8 + 8 + 8 * 2 + 2
    assert "Linear-2" in capsys.readouterr().out
