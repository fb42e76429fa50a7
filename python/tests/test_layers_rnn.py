# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and cells against torch."""

import numpy as np
import paddle
import pytest
import torch
from layer_check import compare, copy_weights, random_array
from paddle import nn

T = torch.nn
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def cell_pairs(ours, theirs):
    return [(getattr(ours, n), getattr(theirs, n), False) for n in NAMES]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_simple_cell(activation):
    ours = nn.SimpleRNNCell(3, 4, activation)
    theirs = T.RNNCell(3, 4, nonlinearity=activation)
    compare(
        lambda x, h: ours(x, h)[0],
        theirs,
        [random_array(2, 3), random_array(2, 4, seed=1)],
        cell_pairs(ours, theirs),
    )


def test_gru_cell():
    ours, theirs = nn.GRUCell(3, 4), T.GRUCell(3, 4)
    compare(
        lambda x, h: ours(x, h)[1],
        theirs,
        [random_array(2, 3), random_array(2, 4, seed=1)],
        cell_pairs(ours, theirs),
    )


def test_lstm_cell():
    ours, theirs = nn.LSTMCell(3, 4), T.LSTMCell(3, 4)
    inputs = [
        random_array(2, 3),
        random_array(2, 4, seed=1),
        random_array(2, 4, seed=2),
    ]
    compare(
        lambda x, h, c: paddle.concat(list(ours(x, (h, c))[1]), axis=1),
        lambda x, h, c: torch.cat(theirs(x, (h, c)), 1),
        inputs,
        cell_pairs(ours, theirs),
    )


def test_a_cell_begins_with_zeros():
    cell = nn.LSTMCell(3, 4)
    x = paddle.to_tensor(random_array(2, 3))
    zeros = (paddle.zeros([2, 4]), paddle.zeros([2, 4]))
    np.testing.assert_array_equal(cell(x)[0].numpy(), cell(x, zeros)[0].numpy())
    h, c = cell.get_initial_states(x, init_value=0.5)
    assert h.shape == c.shape == [2, 4]
    np.testing.assert_array_equal(h.numpy(), 0.5)


KINDS = {
    "SimpleRNN": (nn.SimpleRNN, T.RNN, {}, {}),
    "SimpleRNN-relu": (
        nn.SimpleRNN,
        T.RNN,
        {"activation": "relu"},
        {"nonlinearity": "relu"},
    ),
    "LSTM": (nn.LSTM, T.LSTM, {}, {}),
    "GRU": (nn.GRU, T.GRU, {}, {}),
}


def make_pair(kind, layers, bidirectional, time_major=False):
    ours, theirs, own_extra, other_extra = KINDS[kind]
    direction = "bidirect" if bidirectional else "forward"
    own = ours(3, 4, layers, direction, time_major, **own_extra)
    other = theirs(
        3,
        4,
        layers,
        bidirectional=bidirectional,
        batch_first=not time_major,
        **other_extra,
    )
    pairs = [
        (dict(own.named_parameters())[name], parameter, False)
        for name, parameter in other.named_parameters()
    ]
    return own, other, pairs


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind, layers, bidirectional):
    ours, theirs, pairs = make_pair(kind, layers, bidirectional)
    compare(
        lambda x: ours(x)[0], lambda x: theirs(x)[0], [random_array(2, 5, 3)], pairs
    )


@pytest.mark.parametrize("kind", ["SimpleRNN", "LSTM", "GRU"])
def test_states_go_in_and_out(kind):
    ours, theirs, pairs = make_pair(kind, 2, True, time_major=True)
    copy_weights(pairs)
    h = random_array(4, 2, 4, seed=1)
    c = random_array(4, 2, 4, seed=2)

    x = random_array(5, 2, 3)
    if kind == "LSTM":
        compare(
            lambda x, h, c: paddle.concat(list(ours(x, (h, c))[1])),
            lambda x, h, c: torch.cat(theirs(x, (h, c))[1]),
            [x, h, c],
        )
    else:
        compare(lambda x, h: ours(x, h)[1], lambda x, h: theirs(x, h)[1], [x, h])


@pytest.mark.parametrize("kind", ["SimpleRNN", "LSTM", "GRU"])
def test_sequence_lengths_end_early(kind):
    ours, theirs, pairs = make_pair(kind, 1, True)
    lengths = np.array([5, 3])

    def packed(x):
        pack = T.utils.rnn.pack_padded_sequence(
            x, torch.tensor(lengths), batch_first=True
        )
        out, states = theirs(pack)
        out, _ = T.utils.rnn.pad_packed_sequence(out, batch_first=True)
        h = states[0] if kind == "LSTM" else states
        return torch.cat([out.reshape(-1), h.reshape(-1)])

    def own(x):
        out, states = ours(x, sequence_length=paddle.to_tensor(lengths))
        h = states[0] if kind == "LSTM" else states
        return paddle.concat([out.reshape([-1]), h.reshape([-1])])

    compare(own, packed, [random_array(2, 5, 3)], pairs)


