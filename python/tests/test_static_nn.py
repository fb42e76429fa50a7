# SPDX-License-Identifier: Apache-2.0
"""Layers in programs: the same values and gradients as eagerly, where torch has checked
them."""

import os
import subprocess
import sys

import numpy as np
import paddle
import pytest
from paddle import nn, static


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


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def flat(value):
    if not isinstance(value, (list, tuple)):
        return [value]
    return [item for part in value for item in flat(part)]


def total_of(results):
    """A number that all results with a gradient go into. Not their squares: the sum of
    those is the same for whatever goes into a norm, and its gradient only rounding."""
    parts = [paddle.sin(r + 1).sum() for r in results if r.dtype in (paddle.float32,)]
    return paddle.add_n(parts)


def compare(make, *arrays, call=None, evaluate=False, rtol=1e-4, atol=1e-5):
    """Makes the layer eagerly and in a program, gives both the same parameters, and
    compares results, gradients of inputs and parameters, and buffers after the run. The
    number of rows is open in the program."""
    call = call or (lambda layer, *inputs: layer(*inputs))
    layer = make()
    first = {k: v.numpy() for k, v in layer.state_dict().items()}
    inputs = [paddle.to_tensor(a) for a in arrays]
    for x in inputs:
        x.stop_gradient = x.dtype is not paddle.float32
    if evaluate:
        layer.eval()
    results = flat(call(layer, *inputs))
    total_of(results).backward()
    wanted = [r.numpy() for r in results]
    wanted += [x.grad.numpy() for x in inputs if not x.stop_gradient]
    trained = [p for p in layer.parameters() if p.trainable and p.grad is not None]
    wanted += [p.grad.numpy() for p in trained]
    after = {k: v.numpy() for k, v in layer.state_dict().items()}

    paddle.enable_static()
    twin = make()
    if evaluate:
        twin.eval()
    variables = []
    for i, array in enumerate(arrays):
        x = static.data(f"x{i}", [None, *array.shape[1:]], array.dtype)
        x.stop_gradient = array.dtype != np.float32
        variables.append(x)
    outputs = flat(call(twin, *variables))
    by_name = dict(zip(layer.state_dict(), twin.state_dict().values()))
    names = {id(v): k for k, v in layer.state_dict().items()}
    targets = [x for x in variables if not x.stop_gradient]
    targets += [by_name[names[id(p)]] for p in trained]
    gradients = static.gradients(total_of(outputs), targets)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    scope = static.global_scope()
    for key, variable in by_name.items():
        scope.find_var(variable.name).get_tensor().set(first[key])
    feed = {f"x{i}": a for i, a in enumerate(arrays)}
    values = exe.run(feed=feed, fetch_list=outputs + gradients)
    assert len(values) == len(wanted)
    for i, (value, want) in enumerate(zip(values, wanted)):
        assert value.shape == want.shape
        np.testing.assert_allclose(
            value, want, rtol=rtol, atol=atol, err_msg=f"result {i}"
        )
    for key, variable in by_name.items():
        got = np.array(scope.find_var(variable.name).get_tensor())
        np.testing.assert_allclose(got, after[key], rtol=rtol, atol=atol, err_msg=key)


