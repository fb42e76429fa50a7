# SPDX-License-Identifier: Apache-2.0
"""paddle.fluid: old names mean what they meant, in eager mode."""

import math

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle.fluid import layers
from paddle.fluid.dygraph import to_variable


def tensor(values, dtype="float32"):
    return paddle.to_tensor(np.asarray(values, dtype))


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# -- a script of Paddle 1.8, whole


class MNIST(fluid.dygraph.Layer):
    def __init__(self):
        super().__init__()
        self.conv = fluid.dygraph.Conv2D(1, 4, 3, act="relu", padding=1)
        self.pool = fluid.dygraph.Pool2D(2, "max", pool_stride=2)
        self.norm = fluid.dygraph.BatchNorm(4)
        self.drop = fluid.dygraph.Dropout(0.0)
        self.fc = fluid.dygraph.Linear(4 * 4 * 4, 3, act="softmax")

    def forward(self, image, label=None):
        x = self.drop(self.norm(self.pool(self.conv(image))))
        x = fluid.layers.reshape(x, [-1, 4 * 4 * 4])
        out = self.fc(x)
        if label is None:
            return out
        return out, fluid.layers.accuracy(input=out, label=label)


def test_a_training_script_of_1_8_learns_saves_and_loads(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (48, 1))
    images = rng.standard_normal((48, 1, 8, 8)).astype("float32") * 0.1
    for image, label in zip(images, labels):
        image[0, :, label[0] * 2 : label[0] * 2 + 2] += 1.0
    with fluid.dygraph.guard(fluid.CPUPlace()):
        assert fluid.in_dygraph_mode() and fluid.dygraph.enabled()
        paddle.seed(0)
        model = MNIST()
        adam = fluid.optimizer.AdamOptimizer(
            learning_rate=0.01, parameter_list=model.parameters()
        )
        losses = []
        for _ in range(30):
            image, label = to_variable(images), to_variable(labels)
            out, accuracy = model(image, label)
            loss = fluid.layers.mean(fluid.layers.cross_entropy(out, label))
            loss.backward()
            adam.minimize(loss)
            model.clear_gradients()
            losses.append(loss.numpy()[0])
        assert losses[-1] < 0.1 * losses[0]
        assert accuracy.numpy()[0] > 0.95
        path = str(tmp_path / "mnist")
        fluid.dygraph.save_dygraph(model.state_dict(), path)
        fluid.dygraph.save_dygraph(adam.state_dict(), path)
        assert {p.suffix for p in tmp_path.iterdir()} == {".pdparams", ".pdopt"}
        parameters, optimizer_state = fluid.dygraph.load_dygraph(path)
        assert isinstance(parameters["fc.weight"], np.ndarray)
        assert optimizer_state
        again = MNIST()
        again.set_dict(parameters)
        model.eval()
        again.eval()
        with fluid.dygraph.no_grad():
            np.testing.assert_array_equal(again(image).numpy(), model(image).numpy())
        adam.set_dict(optimizer_state)


def test_load_dygraph_takes_what_is_there(tmp_path):
    path = str(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="model.pdparams"):
        fluid.load_dygraph(path)
    layer = fluid.dygraph.Linear(2, 2)
    fluid.save_dygraph(layer.state_dict(), path)
    parameters, optimizer_state = fluid.load_dygraph(path + ".pdparams")
    assert set(parameters) == {"weight", "bias"} and optimizer_state is None
    with pytest.raises(ValueError, match="folder"):
        fluid.save_dygraph(layer.state_dict(), str(tmp_path) + "/")


# -- layers


