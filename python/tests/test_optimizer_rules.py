# SPDX-License-Identifier: Apache-2.0
"""The rules of optimizers against numpy: from the first step on, with every kind of decay,
and with sparse gradients."""

import numpy as np
import paddle
import pytest
from optimizer_check import RATE, RULES, follow, numbers, parameter
from paddle import nn, optimizer
from paddle.regularizer import L1Decay, L2Decay

DECAYS = {
    "plain": (None, lambda p: 0.0),
    "number": (0.1, lambda p: 0.1 * p),
    "l1": (L1Decay(0.1), lambda p: 0.1 * np.sign(p)),
    "l2": (L2Decay(0.1), lambda p: 0.1 * p),
}


@pytest.mark.parametrize("foreach", [False, True], ids=["memory", "foreach"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_follows_its_formula(rule, decay, dtype, foreach):
    make, arguments, reference, reference_arguments = RULES[rule]
    weight_decay, extra = DECAYS[decay]
    arguments = dict(arguments)
    starts = [numbers(s, i, dtype) for i, s in enumerate([(5, 3), (7,), (2, 3, 4)])]
    parameters = [parameter(s, f"p{i}") for i, s in enumerate(starts)]
    if weight_decay is not None:
        if "weight_decay" in arguments or make is optimizer.Lamb:
            # Theirs is another decay; a regularizer reaches them by the parameter.
            for p in parameters:
                p.regularizer = (
                    L2Decay(weight_decay)
                    if isinstance(weight_decay, float)
                    else weight_decay
                )
        else:
            arguments["weight_decay"] = weight_decay
    opt = make(RATE, parameters=parameters, **arguments)
    opt._foreach = foreach
    references = [
        reference(s.astype("float64"), RATE, **reference_arguments) for s in starts
    ]
    follow(opt, parameters, references, extra)


# ---- sparse gradients

BATCHES = [[0, 2, 0], [1, 1, 2], [4, 4, 4], [3, 2, 1]]


def train_embedding(make, sparse, **arguments):
    table = nn.Embedding(6, 3, sparse=sparse)
    table.weight.set_value(numbers((6, 3), 1))
    opt = make(RATE, parameters=table.parameters(), **arguments)
    for t, ids in enumerate(BATCHES):
        out = table(paddle.to_tensor(np.array(ids, "int64")))
        loss = (out * paddle.to_tensor(numbers((3, 3), t))).sum()
        loss.backward()
        assert table.weight.grad.is_sparse() == sparse
        opt.step()
        opt.clear_grad()
    return table.weight.numpy()


@pytest.mark.parametrize(
    "make, arguments",
    [
        (optimizer.SGD, {}),
        (optimizer.Momentum, {}),
        (optimizer.Adam, {}),
        (optimizer.Adagrad, {}),
        (optimizer.RMSProp, {}),
        (optimizer.SGD, dict(weight_decay=0.1)),
        (optimizer.Adam, dict(grad_clip=nn.ClipGradByGlobalNorm(0.5))),
        (optimizer.SGD, dict(grad_clip=nn.ClipGradByNorm(0.5))),
        (optimizer.Adagrad, dict(grad_clip=nn.ClipGradByValue(0.5))),
    ],
)
def test_sparse_gradients_train_as_dense_ones_do(make, arguments):
    sparse = train_embedding(make, True, **arguments)
    dense = train_embedding(make, False, **arguments)
    np.testing.assert_allclose(sparse, dense, rtol=1e-5, atol=1e-6)


def test_lazy_adam_moves_only_the_rows_it_is_given():
    lazy = train_embedding(optimizer.Adam, True, lazy_mode=True)
    start = numbers((6, 3), 1)
    # By hand, row by row: moments stand still when a row is absent, powers do not.
    expected = start.astype("float64")
    m, v = np.zeros((6, 3)), np.zeros((6, 3))
    for t, ids in enumerate(BATCHES, start=1):
        g = np.zeros((6, 3))
        np.add.at(g, ids, numbers((3, 3), t - 1))
        for row in set(ids):
            m[row] = 0.9 * m[row] + 0.1 * g[row]
            v[row] = 0.999 * v[row] + 0.001 * g[row] ** 2
            m_hat, v_hat = m[row] / (1 - 0.9**t), v[row] / (1 - 0.999**t)
            expected[row] -= RATE * m_hat / (np.sqrt(v_hat) + 1e-8)
    np.testing.assert_allclose(lazy, expected, rtol=1e-5, atol=5e-6)
    np.testing.assert_array_equal(lazy[5], start[5])
