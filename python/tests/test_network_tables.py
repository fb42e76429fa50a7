# SPDX-License-Identifier: Apache-2.0
"""summary and flops: what they count, against counts by hand."""

import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec


def small():
    return nn.Sequential(
        nn.Conv2D(1, 6, 3, padding=1),
        nn.BatchNorm2D(6),
        nn.ReLU(),
        nn.MaxPool2D(2, 2),
        nn.Flatten(),
        nn.Linear(6 * 14 * 14, 10),
    )


CONV, NORM, LINEAR = 6 * 9 + 6, 4 * 6, 6 * 14 * 14 * 10 + 10


def lines(capsys):
    return [line.split() for line in capsys.readouterr().out.splitlines()]


# ---- summary


def test_a_table_of_layers(capsys):
    counts = paddle.summary(small(), (1, 1, 28, 28))
    total = CONV + NORM + LINEAR
    # The mean and the variance of the norm are not trained.
    assert counts == {"total_params": total, "trainable_params": total - 12}
    shown = lines(capsys)
    rows = [line for line in shown if line and line[0].rpartition("-")[2].isdigit()]
    assert [row[0] for row in rows] == [
        "Conv2D-1",
        "BatchNorm2D-1",
        "ReLU-1",
        "MaxPool2D-1",
        "Flatten-1",
        "Linear-1",
    ]
    assert [row[-1] for row in rows] == ["60", "24", "0", "0", "0", "11,770"]
    assert " ".join(rows[3]) == "MaxPool2D-1 [[1, 6, 28, 28]] [1, 6, 14, 14] 0"
    assert ["Total", "params:", "11,854"] in shown
    assert ["Trainable", "params:", "11,842"] in shown
    assert ["Non-trainable", "params:", "12"] in shown
    # Outputs of all layers, forward and backward, and the parameters, in floats.
    outputs = 3 * 6 * 28 * 28 + 2 * 6 * 14 * 14 + 10
    megabytes = [2 * outputs * 4 / 2**20, total * 4 / 2**20]
    assert f"pass size (MB): {megabytes[0]:.2f}".split() in [s[-4:] for s in shown]
    assert f"Params size (MB): {megabytes[1]:.2f}".split() in shown


