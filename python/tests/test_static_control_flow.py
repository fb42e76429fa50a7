# SPDX-License-Identifier: Apache-2.0
"""Branches and loops in programs and in eager mode, with their gradients."""

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import static
from paddle.fluid import layers
from static_check import drawn, feed_of, fresh_programs, op_types, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")

X = drawn(3, 4)


def positive_sum(x):
    return paddle.sum(x) > 0.0


def test_cond_computes_one_branch_only():
    x = feed_of("x", X)
    calls = []

    def noted(value):
        calls.append(value.numpy().copy())
        return value

    def true_fn():
        out = (
            static.default_main_program()
            .current_block()
            .create_var(name="noted", shape=x.shape, dtype="float32")
        )
        return static.py_func(noted, x, out) * 2.0

    out = static.nn.cond(positive_sum(x), true_fn, lambda: x - 1.0)
    assert out.shape == [-1, 4]
    for value in (np.abs(X), -np.abs(X)):
        (got,) = run([out], {"x": value})
        np.testing.assert_allclose(
            got, value * 2 if value.sum() > 0 else value - 1, 1e-6
        )
    assert len(calls) == 1
    assert op_types().count("conditional_block") == 2


def test_cond_is_differentiated():
    x = feed_of("x", X)
    hidden = static.nn.fc(x, 4, bias_attr=False)
    pred = paddle.sum(x) > 0.0
    out = static.nn.cond(
        pred, lambda: paddle.tanh(hidden), lambda: hidden * hidden * 0.5
    )
    ((_, gradient),) = static.append_backward(paddle.sum(out))
    start()
    weight = value_of("fc_0.w_0")
    for value in (np.abs(X), -np.abs(X)):
        got, dw = run([out, gradient], {"x": value})
        product = value @ weight
        if value.sum() > 0:
            wanted, slope = np.tanh(product), 1 - np.tanh(product) ** 2
        else:
            wanted, slope = product**2 / 2, product
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)
        np.testing.assert_allclose(dw, value.T @ slope, 1e-4, 1e-5)


def test_cond_trains_the_parameters_of_the_branch_that_runs():
    x = feed_of("x", X)
    pred = paddle.sum(x) > 0.0
    out = static.nn.cond(
        pred,
        lambda: static.nn.fc(x, 2, name="yes", bias_attr=False),
        lambda: static.nn.fc(x, 2, name="no", bias_attr=False),
    )
    paddle.optimizer.SGD(0.1).minimize(paddle.mean(out))
    start()
    before = {n: value_of(n) for n in ("yes.w_0", "no.w_0")}
    run([out], {"x": np.abs(X)})
    assert (value_of("yes.w_0") != before["yes.w_0"]).any()
    np.testing.assert_array_equal(value_of("no.w_0"), before["no.w_0"])


def test_cond_returns_structures_or_nothing():
    x = feed_of("x", X)
    pred = positive_sum(x)
    out = static.nn.cond(
        pred,
        lambda: {"a": x + 1.0, "b": (x, 3)},
        lambda: {"a": x - 1.0, "b": (x * x, 4)},
    )
    assert isinstance(out["b"], tuple)
    got = run([out["a"], out["b"][0], out["b"][1]], {"x": -np.abs(X)})
    np.testing.assert_allclose(got[0], -np.abs(X) - 1, 1e-6)
    np.testing.assert_allclose(got[1], X * X, 1e-6)
    assert got[2].item() == 4
    seen = static.create_global_var([1], 0.0, "float32", name="seen")

    def count():
        paddle.assign(seen + 1.0, seen)

    assert static.nn.cond(pred, count) is None
    start()
    for value in (np.abs(X), -np.abs(X), np.abs(X)):
        run([], {"x": value})
    assert value_of("seen") == 2.0


def test_cond_says_what_is_wrong():
    x = feed_of("x", X)
    pred = positive_sum(x)
    with pytest.raises(TypeError, match="must be a Variable"):
        static.nn.cond(True, lambda: x, lambda: x)
    with pytest.raises(TypeError, match="of type bool"):
        static.nn.cond(paddle.sum(x), lambda: x, lambda: x)
    with pytest.raises(ValueError, match="one element"):
        static.nn.cond(static.data("p", [2, 3], "bool"), lambda: x, lambda: x)
    with pytest.raises(TypeError, match="must be a function"):
        static.nn.cond(pred, x, lambda: x)
    with pytest.raises(ValueError, match="same structure"):
        static.nn.cond(pred, lambda: x, lambda: [x, x])
    with pytest.raises(ValueError, match="same structure"):
        static.nn.cond(pred, lambda: x, lambda: None)
    with pytest.raises(TypeError, match="same types"):
        static.nn.cond(pred, lambda: x, lambda: paddle.cast(x, "int64"))


