# SPDX-License-Identifier: Apache-2.0
"""Optimizers in programs: the same steps as eagerly, where numpy has checked them."""

import numpy as np
import paddle
import pytest
from paddle import nn, optimizer, static
from paddle.regularizer import L1Decay, L2Decay

STEPS = 4


@pytest.fixture(autouse=True)
def fresh_programs():
    """Programs, names and values of its own for each test."""
    with (
        paddle.utils.unique_name.guard(),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        yield
    paddle.disable_static()


def batches():
    rng = np.random.default_rng(3)
    return [rng.standard_normal((5, 4)).astype("float32") for _ in range(STEPS)]


WEIGHT = np.random.default_rng(1).standard_normal((4, 3)).astype("float32")
BIAS = np.random.default_rng(2).standard_normal(3).astype("float32")


class Net(nn.Layer):
    def __init__(self, weight=None, bias=None):
        super().__init__()
        assign = nn.initializer.Assign
        weight = {"initializer": assign(WEIGHT), **(weight or {})}
        bias = {"initializer": assign(BIAS), **(bias or {})}
        self.linear = nn.Linear(
            4, 3, paddle.ParamAttr(**weight), paddle.ParamAttr(**bias)
        )

    def forward(self, x):
        return paddle.mean(paddle.square(paddle.tanh(self.linear(x))))


def train_eagerly(make, weight=None, bias=None):
    net = Net(weight, bias)
    rule = make(net.parameters())
    for x in batches():
        net(paddle.to_tensor(x)).backward()
        rule.step()
        rule.clear_grad()
        if isinstance(rule._learning_rate, optimizer.lr.LRScheduler):
            rule._learning_rate.step()
    return [p.numpy() for p in net.parameters()]


def train_program(make, weight=None, bias=None, planning=True):
    paddle.enable_static()
    x = static.data("x", [None, 4])
    net = Net(weight, bias)
    loss = net(x)
    rule = make(net.parameters())
    rule.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe._engine = paddle._core.Executor("cpu", planning)
    exe.run(static.default_startup_program())
    for array in batches():
        exe.run(feed={"x": array}, fetch_list=[loss])
        if isinstance(rule._learning_rate, optimizer.lr.LRScheduler):
            rule._learning_rate.step()
    scope = static.global_scope()
    return [np.array(scope.find_var(p.name).get_tensor()) for p in net.parameters()]


def compare(make, weight=None, bias=None):
    wanted = train_eagerly(make, weight, bias)
    got = train_program(make, weight, bias)
    for g, w in zip(got, wanted):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    assert not np.allclose(got[0], WEIGHT)


RULES = {
    "SGD": {},
    "Momentum": {"momentum": 0.8},
    "Adam": {},
    "AdamW": {"weight_decay": 0.1},
    "Adagrad": {"initial_accumulator_value": 0.1},
    "Adamax": {},
    "RMSProp": {"momentum": 0.5},
    "Adadelta": {},
    "Lamb": {},
    "Lars": {},
    "Ftrl": {"l1": 0.01},
}


def rule_of(name):
    return getattr(optimizer, name, None) or getattr(optimizer.rules, name)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule(name):
    kind = rule_of(name)
    compare(lambda ps: kind(learning_rate=0.1, parameters=ps, **RULES[name]))


@pytest.mark.parametrize("name", sorted(RULES))
def test_without_a_plan_every_rule_steps_to_the_same_bits(name):
    kind = rule_of(name)

    def make(parameters):
        return kind(learning_rate=0.1, parameters=parameters, **RULES[name])

    paddle.set_device("cpu")  # where the program runs
    wanted = train_eagerly(make)
    for g, w in zip(train_program(make, planning=False), wanted):
        np.testing.assert_array_equal(g, w)


def test_nesterov_and_centered():
    compare(
        lambda ps: optimizer.Momentum(0.1, 0.9, ps, use_nesterov=True, rescale_grad=0.5)
    )
    paddle.disable_static()
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        compare(lambda ps: optimizer.RMSProp(0.1, parameters=ps, centered=True))


@pytest.mark.parametrize("decay", [0.1, L2Decay(0.2), L1Decay(0.1)])
def test_weight_decay(decay):
    compare(lambda ps: optimizer.SGD(0.1, ps, weight_decay=decay))


@pytest.mark.parametrize(
    "clip",
    [
        nn.ClipGradByValue(0.02),
        nn.ClipGradByNorm(0.05),
        nn.ClipGradByGlobalNorm(0.05),
    ],
)
def test_clipping(clip):
    compare(lambda ps: optimizer.SGD(0.5, ps, weight_decay=0.1, grad_clip=clip))


def test_attributes_of_parameters():
    weight = {"learning_rate": 0.5, "regularizer": L2Decay(0.3)}
    bias = {"need_clip": False}
    compare(
        lambda ps: optimizer.Momentum(
            0.1, 0.9, ps, weight_decay=0.1, grad_clip=nn.ClipGradByGlobalNorm(0.1)
        ),
        weight,
        bias,
    )


def test_a_parameter_that_is_not_trained_stays():
    make = lambda ps: optimizer.Adam(0.1, parameters=ps)  # noqa: E731
    compare(make, None, {"trainable": False})
    scope = static.global_scope()
    np.testing.assert_array_equal(
        np.array(scope.find_var("linear_1.b_0").get_tensor()), BIAS
    )


def test_schedulers_set_the_rate():
    compare(
        lambda ps: optimizer.SGD(
            optimizer.lr.StepDecay(0.5, step_size=2, gamma=0.1), ps
        )
    )


def test_groups_of_parameters():
    compare(
        lambda ps: optimizer.Adam(
            0.1,
            parameters=[
                {"params": [ps[0]], "learning_rate": 0.1},
                {"params": [ps[1]], "weight_decay": 0.5, "beta1": 0.5},
            ],
        )
    )


def test_set_lr():
    paddle.enable_static()
    x = static.data("x", [None, 4])
    loss = Net()(x)
    rule = optimizer.SGD(0.5)
    rule.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    rule.set_lr(0.0)
    exe.run(feed={"x": batches()[0]}, fetch_list=[loss])
    scope = static.global_scope()
    np.testing.assert_array_equal(
        np.array(scope.find_var("linear_0.w_0").get_tensor()), WEIGHT
    )
    assert np.array(scope.find_var("learning_rate_0").get_tensor()) == [0.0]


def test_names_of_states_are_paddles():
    paddle.enable_static()
    loss = Net()(static.data("x", [None, 4]))
    ops, pairs = optimizer.Adam(0.1).minimize(loss)
    assert [op.type for op in ops] == ["adam", "adam"]
    assert [(p.name, g.name) for p, g in pairs] == [
        ("linear_0.w_0", "linear_0.w_0@GRAD"),
        ("linear_0.b_0", "linear_0.b_0@GRAD"),
    ]
    names = {v.name for v in static.default_main_program().list_vars() if v.persistable}
    assert names >= {
        "linear_0.w_0_moment1_0",
        "linear_0.w_0_moment2_0",
        "linear_0.w_0_beta1_pow_acc_0",
        "linear_0.b_0_beta2_pow_acc_0",
        "learning_rate_0",
    }


def test_no_grad_set_and_parameter_list():
    paddle.enable_static()
    loss = Net()(static.data("x", [None, 4]))
    rule = optimizer.SGD(0.1)
    _, pairs = rule.minimize(loss, no_grad_set={"linear_0.b_0"})
    assert [p.name for p, _ in pairs] == ["linear_0.w_0"]
    with static.program_guard(static.Program(), static.Program()):
        loss = Net()(static.data("x", [None, 4]))
        _, pairs = rule.minimize(loss, parameters=["linear_1.b_0"])
        assert [p.name for p, _ in pairs] == ["linear_1.b_0"]


def test_two_losses_in_one_program():
    paddle.enable_static()
    x = static.data("x", [None, 4])
    first, second = Net(), Net()
    a, b = first(x), second(x)
    optimizer.SGD(0.1).minimize(a)
    _, pairs = optimizer.SGD(0.2).minimize(b, parameters=second.parameters())
    assert [p.name for p, _ in pairs] == [p.name for p in second.parameters()]
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    exe.run(feed={"x": batches()[0]}, fetch_list=[a, b])


def test_the_loss_must_be_one_number():
    paddle.enable_static()
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 2)
    with pytest.raises(ValueError, match="must have one element"):
        optimizer.SGD(0.1).minimize(y)


