# SPDX-License-Identifier: Apache-2.0
"""paddle.fluid in static mode: learning rates, optimizers and gradients."""

import math

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
import torch
from paddle import static
from paddle.fluid import layers
from static_check import drawn, fresh_programs, peers, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")


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