def test_linear_applies_its_activation():
    layer = fluid.dygraph.Linear(
        3, 2, param_attr=fluid.ParamAttr(name="my_weight"), act="relu"
    )
    assert layer.weight.name == "my_weight"
    x = drawn(4, 3)
    expected = np.maximum(x @ layer.weight.numpy() + layer.bias.numpy(), 0)
    np.testing.assert_allclose(layer(tensor(x)).numpy(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="'wobble'"):
        fluid.dygraph.Linear(3, 2, act="wobble")(tensor(x))


def test_embedding_takes_its_size_as_a_list():
    layer = fluid.dygraph.Embedding([5, 3], is_sparse=True)
    ids = np.array([[1], [4]])
    out = layer(to_variable(ids))
    assert out.shape == [2, 1, 3]
    np.testing.assert_array_equal(out.numpy(), layer.weight.numpy()[ids])


def test_conv2d_takes_channels_filters_and_size():
    layer = fluid.dygraph.Conv2D(4, 6, 3, stride=2, padding=1, groups=2)
    assert layer.weight.shape == [6, 2, 3, 3]
    assert layer(tensor(drawn(1, 4, 8, 8))).shape == [1, 6, 4, 4]


def test_pool2d_pools_windows_or_everything():
    x = drawn(2, 3, 4, 6)
    windows = x.reshape(2, 3, 2, 2, 3, 2)
    pool = fluid.dygraph.Pool2D(2, "max", 2)
    np.testing.assert_array_equal(pool(tensor(x)).numpy(), windows.max((3, 5)))
    pool = fluid.dygraph.Pool2D(pool_size=2, pool_type="avg", pool_stride=2)
    np.testing.assert_allclose(
        pool(tensor(x)).numpy(), windows.mean((3, 5)), rtol=1e-5, atol=1e-6
    )
    for kind, function in (("max", np.max), ("avg", np.mean)):
        pool = fluid.dygraph.Pool2D(pool_type=kind, global_pooling=True)
        np.testing.assert_allclose(
            pool(tensor(x)).numpy(),
            function(x, axis=(2, 3), keepdims=True),
            rtol=1e-5,
            atol=1e-6,
        )
    with pytest.raises(ValueError, match="'median'"):
        fluid.dygraph.Pool2D(2, "median")(tensor(x))


def test_dropout_scales_down_when_not_training():
    x = tensor(np.ones(1000))
    layer = fluid.dygraph.Dropout(0.25)
    assert set(np.unique(layer(x).numpy())) == {0.0, 1.0}
    layer.eval()
    np.testing.assert_allclose(layer(x).numpy(), 0.75)
    layer = fluid.dygraph.Dropout(0.25, dropout_implementation="upscale_in_train")
    np.testing.assert_allclose(np.unique(layer(x).numpy()), [0, 1 / 0.75], rtol=1e-6)
    with pytest.raises(ValueError, match="dropout_implementation"):
        layers.dropout(x, 0.5, dropout_implementation="other")


def test_layer_norm_can_go_without_scale_and_shift():
    layer = fluid.dygraph.LayerNorm(6, scale=False, shift=False, act="sigmoid")
    assert layer.parameters() == []
    x = drawn(3, 6)
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        layer(tensor(x)).numpy(), 1 / (1 + np.exp(-normal)), rtol=1e-4
    )


def test_containers_are_those_of_paddle_nn():
    for name in ("Layer", "LayerList", "ParameterList", "Sequential", "BatchNorm"):
        assert getattr(fluid.dygraph, name) is getattr(paddle.nn, name)


# -- variables and modes


def test_to_variable_makes_tensors_and_keeps_those_there_are():
    made = to_variable(np.arange(3, dtype="int64"), name="ids")
    assert isinstance(made, paddle.Tensor) and made.name == "ids"
    assert made.dtype == fluid.core.VarDesc.VarType.INT64
    assert made.stop_gradient
    assert to_variable(made) is made
    assert to_variable([1, 2], dtype="float64").dtype == paddle.float64
    assert isinstance(made, fluid.framework.Variable)