class Two(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.rnn = nn.LSTM(3, 2)
        self.table = nn.Embedding(5, 3)

    def forward(self, x, ids):
        return self.rnn(self.linear(x))[0], self.table(ids)


def test_several_inputs_and_nested_outputs(capsys):
    recurrent = 4 * 2 * 3 + 4 * 2 * 2 + 2 * 4 * 2
    total = 15 + recurrent + 15
    wanted = {"total_params": total, "trainable_params": total}
    sizes = [(2, 5, 4), (2, 3)]
    assert paddle.summary(Two(), sizes, dtypes=["float32", "int64"]) == wanted
    rows = [line for line in lines(capsys) if line and line[0] == "LSTM-1"]
    cells = "[[2, 5, 3]] [[2, 5, 2], [[1, 2, 2], [1, 2, 2]]]"
    assert " ".join(rows[0]) == f"LSTM-1 {cells} {recurrent}"
    specs = [InputSpec([None, 5, 4]), InputSpec([-1, 3], "int64")]
    assert paddle.summary(Two(), specs) == wanted
    given = [paddle.ones([2, 5, 4]), paddle.zeros([2, 3], "int64")]
    assert paddle.summary(Two(), input=given) == wanted
    by_name = dict(zip(("x", "ids"), given))
    assert paddle.summary(Two(), input=by_name) == wanted


def test_a_layer_that_is_used_twice_counts_once(capsys):
    class Twice(nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(self.inner(x))

    net = Twice()
    assert paddle.summary(net, [2, 3])["total_params"] == 12
    rows = [line for line in lines(capsys) if line and line[0] == "Linear-1"]
    assert [row[-1] for row in rows] == ["12", "0"]


def test_the_network_stays_as_it_is(capsys):
    net = small()
    net[1].eval()
    before = {name: value.numpy() for name, value in net.state_dict().items()}
    paddle.summary(net, (2, 1, 28, 28))
    paddle.flops(net, (2, 1, 28, 28))
    assert [layer.training for layer in net] == [True, False, True, True, True, True]
    after = net.state_dict()
    assert list(after) == list(before)
    assert all((after[name].numpy() == before[name]).all() for name in before)
    assert not any(layer._forward_post_hooks for layer in net.sublayers())


# ---- flops


def test_operations_by_hand(capsys):
    convolution = 6 * 28 * 28 * (9 + 1)
    norm, linear = 2 * 6 * 28 * 28, 6 * 14 * 14 * 10
    total = convolution + norm + linear
    assert paddle.flops(small(), [1, 1, 28, 28], print_detail=True) == total
    shown = lines(capsys)
    assert f"Total Flops: {total} Total Params: {CONV + NORM + LINEAR}".split() in shown
    rows = [line for line in shown if line[1:2] and line[1].startswith("linear")]
    assert rows[0][-4:] == [str(LINEAR), "|", str(linear), "|"]
    assert ["flops:", "counted", "as", "nothing:", "MaxPool2D"] in shown


@pytest.mark.parametrize(
    "layer, shape, wanted",
    [
        (nn.Conv2D(4, 6, (3, 1), groups=2, bias_attr=False), (2, 4, 5, 5), 2 * 90 * 6),
        (nn.Conv1D(2, 3, 2), (1, 2, 5), 12 * (2 * 2 + 1)),
        (nn.Conv2DTranspose(4, 2, 3), (1, 4, 2, 2), 2 * 16 * (4 * 9 + 1)),
        (nn.Linear(3, 2), (5, 7, 3), 70 * 3),
        (nn.LeakyReLU(), (2, 3), 6),
        (nn.AvgPool2D(2), (1, 2, 4, 4), 8),
        (nn.AdaptiveAvgPool2D(2), (1, 3, 8, 6), 12 * (4 * 3 + 1)),
        (nn.BatchNorm1D(3), (5, 3), 30),
        (nn.Dropout(), (4, 4), 0),
    ],
)
def test_operations_of_layers(layer, shape, wanted, capsys):
    assert paddle.flops(layer, shape) == wanted


def test_layers_of_users_are_counted_as_they_say(capsys):
    class Square(nn.Layer):
        def forward(self, x):
            return x * x

    def count(layer, inputs, output):
        layer.total_ops += inputs[0].numel()

    square = Square()
    net = nn.Sequential(nn.Linear(3, 4), square, square)
    assert paddle.flops(net, [2, 3]) == 2 * 3 * 4
    assert "counted as nothing: Square" in capsys.readouterr().out
    assert paddle.flops(net, [2, 3], custom_ops={Square: count}) == 24 + 2 * 8
    assert not hasattr(square, "total_ops")


# ---- mistakes


def test_mistakes_are_named():
    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="summary: give input_size or input"):
        paddle.summary(net)
    with pytest.raises(TypeError, match="input_size must be a shape"):
        paddle.summary(net, "2, 2")
    with pytest.raises(TypeError, match="input_size must be a shape"):
        paddle.flops(net, [(2, 2), "two"])
    with pytest.raises(ValueError, match="must be positive"):
        paddle.summary(net, (0, 2))
    with pytest.raises(ValueError, match="1 inputs, but 2 dtypes"):
        paddle.summary(net, (1, 2), dtypes=["float32", "int64"])
    with pytest.raises(TypeError, match="must be a paddle.nn.Layer, but is a function"):
        paddle.flops(paddle.tanh, (1, 2))
    paddle.enable_static()
    try:
        with pytest.raises(RuntimeError, match="call paddle.disable_static"):
            paddle.summary(net, (1, 2))
    finally:
        paddle.disable_static()