IMAGE = (2, 4, 6, 6)
LAYERS = {
    "Linear": (lambda: nn.Linear(4, 3), [(5, 4)]),
    "Linear of three dimensions": (lambda: nn.Linear(4, 3), [(5, 2, 4)]),
    "Linear without bias": (lambda: nn.Linear(4, 3, bias_attr=False), [(5, 4)]),
    "Bilinear": (lambda: nn.Bilinear(4, 3, 2), [(5, 4), (5, 3)]),
    "Conv1D": (lambda: nn.Conv1D(4, 3, 3, padding=1), [(2, 4, 7)]),
    "Conv2D": (lambda: nn.Conv2D(4, 6, 3, 2, 1, groups=2), [IMAGE]),
    "Conv3D": (lambda: nn.Conv3D(2, 3, 2), [(2, 2, 4, 4, 4)]),
    "Conv2DTranspose": (lambda: nn.Conv2DTranspose(4, 3, 3, 2), [IMAGE]),
    "MaxPool2D": (lambda: nn.MaxPool2D(2, 2), [IMAGE]),
    "AvgPool2D": (lambda: nn.AvgPool2D(3, 2, 1), [IMAGE]),
    "AdaptiveAvgPool2D": (lambda: nn.AdaptiveAvgPool2D(2), [IMAGE]),
    "AdaptiveMaxPool2D": (lambda: nn.AdaptiveMaxPool2D(3), [IMAGE]),
    "BatchNorm": (lambda: nn.BatchNorm(4, act="relu"), [IMAGE]),
    "BatchNorm1D": (lambda: nn.BatchNorm1D(4), [(5, 4)]),
    "BatchNorm2D": (lambda: nn.BatchNorm2D(4), [IMAGE]),
    "LayerNorm": (lambda: nn.LayerNorm([4]), [(5, 4)]),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), [IMAGE]),
    "InstanceNorm2D": (lambda: nn.InstanceNorm2D(4), [IMAGE]),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3), [IMAGE]),
    "PReLU": (lambda: nn.PReLU(4), [IMAGE]),
    "ReLU": (nn.ReLU, [(5, 4)]),
    "Softmax": (nn.Softmax, [(5, 4)]),
    "GELU": (nn.GELU, [(5, 4)]),
    "Hardswish": (nn.Hardswish, [(5, 4)]),
    "Maxout": (lambda: nn.Maxout(2), [IMAGE]),
    "Flatten": (nn.Flatten, [IMAGE]),
    "Pad2D": (lambda: nn.Pad2D([1, 2, 0, 1], mode="reflect"), [IMAGE]),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), [IMAGE]),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), [IMAGE]),
    "Unfold": (lambda: nn.Unfold(2), [IMAGE]),
    "CosineSimilarity": (lambda: nn.CosineSimilarity(1), [(5, 4), (5, 4)]),
    "PairwiseDistance": (nn.PairwiseDistance, [(5, 4), (5, 4)]),
    "MSELoss": (nn.MSELoss, [(5, 4), (5, 4)]),
    "SmoothL1Loss": (nn.SmoothL1Loss, [(5, 4), (5, 4)]),
    "SimpleRNNCell": (lambda: nn.SimpleRNNCell(4, 3), [(5, 4)]),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), [(5, 4)]),
    "GRUCell": (lambda: nn.GRUCell(4, 3), [(5, 4)]),
    "SimpleRNN": (lambda: nn.SimpleRNN(4, 3), [(5, 6, 4)]),
    "LSTM": (lambda: nn.LSTM(4, 3, 2, "bidirectional"), [(5, 6, 4)]),
    "GRU": (lambda: nn.GRU(4, 3), [(5, 6, 4)]),
    "MultiHeadAttention": (lambda: nn.MultiHeadAttention(4, 2), [(5, 6, 4)]),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
        [(5, 6, 4)],
    ),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0),
        [(5, 6, 4), (5, 3, 4)],
    ),
    "Sequential": (
        lambda: nn.Sequential(
            nn.Conv2D(4, 3, 3), nn.BatchNorm2D(3), nn.ReLU(), nn.Flatten()
        ),
        [IMAGE],
    ),
}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layer(name):
    make, shapes = LAYERS[name]
    compare(make, *[floats(*s, seed=i) for i, s in enumerate(shapes)])


def test_spectral_norm():
    compare(
        lambda: nn.SpectralNorm([4, 3], 0, 2),
        floats(1, 4, 3),
        call=lambda layer, x: layer(paddle.reshape(x, [4, 3])),
    )


@pytest.mark.parametrize("name", ["BatchNorm2D", "Sequential", "InstanceNorm2D"])
def test_layer_in_evaluation(name):
    make, shapes = LAYERS[name]
    compare(make, *[floats(*s) for s in shapes], evaluate=True)


@pytest.mark.parametrize("sparse", [False, True])
def test_embedding(sparse):
    ids = np.array([[1, 2], [0, 1], [4, 4]])
    compare(lambda: nn.Embedding(5, 3, sparse=sparse, padding_idx=None), ids)


def test_losses_with_labels():
    label = np.array([1, 0, 3, 2, 1])
    compare(nn.CrossEntropyLoss, floats(5, 4), label)
    rows = label[:, None]
    with static.program_guard(static.Program(), static.Program()):
        paddle.disable_static()
        compare(nn.CrossEntropyLoss, floats(5, 4), rows)


def test_dropout_draws_in_training_only():
    paddle.enable_static()
    x = static.data("x", [None, 100])
    layer = nn.Dropout(0.5)
    y = layer(x)
    test = static.default_main_program().clone(for_test=True)
    exe = static.Executor(paddle.CPUPlace())
    feed = {"x": np.ones((50, 100), "float32")}
    (value,) = exe.run(feed=feed, fetch_list=[y])
    assert set(np.unique(value)) == {0.0, 2.0}
    assert 0.4 < (value == 0).mean() < 0.6
    (value,) = exe.run(test, feed=feed, fetch_list=[y])
    assert (value == 1.0).all()