def test_case_takes_the_first_that_holds():
    x = static.data("x", [1])
    pairs = [
        (x < 1.0, lambda: x * 10.0),
        (x < 2.0, lambda: x * 100.0),
        (x < 3.0, lambda: x * 1000.0),
    ]
    out = static.nn.case(pairs, default=lambda: x)
    last = static.nn.case(pairs)
    for value, wanted, without in (
        (0.5, 5, 5),
        (1.5, 150, 150),
        (2.5, 2500, 2500),
        (4.0, 4, 4000),
    ):
        got = run([out, last], {"x": np.array([value], "float32")})
        np.testing.assert_allclose([g.item() for g in got], [wanted, without])
    with pytest.raises(TypeError, match="not a pair"):
        static.nn.case([x])
    with pytest.raises(TypeError, match="default must be"):
        static.nn.case(pairs, default=x)


@pytest.mark.parametrize(
    "branches",
    [
        lambda f: [f(0), f(1), f(2)],
        lambda f: [(1, f(1)), (2, f(2)), (0, f(0))],
        lambda f: {0: f(0), 1: f(1), 2: f(2)},
    ],
)
def test_switch_case(branches):
    index = static.data("index", [1], "int32")

    def branch(n):
        return lambda: paddle.full([1], 10.0 + n, "float32")

    out = static.nn.switch_case(index, branches(branch), default=branch(9))
    last = static.nn.switch_case(index, branches(branch))
    for value in (0, 1, 2, 5):
        got = run([out, last], {"index": np.array([value], "int32")})
        assert got[0].item() == (10 + value if value < 3 else 19)
        assert got[1].item() == (10 + value if value < 3 else 12)
    with pytest.raises(ValueError, match="not unique"):
        static.nn.switch_case(index, [(1, branch(1)), (1, branch(2))])
    with pytest.raises(TypeError, match="must be an integer"):
        static.nn.switch_case(static.data("f", [1]), [branch(1)])


def test_while_loop_counts():
    limit = static.data("limit", [1], "int64")
    i = paddle.full([1], 0, "int64")
    total = paddle.full([1], 1.0, "float32")
    out = static.nn.while_loop(
        lambda i, total: i < limit, lambda i, total: [i + 1, total * 2.0], [i, total]
    )
    for n in (0, 1, 5):
        got = run([*out, i], {"limit": np.array([n])})
        assert [g.item() for g in got] == [n, 2.0**n, 0]


def test_while_loop_swaps_what_it_carries():
    a, b = paddle.full([1], 0.0), paddle.full([1], 1.0)
    i = paddle.full([1], 0, "int64")
    out = static.nn.while_loop(
        lambda i, a, b: i < 10, lambda i, a, b: (i + 1, b, a + b), [i, a, b]
    )
    assert run([out[1]])[0].item() == 55  # Fibonacci


def test_while_loop_fills_an_array():
    x = static.data("x", [2])
    i = paddle.full([1], 0, "int64")
    array = layers.create_array("float32")
    out = static.nn.while_loop(
        lambda i, a: i < 3,
        lambda i, a: [i + 1, layers.array_write(x + paddle.cast(i, "float32"), i, a)],
        [i, array],
    )
    assert out[1] is array
    last = layers.array_read(array, paddle.full([1], 2, "int64"))
    got = run([layers.array_length(array), last], {"x": np.array([1, 5], "float32")})
    assert got[0].item() == 3
    np.testing.assert_array_equal(got[1], [3, 7])
    with pytest.raises(ValueError, match="itself"):
        static.nn.while_loop(
            lambda i, a: i < 3,
            lambda i, a: [i + 1, layers.create_array("float32")],
            [i, array],
        )


def test_branches_in_loops_and_loops_in_branches_are_differentiated():
    import torch

    x = feed_of("x", X)
    weight = static.create_parameter([4, 4], "float32", name="w")

    def grow(h):
        return paddle.tanh(paddle.matmul(h, weight))

    def body(i, h):
        is_first = paddle.equal(i, paddle.full([1], 0, "int64"))
        return [i + 1, static.nn.cond(is_first, lambda: grow(h), lambda: h * 0.5)]

    def loop(body, count, h):
        start = paddle.full([1], 0, "int64")
        return static.nn.while_loop(lambda i, h: i < count, body, [start, h])[1]

    mixed = loop(body, 3, x)
    out = static.nn.cond(
        paddle.sum(x) > 0.0,
        lambda: loop(lambda i, h: [i + 1, grow(h)], 2, mixed),
        lambda: mixed,
    )
    ((_, gradient),) = static.append_backward(paddle.mean(out))
    start()
    for value in (np.abs(X), -np.abs(X)):
        got, dw = run([out, gradient], {"x": value})
        peer = torch.tensor(value_of("w"), requires_grad=True)
        h = torch.tanh(torch.tensor(value) @ peer) * 0.25
        for _ in range(2 if value.sum() > 0 else 0):
            h = torch.tanh(h @ peer)
        h.mean().backward()
        np.testing.assert_allclose(got, h.detach().numpy(), 1e-5, 1e-6)
        np.testing.assert_allclose(dw, peer.grad.numpy(), 1e-4, 1e-6)