def test_guard_puts_the_device_back():
    before = paddle.get_device()
    with pytest.raises(RuntimeError, match="out of here"):
        with fluid.dygraph.guard(fluid.CPUPlace()):
            raise RuntimeError("out of here")
    assert paddle.get_device() == before
    fluid.enable_dygraph()
    assert fluid.in_dygraph_mode()


def test_places_and_compilation():
    assert isinstance(fluid.cpu_places(1)[0], fluid.CPUPlace)
    assert fluid.is_compiled_with_cuda() == paddle.is_compiled_with_cuda()
    assert fluid.core.get_cuda_device_count() >= 0
    assert issubclass(fluid.core.EOFException, Exception)


def test_unique_names_begin_anew_under_a_guard():
    with fluid.unique_name.guard():
        first = fluid.unique_name.generate("fc")
    with fluid.unique_name.guard():
        assert fluid.unique_name.generate("fc") == first


def test_require_version(monkeypatch):
    monkeypatch.setattr(paddle, "__version__", "2.0.1", raising=False)
    fluid.require_version("2.0")
    fluid.require_version("1.8.0", "2.0.1")
    with pytest.raises(Exception, match="2.1 or later is required"):
        fluid.require_version("2.1")
    with pytest.raises(Exception, match="1.8 to 2.0.0"):
        fluid.require_version("1.8", "2.0.0")
    with pytest.raises(TypeError, match="string"):
        fluid.require_version(2.0)
    with pytest.raises(ValueError, match="no version"):
        fluid.require_version("two")


# -- optimizers and learning rates


def step_once(optimizer, loss_of, parameter):
    loss = loss_of(parameter)
    loss.backward()
    optimizer.minimize(loss)
    parameter.clear_gradient()
    return parameter.numpy()


def one_parameter(value):
    layer = paddle.nn.Layer()
    return layer.create_parameter(
        [1], default_initializer=fluid.initializer.Constant(value)
    )


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda p: fluid.optimizer.SGD(0.1, [p]), 2 - 0.1 * 4),
        (
            lambda p: fluid.optimizer.SGDOptimizer(
                0.1, parameter_list=[p], regularization=fluid.regularizer.L2Decay(0.5)
            ),
            2 - 0.1 * (4 + 0.5 * 2),
        ),
        (
            lambda p: fluid.optimizer.SGD(
                0.1, [p], grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)
            ),
            2 - 0.1,
        ),
        (lambda p: fluid.optimizer.Momentum(0.1, 0.9, [p], True), 2 - 0.1 * 4 * 1.9),
        (lambda p: fluid.optimizer.Adam(0.1, parameter_list=[p]), 2 - 0.1),
        (
            lambda p: fluid.optimizer.Adagrad(0.1, 1e-6, [p]),
            2 - 0.1 * 4 / (4 + 1e-6),
        ),
    ],
)
def test_optimizers_take_their_old_arguments(make, expected):
    parameter = one_parameter(2.0)
    out = step_once(make(parameter), lambda p: paddle.sum(p * p), parameter)
    np.testing.assert_allclose(out, [expected], rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["Adamax", "Adadelta", "RMSProp", "Ftrl", "Lamb", "LarsMomentum"]
)
def test_the_other_optimizers_take_parameter_list_too(name):
    parameter = one_parameter(2.0)
    arguments = {"learning_rate": 0.1, "parameter_list": [parameter]}
    if name == "LarsMomentum":
        arguments["momentum"] = 0.9
    kind = getattr(fluid.optimizer, name)
    assert getattr(fluid.optimizer, name + "Optimizer") is kind
    assert issubclass(kind, getattr(paddle.optimizer, name))
    out = step_once(kind(**arguments), lambda p: paddle.sum(p * p), parameter)
    assert out[0] < 2.0


def test_optimizers_name_an_argument_that_is_wrong():
    with pytest.raises(TypeError, match="no argument 'momentum'"):
        fluid.optimizer.SGD(0.1, momentum=0.9)
    with pytest.raises(TypeError, match="given twice"):
        fluid.optimizer.SGD(0.1, learning_rate=0.1)
    with pytest.raises(TypeError, match="at most 5"):
        fluid.optimizer.SGD(0.1, None, None, None, None, None)