def test_parameters_are_named_by_attributes_and_shared():
    paddle.enable_static()
    x = static.data("x", [None, 4])
    attr = paddle.ParamAttr(name="shared")
    a = nn.Linear(4, 4, attr, bias_attr=False)
    b = nn.Linear(4, 4, attr, bias_attr=False)
    y = b(a(x))
    program = static.default_main_program()
    assert [p.name for p in program.all_parameters()] == ["shared"]
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    w = np.array(static.global_scope().find_var("shared").get_tensor())
    array = floats(2, 4)
    (value,) = exe.run(feed={"x": array}, fetch_list=[y])
    np.testing.assert_allclose(value, array @ w @ w, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="shared"):
        nn.Linear(4, 5, attr)


def test_buffers_are_persistable_variables():
    class Scaled(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("factor", paddle.to_tensor([2.0, 3.0]))
            self.offset = paddle.to_tensor(floats(2))

        def forward(self, x):
            return x * self.factor + self.offset

    paddle.enable_static()
    layer = Scaled()
    y = layer(static.data("x", [None, 2]))
    kept = [v.name for v in static.default_main_program().list_vars() if v.persistable]
    assert kept == ["scaled_0.factor_0", "scaled_0.offset_0"]
    assert list(layer.state_dict()) == ["factor"]
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    (value,) = exe.run(feed={"x": floats(4, 2)}, fetch_list=[y])
    wanted = floats(4, 2) * np.array([2.0, 3.0], "float32") + floats(2)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_linear_of_three_dimensions_is_the_eager_one_to_the_bit():
    x = np.random.default_rng(1).standard_normal((4, 3, 5)).astype("float32")
    paddle.disable_static()
    paddle.set_device("cpu")  # where the program runs
    layer = nn.Linear(5, 6)
    wanted = layer(paddle.to_tensor(x)).numpy()
    weight, bias = layer.weight.numpy(), layer.bias.numpy()
    paddle.enable_static()
    fed = static.data("x", [None, 3, 5])
    out = nn.Linear(5, 6)(fed)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    names = [p.name for p in static.default_main_program().all_parameters()]
    for name, value in zip(names, (weight, bias)):
        static.global_scope().find_var(name).get_tensor().set(value)
    (got,) = exe.run(feed={"x": x}, fetch_list=[out])
    np.testing.assert_array_equal(got, wanted)


def _trained_twice(function, arrays):
    """(value, gradients) of `function` of parameters, eagerly and by a program."""
    paddle.disable_static()
    paddle.set_device("cpu")  # where the program runs
    inputs = [paddle.to_tensor(a, stop_gradient=False) for a in arrays]
    out = function(*inputs)
    paddle.sum(out * out).backward()
    eager = [out.numpy(), *(x.grad.numpy() for x in inputs)]
    paddle.enable_static()
    made = [paddle.create_parameter(list(a.shape), "float32") for a in arrays]
    out = function(*made)
    gradients = static.gradients(paddle.sum(out * out), made)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    for parameter, array in zip(made, arrays):
        parameter.set_value(array)
    return eager, exe.run(fetch_list=[out, *gradients])


def _heads(x):
    return paddle.transpose(paddle.reshape(x, [4, 3, 2, 3]), [0, 2, 1, 3])


@pytest.mark.parametrize(
    "function, shapes",
    [
        (lambda x, y: paddle.matmul(x, y, transpose_x=True), [(4, 7, 3), (7, 5)]),
        (lambda x, y: paddle.matmul(x, y), [(5, 7), (4, 7, 3)]),
        (lambda x, y: paddle.matmul(x, y, transpose_y=True), [(4, 3, 7), (5, 7)]),
        (
            lambda x, y: paddle.matmul(paddle.transpose(x, [1, 0, 2]), y),
            [(4, 3, 7), (7,)],
        ),
        (
            lambda x, y, w: nn.functional.linear(paddle.meshgrid(x, y)[0], w),
            [(4,), (7,), (7, 5)],
        ),
        (
            lambda x, w, b: nn.functional.linear(paddle.transpose(x, [1, 0]), w, b),
            [(7, 4), (7, 5), (5,)],
        ),
        (
            lambda x, w, b: nn.functional.linear(x, paddle.transpose(w, [1, 0]), b),
            [(4, 7), (5, 7), (5,)],
        ),
        (
            lambda x, w, b, y: paddle.matmul(
                _heads(y), _heads(nn.functional.linear(x, w, b)), transpose_y=True
            ),
            [(4, 3, 4), (4, 6), (6,), (4, 3, 6)],
        ),
    ],
)
def test_products_of_views_and_stacks_are_the_eager_ones_to_the_bit(function, shapes):
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    eager, got = _trained_twice(function, arrays)
    for ours, theirs in zip(got, eager):
        np.testing.assert_array_equal(ours, theirs)


def test_they_are_so_where_products_are_those_of_libtorch():
    """oneDNN multiplies fast beside LibTorch only with AVX-512."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__, "-k", "eager_ones_to_the_bit"],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
