# SPDX-License-Identifier: Apache-2.0
"""Recurrent cells, and the layers that run them over sequences."""

import math

import paddle

from ... import _names, _ops
from ...tensor.shape_argument import size
from .. import functional as F
from ..initializer import Uniform
from .container import LayerList
from .layers import Layer


def _map(function, *structures):
    """`function` on the tensors of equally nested lists and tuples."""
    first = structures[0]
    if isinstance(first, (list, tuple)):
        return type(first)(_map(function, *items) for items in zip(*structures))
    return function(*structures)


class RNNCellBase(Layer):
    """One step of a recurrent layer: `outputs, states = cell(inputs, states)`."""

    def get_initial_states(
        self, batch_ref, shape=None, dtype=None, init_value=0.0, batch_dim_idx=0
    ):
        """States full of `init_value`, of the batch size of the tensor `batch_ref`.

        shape: without the batch; by default the cell's state_shape.
        """
        while isinstance(batch_ref, (list, tuple)):
            batch_ref = batch_ref[0]
        batch = size(batch_ref, batch_dim_idx)
        dtype = dtype or batch_ref.dtype

        def fill(dims):
            dims = [n for n in dims if n != -1]
            return paddle.full([batch] + dims, init_value, dtype)

        def walk(shape):
            if all(isinstance(n, int) for n in shape):
                return fill(list(shape))
            return tuple(walk(part) for part in shape)

        return walk(self.state_shape if shape is None else shape)

    @property
    def state_shape(self):
        """The shape of the states without the batch, nested like them."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say the shape of its states"
        )

    def _make_parameters(self, gates, attrs):
        """weight_ih and weight_hh of [gates * hidden, ...] and their biases."""
        hidden = self.hidden_size
        if hidden <= 0:
            raise ValueError(
                f"{type(self).__name__}: hidden_size must be positive, not {hidden}"
            )
        bound = 1.0 / math.sqrt(hidden)
        for name, shape, attr in (
            ("weight_ih", [gates * hidden, self.input_size], attrs[0]),
            ("weight_hh", [gates * hidden, hidden], attrs[1]),
            ("bias_ih", [gates * hidden], attrs[2]),
            ("bias_hh", [gates * hidden], attrs[3]),
        ):
            parameter = self.create_parameter(
                shape,
                attr,
                is_bias=name.startswith("bias"),
                default_initializer=Uniform(-bound, bound),
            )
            setattr(self, name, parameter)

    def _gates(self, inputs, state):
        """inputs W_ih' + b_ih and state W_hh' + b_hh."""
        from_input = _ops.matmul_v2(inputs, self.weight_ih, trans_y=True)
        if self.bias_ih is not None:
            from_input = from_input + self.bias_ih
        from_state = _ops.matmul_v2(state, self.weight_hh, trans_y=True)
        if self.bias_hh is not None:
            from_state = from_state + self.bias_hh
        return from_input, from_state

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}"


class SimpleRNNCell(RNNCellBase):
    """h' = act(x W_ih' + b_ih + h W_hh' + b_hh)."""

    def __init__(
        self,
        input_size,
        hidden_size,
        activation="tanh",
        weight_ih_attr=None,
        weight_hh_attr=None,
        bias_ih_attr=None,
        bias_hh_attr=None,
        name=None,
    ):
        super().__init__()
        if activation not in ("tanh", "relu"):
            raise ValueError(
                "SimpleRNNCell: activation must be tanh or relu, but got "
                f"{activation!r}"
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.activation = activation
        self._make_parameters(
            1, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        )

    def forward(self, inputs, states=None):
        if states is None:
            states = self.get_initial_states(inputs)
        from_input, from_state = self._gates(inputs, states)
        h = getattr(F, self.activation)(from_input + from_state)
        return h, h

    @property
    def state_shape(self):
        return (self.hidden_size,)

    def extra_repr(self):
        text = super().extra_repr()
        return text if self.activation == "tanh" else text + ", activation=relu"


class LSTMCell(RNNCellBase):
    """Long short-term memory; gates are in the order input, forget, cell, output."""

    def __init__(
        self,
        input_size,
        hidden_size,
        weight_ih_attr=None,
        weight_hh_attr=None,
        bias_ih_attr=None,
        bias_hh_attr=None,
        name=None,
    ):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self._make_parameters(
            4, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        )

    def forward(self, inputs, states=None):
        if states is None:
            states = self.get_initial_states(inputs)
        h, c = states
        from_input, from_state = self._gates(inputs, h)
        i, f, g, o = paddle.split(from_input + from_state, 4, axis=-1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        h = F.sigmoid(o) * F.tanh(c)
        return h, (h, c)

    @property
    def state_shape(self):
        return ((self.hidden_size,), (self.hidden_size,))


class GRUCell(RNNCellBase):
    """Gated recurrent unit; gates are in the order reset, update, candidate."""

    def __init__(
        self,
        input_size,
        hidden_size,
        weight_ih_attr=None,
        weight_hh_attr=None,
        bias_ih_attr=None,
        bias_hh_attr=None,
        name=None,
    ):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self._make_parameters(
            3, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        )

    def forward(self, inputs, states=None):
        if states is None:
            states = self.get_initial_states(inputs)
        from_input, from_state = self._gates(inputs, states)
        x_r, x_z, x_c = paddle.split(from_input, 3, axis=-1)
        h_r, h_z, h_c = paddle.split(from_state, 3, axis=-1)
        z = F.sigmoid(x_z + h_z)
        candidate = F.tanh(x_c + F.sigmoid(x_r + h_r) * h_c)
        h = (states - candidate) * z + candidate
        return h, h

    @property
    def state_shape(self):
        return (self.hidden_size,)


class RNN(Layer):
    """Runs a cell over a sequence, [batch, time, ...] or with time_major
    [time, batch, ...]; backwards with is_reverse.

    With sequence_length, states stop and outputs are zero past a sample's end.
    Returns the outputs of all steps and the last states.
    """

    def __init__(self, cell, is_reverse=False, time_major=False):
        super().__init__()
        self.cell = cell
        self.is_reverse = is_reverse
        self.time_major = time_major

    def forward(self, inputs, initial_states=None, sequence_length=None, **kwargs):
        if initial_states is None:
            initial_states = self.cell.get_initial_states(
                inputs, batch_dim_idx=1 if self.time_major else 0
            )
        axis = 0 if self.time_major else 1
        steps = _map(lambda x: paddle.unbind(x, axis), inputs)
        count = len(_first(steps))
        masks = None
        if sequence_length is not None:
            masks = paddle.unbind(
                F.sequence_mask(sequence_length, count, _dtype_of(initial_states)), 1
            )
        states = initial_states
        outputs = [None] * count
        for t in reversed(range(count)) if self.is_reverse else range(count):
            step = _map_steps(steps, t)
            output, new_states = self.cell(step, states, **kwargs)
            if masks is not None:
                keep = masks[t]
                new_states = _map(
                    lambda new, old: _blend(keep, new, old), new_states, states
                )
                output = _map(lambda x: x * _column(keep, x), output)
            outputs[t], states = output, new_states
        stacked = _map(lambda *items: paddle.stack(items, axis), *outputs)
        return stacked, states


def _first(steps):
    return steps if _is_steps(steps) else _first(steps[0])


def _is_steps(value):
    return isinstance(value, list) and not isinstance(value[0], (list, tuple))


def _map_steps(steps, t):
    """What the cell gets at step t, of inputs that were split by _map."""
    if _is_steps(steps):
        return steps[t]
    return type(steps)(_map_steps(item, t) for item in steps)


def _dtype_of(states):
    while isinstance(states, (list, tuple)):
        states = states[0]
    return states.dtype


def _column(mask, like):
    """A mask [batch] with ones behind, to multiply `like` by."""
    return paddle.reshape(mask, [-1] + [1] * (len(like.shape) - 1))


def _blend(mask, new, old):
    keep = _column(mask, new)
    return new * keep + old * (1.0 - keep)


class BiRNN(Layer):
    """Two cells over one sequence, one forwards and one backwards; the outputs are
    joined along the last dimension."""

    def __init__(self, cell_fw, cell_bw, time_major=False):
        super().__init__()
        if cell_fw.input_size != cell_bw.input_size:
            raise ValueError(
                f"BiRNN: the cells take inputs of size {cell_fw.input_size} and "
                f"{cell_bw.input_size}"
            )
        self.cell_fw = cell_fw
        self.cell_bw = cell_bw
        self.time_major = time_major
        # The cells are this layer's; the two RNNs only run them.
        object.__setattr__(self, "_forward_rnn", RNN(cell_fw, False, time_major))
        object.__setattr__(self, "_backward_rnn", RNN(cell_bw, True, time_major))

    def forward(self, inputs, initial_states=None, sequence_length=None, **kwargs):
        if initial_states is None:
            initial_states = (None, None)
        if len(initial_states) != 2:
            raise ValueError(
                "BiRNN: initial_states must be a pair, but has "
                f"{len(initial_states)} items"
            )
        forth, forth_states = self._forward_rnn(
            inputs, initial_states[0], sequence_length, **kwargs
        )
        back, back_states = self._backward_rnn(
            inputs, initial_states[1], sequence_length, **kwargs
        )
        outputs = _map(lambda a, b: paddle.concat([a, b], -1), forth, back)
        return outputs, (forth_states, back_states)


class _Recurrent(LayerList):
    """Several layers of one kind of cell, run by one op.

    The cells lie below as `0.cell` (or `0.cell_fw` and `0.cell_bw`); the same
    parameters are attributes weight_ih_l0, weight_hh_l0_reverse and so on.
    """

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers,
        direction,
        time_major,
        dropout,
        attrs,
    ):
        super().__init__()
        bidirectional = direction in ("bidirect", "bidirectional")
        if not bidirectional and direction != "forward":
            raise ValueError(
                f"{type(self).__name__}: direction must be forward or bidirect, but "
                f"got {direction!r}"
            )
        if num_layers < 1:
            raise ValueError(
                f"{type(self).__name__}: num_layers must be positive, not {num_layers}"
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.num_directions = 2 if bidirectional else 1
        self.time_major = time_major
        self.dropout = dropout
        self.state_components = 2 if mode == "LSTM" else 1
        cells = []
        for i in range(num_layers):
            size = input_size if i == 0 else hidden_size * self.num_directions
            pair = [
                _make_cell(mode, size, hidden_size, attrs)
                for _ in range(self.num_directions)
            ]
            cells.extend(pair)
            if bidirectional:
                self.append(BiRNN(*pair, time_major=time_major))
            else:
                self.append(RNN(pair[0], time_major=time_major))
        for i, cell in enumerate(cells):
            layer, backwards = divmod(i, self.num_directions)
            suffix = f"_l{layer}" + ("_reverse" if backwards else "")
            for name, parameter in cell._parameters.items():
                if parameter is not None:
                    setattr(self, name + suffix, parameter)

    def forward(self, inputs, initial_states=None, sequence_length=None):
        shape = list(inputs.shape)
        if len(shape) != 3 or shape[2] not in (self.input_size, -1):
            raise ValueError(
                f"{type(self).__name__}: the input must have shape "
                f"{'[time, batch,' if self.time_major else '[batch, time,'} "
                f"{self.input_size}], but has {shape}"
            )
        batch = size(inputs, 1 if self.time_major else 0)
        if initial_states is None:
            state_shape = [
                self.num_layers * self.num_directions,
                batch,
                self.hidden_size,
            ]
            zeros = paddle.zeros(state_shape, inputs.dtype)
            initial_states = [zeros] * self.state_components
        elif self.state_components == 1:
            initial_states = [initial_states]
        if not self.time_major:
            inputs = paddle.transpose(inputs, [1, 0, 2])
        outputs, states, _ = _ops.rnn(
            inputs,
            list(initial_states),
            self._weights(),
            sequence_length,
            mode=self.mode,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            is_bidirec=self.num_directions == 2,
            dropout_prob=self.dropout,
            is_test=not self.training,
        )
        if not self.time_major:
            outputs = paddle.transpose(outputs, [1, 0, 2])
        return outputs, states[0] if self.state_components == 1 else tuple(states)

    def _weights(self):
        """What the op takes: the weights of all cells, then the biases of all. Where
        only one of the two biases is left out, zeros stand for it."""
        cells = [
            cell
            for layer in self
            for cell in ([layer.cell] if self.num_directions == 1 else layer.children())
        ]
        weights = [w for c in cells for w in (c.weight_ih, c.weight_hh)]
        biases = [b for c in cells for b in (c.bias_ih, c.bias_hh)]
        given = [b for b in biases if b is not None]
        if not given:
            return weights
        if len(given) < len(biases):
            zeros = paddle.zeros_like(given[0])
            biases = [zeros if b is None else b for b in biases]
        return weights + biases

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.time_major:
            text += f", time_major={self.time_major}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        return text


def _make_cell(mode, input_size, hidden_size, attrs):
    if mode == "LSTM":
        return LSTMCell(input_size, hidden_size, *attrs)
    if mode == "GRU":
        return GRUCell(input_size, hidden_size, *attrs)
    activation = "relu" if mode == "RNN_RELU" else "tanh"
    return SimpleRNNCell(input_size, hidden_size, activation, *attrs)


class SimpleRNN(_Recurrent):
    """Layers of SimpleRNNCell.

    Takes [batch, time, input] (with time_major [time, batch, input]) and states
    [layers * directions, batch, hidden]; returns outputs and the last states.
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        direction="forward",
        time_major=False,
        dropout=0.0,
        activation="tanh",
        weight_ih_attr=None,
        weight_hh_attr=None,
        bias_ih_attr=None,
        bias_hh_attr=None,
        name=None,
    ):
        if activation not in ("tanh", "relu"):
            raise ValueError(
                f"SimpleRNN: activation must be tanh or relu, but got {activation!r}"
            )
        mode = "RNN_TANH" if activation == "tanh" else "RNN_RELU"
        super().__init__(
            mode,
            input_size,
            hidden_size,
            num_layers,
            direction,
            time_major,
            dropout,
            (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr),
        )


class LSTM(_Recurrent):
    """Layers of LSTMCell; states are the pair (h, c). See SimpleRNN."""

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        direction="forward",
        time_major=False,
        dropout=0.0,
        weight_ih_attr=None,
        weight_hh_attr=None,
        bias_ih_attr=None,
        bias_hh_attr=None,
        name=None,
    ):
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            direction,
            time_major,
            dropout,
            (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr),
        )


class GRU(_Recurrent):
    """Layers of GRUCell. See SimpleRNN."""

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        direction="forward",
        time_major=False,
        dropout=0.0,
        weight_ih_attr=None,
        weight_hh_attr=None,
        bias_ih_attr=None,
        bias_hh_attr=None,
        name=None,
    ):
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            direction,
            time_major,
            dropout,
            (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr),
        )


__all__ = _names.own(globals())