@pytest.mark.parametrize("cell", [nn.SimpleRNNCell, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("lengths", [None, [5, 2]])
def test_rnn_over_a_cell_equals_the_layer(cell, lengths):
    kind = {"SimpleRNNCell": nn.SimpleRNN, "LSTMCell": nn.LSTM, "GRUCell": nn.GRU}
    layer = kind[cell.__name__](3, 4, direction="bidirect")
    loop = nn.BiRNN(cell(3, 4), cell(3, 4))
    for suffix, part in (("", loop.cell_fw), ("_reverse", loop.cell_bw)):
        for name in NAMES:
            source = getattr(layer, f"{name}_l0{suffix}")
            getattr(part, name).set_value(source)
    x = paddle.to_tensor(random_array(2, 5, 3))
    lengths = None if lengths is None else paddle.to_tensor(np.array(lengths))
    out, _ = layer(x, sequence_length=lengths)
    again, states = loop(x, sequence_length=lengths)
    np.testing.assert_allclose(out.numpy(), again.numpy(), rtol=1e-4, atol=1e-6)
    assert len(states) == 2


def test_rnn_with_a_cell_of_ones_own():
    class Sum(nn.RNNCellBase):
        def forward(self, inputs, states):
            total = inputs + states
            return total, total

        @property
        def state_shape(self):
            return (3,)

    x = random_array(2, 5, 3)
    out, last = nn.RNN(Sum())(paddle.to_tensor(x))
    np.testing.assert_allclose(out.numpy(), x.cumsum(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last.numpy(), x.sum(axis=1), rtol=1e-5, atol=1e-6)
    out, last = nn.RNN(Sum(), is_reverse=True)(paddle.to_tensor(x))
    np.testing.assert_allclose(
        out.numpy(), x[:, ::-1].cumsum(axis=1)[:, ::-1], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("left_out", ["bias_ih_attr", "bias_hh_attr", None])
def test_biases_can_be_left_out(left_out):
    names = [left_out] if left_out else ["bias_ih_attr", "bias_hh_attr"]
    ours = nn.GRU(3, 4, **{name: False for name in names})
    theirs = T.GRU(3, 4, batch_first=True)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.zero_()
    own = dict(ours.named_parameters())
    pairs = [(own[n], p, False) for n, p in theirs.named_parameters() if n in own]
    assert len(pairs) == 4 - len(names)
    compare(
        lambda x: ours(x)[0], lambda x: theirs(x)[0], [random_array(2, 5, 3)], pairs
    )


def test_state_dict_has_both_names():
    state = nn.LSTM(3, 4, direction="bidirect").state_dict()
    assert "weight_ih_l0" in state and "bias_hh_l0_reverse" in state
    assert "0.cell_fw.weight_ih" in state and "0.cell_bw.bias_hh" in state
    assert state["weight_ih_l0"] is state["0.cell_fw.weight_ih"]
    assert len(nn.LSTM(3, 4, direction="bidirect").parameters()) == 8
    assert "0.cell.weight_ih" in nn.GRU(3, 4).state_dict()


def test_dropout_between_layers_only_while_training():
    paddle.seed(3)
    layer = nn.GRU(3, 4, num_layers=2, dropout=0.5)
    x = paddle.to_tensor(random_array(2, 5, 3))
    assert (layer(x)[0].numpy() != layer(x)[0].numpy()).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())


def test_wrong_arguments():
    with pytest.raises(ValueError, match="direction must be forward or bidirect"):
        nn.LSTM(3, 4, direction="sideways")
    with pytest.raises(ValueError, match="activation must be tanh or relu"):
        nn.SimpleRNN(3, 4, activation="gelu")
    with pytest.raises(ValueError, match="hidden_size must be positive"):
        nn.GRU(3, 0)
    with pytest.raises(ValueError, match=r"LSTM: .*\[batch, time, 3\].* \[2, 5, 7\]"):
        nn.LSTM(3, 4)(paddle.ones([2, 5, 7]))
    with pytest.raises(ValueError, match="inputs of size 3 and 5"):
        nn.BiRNN(nn.GRUCell(3, 4), nn.GRUCell(5, 4))