def test_state_can_be_taken_over():
    paddle.enable_static()
    x = static.data("x", [None, 4])
    net = Net()
    loss = net(x)
    rule = optimizer.Momentum(0.1, 0.9, net.parameters())
    rule.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    exe.run(feed={"x": batches()[0]}, fetch_list=[loss])
    state = {k: v.numpy() for k, v in rule.state_dict().items()}
    assert sorted(state) == ["linear_0.b_0_velocity_0", "linear_0.w_0_velocity_0"]
    assert state["linear_0.w_0_velocity_0"].any()
    exe.run(static.default_startup_program())
    assert not rule.state_dict()["linear_0.w_0_velocity_0"].numpy().any()
    rule.set_state_dict(state)
    for name, value in rule.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name])


def test_an_eager_step_on_a_program_is_refused():
    paddle.enable_static()
    net = Net()
    rule = optimizer.SGD(0.1, net.parameters())
    rule.clear_grad()
    with pytest.raises(RuntimeError, match="belong to a program"):
        rule.step()


@pytest.mark.parametrize(
    "clip",
    [
        None,
        nn.ClipGradByValue(0.001),
        nn.ClipGradByNorm(0.01),
        nn.ClipGradByGlobalNorm(0.01),
    ],
)
@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "Adagrad"])
def test_gradients_that_hold_rows(name, clip):
    """The same weights as with gradients that hold the whole table."""
    paddle.enable_static()
    weights = []
    for sparse in (False, True):
        with (
            static.program_guard(static.Program(), static.Program()),
            static.scope_guard(static.Scope()),
            paddle.utils.unique_name.guard(),
        ):
            ids = static.data("ids", [None, 2], "int64")
            table = np.random.default_rng(0).standard_normal((10, 3)).astype("float32")
            attr = paddle.ParamAttr(initializer=nn.initializer.Assign(table))
            rows = nn.Embedding(10, 3, sparse=sparse, weight_attr=attr)(ids)
            loss = paddle.mean(paddle.square(rows))
            kind = getattr(optimizer, name)
            kind(learning_rate=0.1, grad_clip=clip).minimize(loss)
            exe = static.Executor(paddle.CPUPlace())
            exe.run(static.default_startup_program())
            for _ in range(4):
                exe.run(feed={"ids": np.array([[1, 2], [2, 3]])}, fetch_list=[loss])
            found = static.global_scope().find_var("embedding_0.w_0")
            weights.append(np.array(found.get_tensor()))
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5, atol=1e-6)