def test_loops_in_loops_are_differentiated():
    import torch

    x = feed_of("x", X)
    weight = static.create_parameter([4, 4], "float32", name="w")

    def twice(body, h):
        begin = paddle.full([1], 0, "int64")
        return static.nn.while_loop(
            lambda i, h: i < 2, lambda i, h: [i + 1, body(h)], [begin, h]
        )[1]

    out = twice(lambda h: twice(lambda h: paddle.tanh(paddle.matmul(h, weight)), h), x)
    ((_, gradient),) = static.append_backward(paddle.mean(out))
    start()
    got, dw = run([out, gradient], {"x": X})
    peer = torch.tensor(value_of("w"), requires_grad=True)
    h = torch.tensor(X)
    for _ in range(4):
        h = torch.tanh(h @ peer)
    h.mean().backward()
    np.testing.assert_allclose(got, h.detach().numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(dw, peer.grad.numpy(), 1e-4, 1e-6)


def test_while_loop_is_differentiated():
    x = feed_of("x", X)
    weight = static.create_parameter([4, 4], "float32", name="w")
    limit = static.data("limit", [1], "int64")
    i = paddle.full([1], 0, "int64")
    _, out = static.nn.while_loop(
        lambda i, h: i < limit,
        lambda i, h: [i + 1, paddle.tanh(paddle.matmul(h, weight))],
        [i, x],
    )
    ((_, gradient),) = static.append_backward(paddle.sum(out))
    start()
    import torch

    for n in (1, 3):
        got, dw = run([out, gradient], {"x": X, "limit": np.array([n])})
        peer = torch.tensor(value_of("w"), requires_grad=True)
        h = torch.tensor(X)
        for _ in range(n):
            h = torch.tanh(h @ peer)
        h.sum().backward()
        np.testing.assert_allclose(got, h.detach().numpy(), 1e-5, 1e-6)
        np.testing.assert_allclose(dw, peer.grad.numpy(), 1e-4, 1e-5)


def test_while_loop_says_what_is_wrong():
    i = paddle.full([1], 0, "int64")
    with pytest.raises(TypeError, match="functions"):
        static.nn.while_loop(i, lambda i: i, [i])
    with pytest.raises(TypeError, match="must be a list"):
        static.nn.while_loop(lambda i: i < 3, lambda i: i, i)
    with pytest.raises(ValueError, match="empty"):
        static.nn.while_loop(lambda: True, lambda: None, [])
    with pytest.raises(ValueError, match="must return 1 values"):
        static.nn.while_loop(lambda i: i < 3, lambda i: [i, i], [i])
    with pytest.raises(TypeError, match="of type bool"):
        static.nn.while_loop(lambda i: i, lambda i: i, [i])
    with pytest.raises(TypeError, match="changes .* from int64 to float32"):
        static.nn.while_loop(lambda i: i < 3, lambda i: paddle.cast(i, "float32"), [i])


def test_in_eager_mode_they_are_pythons():
    paddle.disable_static()
    x = paddle.to_tensor([2.0], stop_gradient=False)
    out = static.nn.cond(x > 1.0, lambda: x * x, lambda: x)
    out.backward()
    assert out.item() == 4.0 and x.grad.item() == 4.0
    i, total = static.nn.while_loop(
        lambda i, t: i < 4, lambda i, t: [i + 1, t + i], [paddle.to_tensor(0), x]
    )
    assert (i.item(), total.item()) == (4, 8.0)
    index = paddle.to_tensor([1])
    assert static.nn.switch_case(index, [lambda: 5, lambda: 6]) == 6
    assert static.nn.case([(x > 3.0, lambda: 1), (x > 1.0, lambda: 2)], lambda: 3) == 2


# ---- the names of fluid


def test_while_of_fluid_with_arrays():
    i = layers.fill_constant([1], "int64", 0)
    limit = layers.fill_constant([1], "int64", 4)
    value = layers.fill_constant([1], "float32", 1.0)
    array = layers.create_array("float32")
    condition = layers.less_than(i, limit)
    loop = layers.While(cond=condition)
    with loop.block():
        layers.assign(layers.elementwise_mul(value, value) + 1.0, value)
        layers.array_write(value, i, array)
        layers.increment(i, value=1, in_place=True)
        layers.less_than(i, limit, cond=condition)
    length = layers.array_length(array)
    second = layers.array_read(array, layers.fill_constant([1], "int64", 1))
    got = run([value, i, length, second])
    assert [g.item() for g in got] == [677.0, 4, 4, 5.0]
    with pytest.raises(TypeError, match="int64 Variable"):
        layers.array_read(array, 1)
    with pytest.raises(TypeError, match="bool"):
        fluid.layers.While(i)


def test_gradients_flow_through_arrays():
    """A recurrent network as fluid's scripts write it: the states are in an array, and the
    loop counts its places in place."""
    import torch

    x = feed_of("x", X)
    weight = static.create_parameter([4, 4], "float32", name="w")
    i = layers.fill_constant([1], "int64", 0)
    limit = layers.fill_constant([1], "int64", 3)
    states = layers.array_write(x, i)
    condition = layers.less_than(i, limit)
    loop = layers.While(cond=condition)
    with loop.block():
        last = layers.array_read(states, i)
        state = paddle.tanh(paddle.matmul(last, weight))
        layers.increment(i, value=1, in_place=True)
        layers.array_write(state, i, states)
        layers.less_than(i, limit, cond=condition)
    second = layers.array_read(states, layers.fill_constant([1], "int64", 2))
    out = layers.array_read(states, i) * second
    ((_, gradient),) = static.append_backward(paddle.mean(out))
    start()
    for _ in range(2):
        got, dw = run([out, gradient], {"x": X})
        peer = torch.tensor(value_of("w"), requires_grad=True)
        h = [torch.tensor(X)]
        for _ in range(3):
            h.append(torch.tanh(h[-1] @ peer))
        expected = h[3] * h[2]
        expected.mean().backward()
        np.testing.assert_allclose(got, expected.detach().numpy(), 1e-5, 1e-6)
        np.testing.assert_allclose(dw, peer.grad.numpy(), 1e-4, 1e-6)


def test_switch_of_fluid():
    step = static.data("step", [1])
    rate = layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")

    def at(n):
        return layers.fill_constant([1], "float32", n)

    with layers.control_flow.Switch() as switch:
        with switch.case(layers.less_than(step, at(10.0))):
            layers.tensor.assign(at(0.1), rate)
        with switch.case(layers.less_than(step, at(20.0))):
            layers.tensor.assign(at(0.01), rate)
        with switch.default():
            layers.tensor.assign(at(0.001), rate)
    start()
    for value, wanted in ((3, 0.1), (10, 0.01), (19, 0.01), (30, 0.001)):
        (got,) = run([rate], {"step": np.array([value], "float32")})
        np.testing.assert_allclose(got, [wanted], 1e-6)
    with pytest.raises(ValueError, match="inside"):
        layers.Switch().case(step < 1.0)
    with pytest.raises(ValueError, match="needs a case"):
        layers.Switch().default()


def test_comparisons_and_increment_of_fluid_write_what_they_are_given():
    x = static.data("x", [1])
    flag = layers.create_tensor("bool")
    layers.assign(layers.fill_constant([1], "bool", True), flag)
    assert (
        layers.greater_than(x, layers.fill_constant([1], "float32", 2.0), cond=flag)
        is flag
    )
    more = layers.increment(x, 3.0, in_place=False)
    empty = layers.is_empty(x)
    got = run([flag, more, x, empty], {"x": np.array([1.0], "float32")})
    assert [g.item() for g in got] == [False, 4.0, 1.0, False]


def test_tensors_are_constants_of_loops_and_branches():
    x = feed_of("x", X)
    two = paddle.to_tensor([[2.0, 2.0, 2.0, 2.0]])
    _, out = static.nn.while_loop(
        lambda i, v: i < 3,
        lambda i, v: [i + 1, v * 2.0 + x],
        [paddle.zeros([1], "int64"), two],
    )
    chosen = static.nn.cond(positive_sum(x), lambda: two, lambda: x[:1])
    for value in (np.abs(X[:1]), -np.abs(X[:1])):
        got = run([out, chosen], {"x": value})
        np.testing.assert_allclose(got[0], 16 + 7 * value, 1e-6)
        np.testing.assert_array_equal(got[1], value if value.sum() < 0 else [[2.0] * 4])
