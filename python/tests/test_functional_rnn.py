# SPDX-License-Identifier: Apache-2.0
"""The op that runs recurrent layers, against torch's layers."""

import numpy as np
import paddle
import pytest
import torch
from paddle import _ops
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

MODES = {
    "LSTM": lambda *a, **k: torch.nn.LSTM(*a, **k),
    "GRU": lambda *a, **k: torch.nn.GRU(*a, **k),
    "RNN_TANH": lambda *a, **k: torch.nn.RNN(*a, **k),
    "RNN_RELU": lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k),
}


def arrays(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def weight_list(layer):
    """torch's weights in the order of the op: weights of all cells, then biases."""
    named = dict(layer.named_parameters())
    weights = [p for n, p in named.items() if n.startswith("weight")]
    return weights + [p for n, p in named.items() if n.startswith("bias")]


def check(mode, layers, bidirectional, bias=True, lengths=None):
    steps, batch, size, hidden = 5, 3, 4, 6
    torch.manual_seed(0)
    layer = MODES[mode](
        size, hidden, layers, bias=bias, bidirectional=bidirectional
    ).double()
    cells = layers * (2 if bidirectional else 1)
    x = arrays(steps, batch, size)
    states = [
        arrays(cells, batch, hidden, seed=1 + i) for i in range(1 + (mode == "LSTM"))
    ]

    tx = torch.from_numpy(x).requires_grad_()
    tstates = [torch.from_numpy(s).requires_grad_() for s in states]
    start = tuple(tstates) if mode == "LSTM" else tstates[0]
    if lengths is None:
        want, last = layer(tx, start)
    else:
        packed = pack_padded_sequence(tx, torch.tensor(lengths), enforce_sorted=False)
        want, last = layer(packed, start)
        want, _ = pad_packed_sequence(want, total_length=steps)
    last = list(last) if mode == "LSTM" else [last]

    mine = [
        paddle.to_tensor(w.detach().numpy(), stop_gradient=False)
        for w in weight_list(layer)
    ]
    px = paddle.to_tensor(x, stop_gradient=False)
    pstates = [paddle.to_tensor(s, stop_gradient=False) for s in states]
    out, state, _ = _ops.rnn(
        px,
        pstates,
        mine,
        None if lengths is None else paddle.to_tensor(np.array(lengths)),
        mode=mode,
        hidden_size=hidden,
        num_layers=layers,
        is_bidirec=bidirectional,
    )
    np.testing.assert_allclose(
        out.numpy(), want.detach().numpy(), rtol=1e-7, atol=1e-10
    )
    for own, other in zip(state, last, strict=True):
        np.testing.assert_allclose(
            own.numpy(), other.detach().numpy(), rtol=1e-7, atol=1e-10
        )

    loss = (want * want).sum() + sum((s * s * s).sum() for s in last)
    loss.backward()
    own_loss = (out * out).sum() + sum((s * s * s).sum() for s in state)
    own_loss.backward()
    pairs = [(px, tx), *zip(pstates, tstates), *zip(mine, weight_list(layer))]
    for own, other in pairs:
        np.testing.assert_allclose(
            own.grad.numpy(), other.grad.numpy(), rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_outputs_states_and_gradients(mode, layers, bidirectional):
    check(mode, layers, bidirectional)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_sequences_end_at_their_length(mode, bidirectional):
    check(mode, 2, bidirectional, lengths=[3, 5, 1])


@pytest.mark.parametrize("mode", MODES)
def test_without_biases(mode):
    check(mode, 2, True, bias=False)


def call(dropout=0.0, is_test=False, **changes):
    weights = [arrays(8, 3), arrays(8, 2), arrays(8, 2), arrays(8, 2)]
    given = {
        "input": arrays(4, 3, 3),
        "prestate": [np.zeros((2, 3, 2)), np.zeros((2, 3, 2))],
        "weightlist": weights,
        **changes,
    }
    x = paddle.to_tensor(given["input"], stop_gradient=False)
    out, _, _ = _ops.rnn(
        x,
        [paddle.to_tensor(s) for s in given["prestate"]],
        [paddle.to_tensor(w) for w in given["weightlist"]],
        mode=given.get("mode", "LSTM"),
        hidden_size=2,
        num_layers=2,
        dropout_prob=dropout,
        is_test=is_test,
    )
    return x, out


def test_dropout_between_layers_is_drawn_in_training_only():
    _, plain = call()
    _, tested = call(0.5, True)
    np.testing.assert_array_equal(plain.numpy(), tested.numpy())
    paddle.seed(1)
    _, one = call(0.5)
    paddle.seed(1)
    x, two = call(0.5)
    np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert (one.numpy() != plain.numpy()).any()
    two.sum().backward()
    assert np.isfinite(x.grad.numpy()).all()
    # Everything dropped: the second layer sees zeros, so the input has no say.
    x, none = call(1.0)
    none.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(x.shape))


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"rnn.*\[time, batch, size\]"):
        call(input=arrays(4, 3))
    with pytest.raises(ValueError, match="weight_ih of cell 0"):
        call(input=arrays(4, 3, 5))
    with pytest.raises(ValueError, match="starts from 2 states, not 1"):
        call(prestate=[np.zeros((2, 3, 2))])
    with pytest.raises(ValueError, match="initial state has shape"):
        call(prestate=[np.zeros((1, 3, 2))] * 2)
    with pytest.raises(ValueError, match="mode must be 'LSTM'"):
        call(mode="lstm")


def test_a_second_derivative_is_refused():
    x, out = call()
    with pytest.raises((RuntimeError, ValueError), match="no second derivative"):
        paddle.grad([out.sum()], [x], create_graph=True)
