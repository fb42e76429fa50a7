# SPDX-License-Identifier: Apache-2.0
"""Gradients of whole programs against torch: loops and branches in each other, and a
second loss behind the update that a first one made."""

import numpy as np
import paddle
import pytest
import torch
from paddle import static

W = np.random.default_rng(0).normal(size=(3, 3)).astype("float32") * 0.5
X = np.random.default_rng(1).normal(size=(2, 3)).astype("float32")


@pytest.fixture(autouse=True)
def program():
    paddle.enable_static()
    scope = static.Scope()
    try:
        with static.program_guard(static.Program(), static.Program()):
            with static.scope_guard(scope):
                yield static.default_main_program()
    finally:
        paddle.disable_static()


def _number(value):
    return paddle.full([1], value, "int64")


def _ours(x, w, outer, inner):
    def turn(i, s):
        def step(j, u):
            return j + 1, paddle.tanh(paddle.matmul(u, w))

        u = static.nn.while_loop(lambda j, u: j < inner, step, [_number(0), s])[1]
        u = static.nn.cond(paddle.sum(u) > 0, lambda: u * 2.0, lambda: u * u + 0.3)
        return i + 1, u

    return static.nn.while_loop(lambda i, s: i < outer, turn, [_number(0), x])[1]


def _theirs(x, w, outer, inner):
    for _ in range(outer):
        for _ in range(inner):
            x = torch.tanh(x @ w)
        x = x * 2 if x.sum() > 0 else x * x + 0.3
    return x


def test_loops_and_branches_in_each_other(program):
    x, w = static.data("x", [-1, 3]), static.data("w", [3, 3])
    outer, inner = (
        static.data("outer", [1], "int64"),
        static.data("inner", [1], "int64"),
    )
    x.stop_gradient = w.stop_gradient = False
    out = _ours(x, w, outer, inner)
    loss = paddle.mean(out * out)
    gradients = static.gradients(loss, [x, w])
    evaluation = program.clone(for_test=True)
    executor = static.Executor()
    for turns in [(3, 2), (1, 0), (2, 3), (0, 1), (3, 2)]:
        feed = {
            "x": X,
            "w": W,
            "outer": np.array([turns[0]]),
            "inner": np.array([turns[1]]),
        }
        got = executor.run(program, feed, [loss, *gradients])
        tx, tw = (torch.tensor(a, requires_grad=True) for a in (X, W))
        result = _theirs(tx, tw, *turns)
        want = (result * result).mean()
        want.backward()
        np.testing.assert_allclose(got[0], [want.item()], 1e-5)
        np.testing.assert_allclose(got[1], tx.grad.numpy(), 1e-4, 1e-5)
        dw = np.zeros_like(W) if tw.grad is None else tw.grad.numpy()
        np.testing.assert_allclose(got[2], dw, 1e-4, 1e-5)
        again = executor.run(evaluation, feed, [loss])
        np.testing.assert_array_equal(again[0], got[0])


def test_a_second_loss_behind_an_update(program):
    x = static.data("x", [-1, 3])
    linear = paddle.nn.Linear(3, 1, bias_attr=False)
    first = paddle.mean(paddle.square(linear(x)))
    paddle.optimizer.SGD(0.1).minimize(first)
    second = paddle.mean(paddle.tanh(linear(x)))
    paddle.optimizer.SGD(0.5).minimize(second)
    executor = static.Executor()
    executor.run(static.default_startup_program())
    name = linear.weight.name
    w = torch.tensor(np.array(static.global_scope().find_var(name).get_tensor()))
    for _ in range(3):
        got = executor.run(program, {"x": X}, [first, second, name])
        tx = torch.from_numpy(X)
        w = w.detach().requires_grad_()
        one = (tx @ w).square().mean()
        one.backward()
        w = (w - 0.1 * w.grad).detach().requires_grad_()
        two = torch.tanh(tx @ w).mean()
        two.backward()
        w = (w - 0.5 * w.grad).detach()
        np.testing.assert_allclose(got[0], [one.item()], 1e-5)
        np.testing.assert_allclose(got[1], [two.item()], 1e-5)
        np.testing.assert_allclose(got[2], w.numpy(), 1e-5, 1e-6)