@pytest.mark.parametrize(
    "make, expected",
    [
        (
            lambda d: d.PiecewiseDecay([2, 4], [0.3, 0.2, 0.1], 0),
            lambda n: 0.3 if n < 2 else 0.2 if n < 4 else 0.1,
        ),
        (lambda d: d.ExponentialDecay(0.5, 2, 0.1), lambda n: 0.5 * 0.1 ** (n / 2)),
        (
            lambda d: d.ExponentialDecay(0.5, 2, 0.1, True),
            lambda n: 0.5 * 0.1 ** (n // 2),
        ),
        (
            lambda d: d.NaturalExpDecay(0.5, 2, 0.1),
            lambda n: 0.5 * math.exp(-0.1 * n / 2),
        ),
        (
            lambda d: d.InverseTimeDecay(0.5, 2, 0.1),
            lambda n: 0.5 / (1 + 0.1 * n / 2),
        ),
        (
            lambda d: d.PolynomialDecay(0.5, 4, 0.1, 2.0),
            lambda n: 0.4 * (1 - min(n, 4) / 4) ** 2 + 0.1,
        ),
        (
            lambda d: d.CosineDecay(0.5, 2, 3),
            lambda n: 0.25 * (math.cos(n // 2 * math.pi / 3) + 1),
        ),
        (
            lambda d: d.NoamDecay(64, 3),
            lambda n: 64**-0.5 * min((n + 1) ** -0.5, (n + 1) * 3**-1.5),
        ),
        (
            lambda d: d.LinearLrWarmup(0.5, 4, 0.1, 0.5),
            lambda n: 0.1 + 0.4 * (n + 1) / 4 if n < 3 else 0.5,
        ),
    ],
)
def test_learning_rates_move_with_minimize(make, expected):
    parameter = one_parameter(0.0)
    optimizer = fluid.optimizer.SGD(make(fluid.dygraph), [parameter])
    before = 0.0
    for n in range(6):
        assert optimizer.current_step_lr() == pytest.approx(expected(n))
        now = step_once(optimizer, paddle.sum, parameter)[0]
        assert before - now == pytest.approx(expected(n), rel=1e-4)
        before = now


def test_initializers_keep_their_old_arguments():
    paddle.seed(0)

    def values(initializer, shape=(400, 300)):
        layer = paddle.nn.Layer()
        parameter = layer.create_parameter(list(shape), default_initializer=initializer)
        return parameter.numpy()

    initializer = fluid.initializer
    assert set(np.unique(values(initializer.ConstantInitializer(3.0)))) == {3.0}
    uniform = values(initializer.UniformInitializer(-2.0, 4.0))
    assert -2 <= uniform.min() < -1.9 and 3.9 < uniform.max() <= 4
    normal = values(initializer.Normal(loc=1.0, scale=2.0))
    assert abs(normal.mean() - 1) < 0.05 and abs(normal.std() - 2) < 0.05
    cut = values(initializer.TruncatedNormal(0.0, 1.0))
    assert np.abs(cut).max() <= 2.0
    bound = math.sqrt(6 / 700)
    xavier = values(initializer.Xavier())
    assert 0.99 * bound < xavier.max() <= bound
    spread = values(initializer.XavierInitializer(uniform=False)).std()
    assert spread == pytest.approx(math.sqrt(2 / 700), rel=0.02)
    spread = values(initializer.MSRA(uniform=False)).std()
    assert spread == pytest.approx(math.sqrt(2 / 400), rel=0.02)
    given = drawn(2, 3)
    np.testing.assert_array_equal(
        values(initializer.NumpyArrayInitializer(given), (2, 3)), given
    )
    for kind in ("Uniform", "Normal", "TruncatedNormal", "Xavier", "MSRA"):
        first, second, other = (
            values(getattr(initializer, kind)(seed=seed), (4, 5)) for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(first, second, err_msg=kind)
        assert not np.array_equal(first, other), kind
    with pytest.raises(ValueError, match="diag_num=2.*NumpyArrayInitializer"):
        initializer.Uniform(diag_num=2)


def test_clips_and_regularizers_are_those_of_paddle():
    assert fluid.clip.GradientClipByValue is paddle.nn.ClipGradByValue
    assert fluid.clip.GradientClipByNorm is paddle.nn.ClipGradByNorm
    decay = fluid.regularizer.L1DecayRegularizer(regularization_coeff=0.25)
    assert isinstance(decay, paddle.regularizer.L1Decay) and decay.coeff == 0.25


# -- functions


def test_cross_entropy_takes_probabilities():
    p = np.random.default_rng(0).dirichlet(np.ones(5), 6).astype("float32")
    labels = np.array([[0], [1], [2], [3], [4], [0]])
    out = layers.cross_entropy(tensor(p), tensor(labels, "int64"))
    assert out.shape == [6, 1]
    np.testing.assert_allclose(
        out.numpy(), -np.log(np.take_along_axis(p, labels, 1)), rtol=1e-5
    )
    ignored = layers.cross_entropy(tensor(p), tensor(labels, "int64"), ignore_index=0)
    assert ignored.numpy()[0] == 0 and ignored.numpy()[5] == 0
    soft = np.random.default_rng(1).dirichlet(np.ones(5), 6).astype("float32")
    out = layers.cross_entropy(tensor(p), tensor(soft), soft_label=True)
    np.testing.assert_allclose(
        out.numpy(), -(soft * np.log(p)).sum(1, keepdims=True), rtol=1e-5
    )


def test_losses_of_logits():
    logits, labels = drawn(6, 4), np.array([[0], [1], [2], [3], [0], [1]])
    e = np.exp(logits)
    softmax = e / e.sum(1, keepdims=True)
    loss, probabilities = layers.softmax_with_cross_entropy(
        tensor(logits), tensor(labels, "int64"), return_softmax=True
    )
    np.testing.assert_allclose(probabilities.numpy(), softmax, rtol=1e-5)
    np.testing.assert_allclose(
        loss.numpy(), -np.log(np.take_along_axis(softmax, labels, 1)), rtol=1e-5
    )
    targets = np.array([[0, 1, -1, 1]] * 6, "float32")
    out = layers.sigmoid_cross_entropy_with_logits(
        tensor(logits), tensor(targets), ignore_index=-1, normalize=True
    )
    s = 1 / (1 + np.exp(-logits))
    expected = -targets * np.log(s) - (1 - targets) * np.log(1 - s)
    expected = np.where(targets == -1, 0, expected) / 18
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(
        layers.square_error_cost(tensor(logits), tensor(targets)).numpy(),
        (logits - targets) ** 2,
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    "name, function",
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("div", np.divide),
        ("max", np.maximum),
        ("min", np.minimum),
    ],
)
def test_elementwise_lines_up_at_an_axis(name, function):
    x, y = drawn(2, 3, 4), drawn(3, seed=1)
    apply = getattr(layers, f"elementwise_{name}")
    np.testing.assert_allclose(
        apply(tensor(x), tensor(y), axis=1).numpy(), function(x, y[:, None]), 1e-5
    )
    out = apply(tensor(x), tensor(x[0]), act="relu")
    np.testing.assert_allclose(out.numpy(), np.maximum(function(x, x[0]), 0), rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
def test_reductions_take_dim(name):
    x = drawn(2, 3, 4)
    reduce = getattr(layers, f"reduce_{name}")
    function = getattr(np, name)
    np.testing.assert_allclose(reduce(tensor(x)).numpy(), [function(x)], 1e-4, 1e-6)
    np.testing.assert_allclose(
        reduce(tensor(x), dim=[0, 2], keep_dim=True).numpy(),
        function(x, axis=(0, 2), keepdims=True),
        1e-4,
        1e-6,
    )


def test_shapes():
    x = drawn(2, 3, 4)
    t = tensor(x)
    assert layers.reshape(t, [0, -1]).shape == [2, 12]
    assert layers.flatten(t, axis=2).shape == [6, 4]
    assert layers.flatten(t, axis=0).shape == [1, 24]
    assert layers.transpose(t, [2, 0, 1]).shape == [4, 2, 3]
    assert layers.unsqueeze(t, [0]).shape == [1, 2, 3, 4]
    assert layers.squeeze(layers.unsqueeze(t, [0]), []).shape == [2, 3, 4]
    assert layers.concat([t, t], axis=1).shape == [2, 6, 4]
    assert [part.shape for part in layers.split(t, 2)] == [[2, 3, 2]] * 2
    assert layers.expand(t, [2, 1, 3]).shape == [4, 3, 12]
    assert layers.stack([t, t]).shape == [2, 2, 3, 4]
    np.testing.assert_array_equal(
        layers.slice(t, axes=[0, 2], starts=[1, -2], ends=[2, 4]).numpy(),
        x[1:2, :, -2:],
    )
    np.testing.assert_array_equal(
        layers.pad(tensor(x[0]), [0, 1, 2, 0], 7.0).numpy(),
        np.pad(x[0], [(0, 1), (2, 0)], constant_values=7),
    )


def test_making_and_searching():
    assert layers.fill_constant([2], "int64", 3).numpy().tolist() == [3, 3]
    assert layers.zeros([1], "float32").numpy().tolist() == [0.0]
    assert layers.ones([1], "float64").dtype == paddle.float64
    drawn_ = layers.uniform_random([1000], min=0.0, max=2.0).numpy()
    assert 0 <= drawn_.min() and drawn_.max() <= 2 and drawn_.std() > 0.5
    assert abs(layers.gaussian_random([4000], mean=3.0).numpy().mean() - 3) < 0.1
    x = drawn(3, 5)
    values, indices = layers.topk(tensor(x), 2)
    np.testing.assert_array_equal(indices.numpy(), np.argsort(-x, 1)[:, :2])
    np.testing.assert_array_equal(values.numpy(), -np.sort(-x, 1)[:, :2])
    np.testing.assert_array_equal(layers.argmax(tensor(x)).numpy(), x.argmax(0))
    values, indices = layers.argsort(tensor(x), descending=True)
    np.testing.assert_array_equal(values.numpy(), -np.sort(-x, 1))
    np.testing.assert_array_equal(indices.numpy(), np.argsort(-x, 1))
    hot = fluid.one_hot(tensor([1, 0], "int64"), 3)
    assert hot.numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert fluid.one_hot(tensor([[1], [0]], "int64"), 3).shape == [2, 1, 3]
    hot = layers.one_hot(tensor([[1], [0]], "int64"), 3)
    assert hot.numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    total = layers.sums([tensor([1.0]), tensor([2.0])])
    assert total.numpy().tolist() == [3.0]


def test_products():
    x, y = drawn(2, 3, 4), drawn(3, 4, 5, seed=1)
    out = layers.mul(tensor(x), tensor(y), 1, 2)
    np.testing.assert_allclose(
        out.numpy(), x.reshape(2, 12) @ y.reshape(12, 5), rtol=1e-4, atol=1e-5
    )
    out = layers.matmul(tensor(x[0]), tensor(x[1]), transpose_y=True, alpha=0.5)
    np.testing.assert_allclose(out.numpy(), 0.5 * x[0] @ x[1].T, rtol=1e-4, atol=1e-6)
    a, b = x[0], x[1]
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(
        layers.cos_sim(tensor(a), tensor(b)).numpy()[:, 0],
        (a * b).sum(1) / norms,
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        layers.l2_normalize(tensor(a), axis=1).numpy(),
        a / np.linalg.norm(a, axis=1, keepdims=True),
        rtol=1e-4,
    )


def test_activations():
    x = drawn(3, 4)
    t = tensor(x)
    np.testing.assert_allclose(
        layers.leaky_relu(t).numpy(), np.where(x > 0, x, 0.02 * x), rtol=1e-5
    )
    np.testing.assert_allclose(
        layers.hard_sigmoid(t).numpy(), np.clip(0.2 * x + 0.5, 0, 1), rtol=1e-5
    )
    np.testing.assert_allclose(
        layers.swish(t, 2.0).numpy(), x / (1 + np.exp(-2 * x)), rtol=1e-5
    )
    np.testing.assert_allclose(layers.pow(t, 2.0).numpy(), x * x, rtol=1e-5)
    np.testing.assert_allclose(
        layers.scale(t, 2.0, 1.0, act="relu").numpy(), np.maximum(2 * x + 1, 0), 1e-5
    )
    np.testing.assert_allclose(
        layers.softmax(t, axis=0).numpy(), np.exp(x) / np.exp(x).sum(0), rtol=1e-5
    )
    np.testing.assert_array_equal(layers.clip(t, -0.5, 0.5).numpy(), x.clip(-0.5, 0.5))
    for name in layers.__all__:
        assert callable(getattr(layers, name)), name


# -- data and metrics


def test_a_loader_from_a_generator():
    loader = fluid.io.DataLoader.from_generator(capacity=2, return_list=True)
    samples = [(np.full(2, i, "float32"), np.array([i])) for i in range(6)]
    reader = fluid.io.batch(lambda: iter(samples), batch_size=3)
    loader.set_sample_list_generator(reader, places=fluid.CPUPlace())
    shapes = [(list(x.shape), list(y.shape)) for x, y in loader()]
    assert shapes == [([3, 2], [3, 1])] * 2


def test_metrics_have_eval():
    accuracy = fluid.metrics.Accuracy()
    accuracy.update(value=np.array([0.5]), weight=2)
    accuracy.update(value=1.0, weight=6)
    assert accuracy.eval() == pytest.approx((0.5 * 2 + 6) / 8)
    accuracy.reset()
    with pytest.raises(ValueError, match="no samples"):
        accuracy.eval()
    with pytest.raises(ValueError, match="value"):
        accuracy.update(float("nan"), 1)
    auc = fluid.metrics.Auc("auc")
    auc.update(np.array([[0.2, 0.8], [0.9, 0.1]]), np.array([[1], [0]]))
    assert auc.eval() == 1.0
    for kind in (fluid.metrics.Precision, fluid.metrics.Recall):
        metric = kind()
        metric.update(np.array([0.9, 0.8]), np.array([1, 1]))
        assert metric.eval() == 1.0


# -- what is not there


@pytest.mark.parametrize(
    "module, name, reason",
    [
        (fluid, "profiler", "measuring"),
        (fluid.contrib, "slim", "slimming"),
        (fluid.layers, "StaticRNN", "recurrent blocks"),
        (fluid.optimizer, "PipelineOptimizer", "pipelines"),
        (fluid.optimizer, "DGCMomentumOptimizer", "sparse communication"),
    ],
)
def test_what_belongs_to_later_says_so(module, name, reason):
    with pytest.raises(NotImplementedError, match=f"{name} belongs to {reason}"):
        getattr(module, name)


def test_programs_of_layers_are_those_of_jit():
    for name in ("ProgramTranslator", "TracedLayer", "TranslatedLayer", "declarative"):
        assert getattr(fluid.dygraph, name) is getattr(paddle.jit, name)
    assert fluid.dygraph.jit is paddle.jit


def test_what_never_was_is_an_attribute_error():
    for module in (fluid, fluid.layers, fluid.io, fluid.core):
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            module.nonsense
