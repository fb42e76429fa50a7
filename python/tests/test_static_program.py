# SPDX-License-Identifier: Apache-2.0
"""Programs: built by functions, differentiated, run."""

import numpy as np
import paddle
import pytest
import torch
from paddle import static


@pytest.fixture(autouse=True)
def fresh_programs():
    """Static mode, programs and values of its own for each test."""
    paddle.enable_static()
    with (
        paddle.utils.unique_name.guard(),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        yield
    paddle.disable_static()


def run(fetch, feed=None):
    return static.Executor(paddle.CPUPlace()).run(feed=feed, fetch_list=fetch)


def start():
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())


def value_of(name):
    return np.array(static.global_scope().find_var(name).get_tensor())


def mlp(x, y):
    hidden = static.nn.fc(input=x, size=8, act="tanh")
    prediction = static.nn.fc(input=[hidden], size=2, act="softmax")
    cost = static.nn.cross_entropy(input=prediction, label=y)
    return static.nn.mean(x=cost)


def batch(rng):
    return {
        "x": rng.standard_normal((6, 4)).astype("float32"),
        "y": rng.integers(2, size=(6, 1)),
    }


def test_names_and_shapes_are_paddles():
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 3, activation="relu")
    assert (y.name, y.shape, y.dtype) == ("fc_0.tmp_2", [-1, 3], paddle.float32)
    program = static.default_main_program()
    assert [p.name for p in program.all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]
    assert [op.type for op in program.global_block().ops][-2:] == [
        "elementwise_add",
        "relu",
    ]
    assert program.global_block().var("fc_0.w_0") is program.all_parameters()[0]


def test_an_mlp_trains_as_in_torch():
    x, y = static.data("x", [None, 4]), static.data("y", [None, 1], "int64")
    loss = mlp(x, y)
    paddle.optimizer.SGD(0.5).minimize(loss)
    start()
    names = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    peer = [torch.tensor(value_of(name), requires_grad=True) for name in names]
    optimizer = torch.optim.SGD(peer, 0.5)
    rng = np.random.default_rng(1)
    for _ in range(4):
        feed = batch(rng)
        (got,) = run([loss.name], feed)
        w0, b0, w1, b1 = peer
        hidden = torch.tanh(torch.tensor(feed["x"]) @ w0 + b0)
        wanted = torch.nn.functional.cross_entropy(
            hidden @ w1 + b1, torch.tensor(feed["y"][:, 0])
        )
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        assert got.shape == (1,)
        np.testing.assert_allclose(got[0], wanted.item(), rtol=1e-5)
    for name, parameter in zip(names, peer):
        np.testing.assert_allclose(
            value_of(name), parameter.detach().numpy(), rtol=1e-4, atol=1e-6
        )


def test_the_line_of_an_error_is_the_users():
    x = static.data("x", [None, 4])
    w = static.data("w", [3, 2])
    with pytest.raises(ValueError, match=r"test_static_program.py:\d+: matmul_v2"):
        paddle.matmul(x, w)
    assert static.default_main_program().global_block().ops == []


def test_feeds_are_checked():
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 2)
    with pytest.raises(RuntimeError, match="run the startup program first"):
        run([y], {"x": np.ones((2, 4), "float32")})
    start()
    with pytest.raises(ValueError, match="feed x"):
        run([y], {"x": np.ones((2, 5), "float32")})
    with pytest.raises(ValueError, match="feed x"):
        run([y], {"x": np.ones((2, 4), "float64")})
    with pytest.raises(ValueError, match="no variable z"):
        run([y], {"z": np.ones((2, 4), "float32")})
    with pytest.raises(RuntimeError, match="x has no value"):
        run([y])


def test_a_script_without_enable_static_gets_it():
    paddle.disable_static()
    paddle.framework.mode._chosen = False
    with pytest.warns(UserWarning, match="going on in static mode"):
        x = static.data("x", [None, 4])
    assert not paddle.in_dynamic_mode()
    assert isinstance(x, static.Variable)
    paddle.disable_static()
    with pytest.raises(RuntimeError, match="enable_static"):
        static.data("x", [None, 4])


def test_a_variable_has_no_value():
    x = static.data("x", [None, 4])
    for use in (lambda: x.numpy(), lambda: float(x), lambda: bool(x), lambda: len(x)):
        with pytest.raises(TypeError, match="x"):
            use()


# ---- variables are no Tensors


def test_a_variable_is_no_tensor():
    x = static.data("x", [None, 2])
    weight = paddle.nn.Linear(2, 2).weight
    made = paddle.full([2], 1.0), paddle.to_tensor([1.0, 2.0])
    for variable in (x, weight, x + 1, *made):
        assert isinstance(variable, static.Variable)
        assert not isinstance(variable, paddle.Tensor)
        assert paddle.is_tensor(variable)
    paddle.disable_static()
    value = paddle.to_tensor([1.0, 2.0])
    assert isinstance(value, paddle.Tensor) and type(value).__name__ == "Tensor"
    assert not isinstance(value, static.Variable)


def test_to_tensor_gives_a_variable_with_this_value_in_every_run():
    x = static.data("x", [1])
    numbers = paddle.to_tensor([[1, 2], [3, 4]])
    parts = {
        "whole": (numbers, [[1, 2], [3, 4]], paddle.int64),
        "cast": (
            paddle.to_tensor(numbers, "float64"),
            [[1, 2], [3, 4]],
            paddle.float64,
        ),
        "number": (paddle.to_tensor(1.5), [1.5], paddle.float32),
        "truth": (paddle.to_tensor([True, False]), [True, False], paddle.bool),
        "none": (
            paddle.to_tensor(np.zeros((0, 2), "f4")),
            np.zeros((0, 2)),
            paddle.float32,
        ),
        "stacked": (paddle.to_tensor([x, [5.0]]), [[7], [5]], paddle.float32),
    }
    assert paddle.to_tensor(numbers) is numbers
    assert numbers.stop_gradient
    assert not paddle.to_tensor([2.0], stop_gradient=False).stop_gradient
    executor = static.Executor(paddle.CPUPlace())
    fetched = [variable for variable, _, _ in parts.values()]
    for _ in range(2):
        got = executor.run(feed={"x": np.float32([7])}, fetch_list=fetched)
        for value, (variable, wanted, dtype) in zip(got, parts.values()):
            np.testing.assert_array_equal(value, wanted)
            assert variable.dtype is dtype


def test_what_is_drawn_by_constants_is_drawn_in_every_run():
    share = paddle.to_tensor([[0.5] * 64])
    drawn = [paddle.bernoulli(share), paddle.nn.functional.dropout(share, 0.5)]
    executor = static.Executor(paddle.CPUPlace())
    first, second = executor.run(fetch_list=drawn), executor.run(fetch_list=drawn)
    assert all((a != b).any() for a, b in zip(first, second))


def test_a_constant_is_a_value_to_set_unless_something_writes_to_it():
    weight = paddle.nn.Linear(2, 1).weight
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())
    constant = paddle.to_tensor([[1.0], [2.0]])
    weight.set_value(constant)
    np.testing.assert_array_equal(np.array(weight.get_value()), [[1], [2]])
    paddle.assign(constant * 2, output=constant)
    with pytest.raises(TypeError, match="set_value"):
        weight.set_value(constant)


def test_values_that_a_program_computes_are_no_values_to_set():
    weight = paddle.nn.Linear(2, 2).weight
    drawn = paddle.normal(0.0, 0.02, [2, 2])
    before = [op.type for op in static.default_main_program().global_block().ops]
    with pytest.raises(TypeError, match="initializer.*program_guard.*startup program"):
        weight.set_value(drawn)
    after = [op.type for op in static.default_main_program().global_block().ops]
    assert after == before

    # What the message names begins training with such values, once.
    startup = static.default_startup_program()
    with static.program_guard(startup):
        drawn = paddle.normal(5.0, 0.02, [2, 2])
        paddle.assign(drawn, startup.global_block().var(weight.name))
    start()
    first = value_of(weight.name)
    assert (np.abs(first - 5) < 1).all()
    run([weight])
    np.testing.assert_array_equal(value_of(weight.name), first)


@pytest.mark.parametrize(
    "function", ["fill_", "zero_", "uniform_", "normal_", "exponential_"]
)
def test_parameters_do_not_begin_anew_in_every_run(function):
    weight = paddle.nn.Linear(2, 2).weight
    args = [5.0] if function == "fill_" else []
    main, startup = static.default_main_program(), static.default_startup_program()
    with pytest.raises(TypeError, match=f"{function}.*every run.*initializer"):
        getattr(weight, function)(*args)
    assert main.global_block().ops == []

    # What the message names.
    with static.program_guard(startup):
        getattr(startup.global_block().var(weight.name), function)(*args)
    start()
    first = value_of(weight.name)
    run([weight])
    np.testing.assert_array_equal(value_of(weight.name), first)

    # Other variables may begin anew.
    state = static.create_global_var([2], 1.0, "float32", persistable=True)
    getattr(state, function)(*args)
    assert len(main.global_block().ops) > 0
