# SPDX-License-Identifier: Apache-2.0
"""Eager training in mixed precision, against torch's."""

import threading

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn
from paddle.amp import GradScaler, auto_cast

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def tensor(*shape, seed=0):
    return paddle.to_tensor(drawn(*shape, seed=seed))


# ---- auto_cast


@pytest.mark.parametrize("dtype", TYPES)
def test_values_and_gradients_are_those_of_torch(dtype):
    x, w, v = drawn(16, 6), drawn(6, 8, seed=1), drawn(8, 3, seed=2)
    ours = [paddle.to_tensor(a, stop_gradient=False) for a in (w, v)]
    with auto_cast(dtype=dtype):
        hidden = paddle.tanh(paddle.matmul(paddle.to_tensor(x), ours[0]))
        out = paddle.matmul(hidden, ours[1])
        probabilities = F.softmax(out)
    short = getattr(paddle, dtype)
    assert hidden.dtype == out.dtype == short
    assert probabilities.dtype == paddle.float32
    loss = paddle.mean(paddle.square(probabilities))
    loss.backward()
    theirs = [torch.tensor(a, requires_grad=True) for a in (w, v)]
    with torch.autocast("cpu", TYPES[dtype]):
        expected = torch.tanh(torch.tensor(x) @ theirs[0]) @ theirs[1]
        expected = torch.softmax(expected.float(), -1)
    expected.square().mean().backward()
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(
        probabilities.numpy(), expected.detach().numpy(), tolerance * 4, tolerance
    )
    for mine, other in zip(ours, theirs):
        assert mine.grad.dtype == paddle.float32
        np.testing.assert_allclose(
            mine.grad.numpy(), other.grad.numpy(), tolerance * 4, tolerance / 10
        )


def test_lists_and_levels():
    a, b = tensor(3, 3), tensor(3, 3, seed=1)
    with auto_cast():
        assert paddle.matmul(a, b).dtype == paddle.float16
        assert paddle.tanh(a).dtype == paddle.float32
        # Operands of both types are added in float32.
        assert (paddle.matmul(a, b) + b).dtype == paddle.float32
        assert paddle.exp(paddle.matmul(a, b)).dtype == paddle.float32
    with auto_cast(custom_white_list={"tanh"}, custom_black_list={"matmul_v2"}):
        assert paddle.matmul(a, b).dtype == paddle.float32
        assert paddle.tanh(a).dtype == paddle.float16
    with auto_cast(level="O2", use_promote=False):
        assert paddle.tanh(a).dtype == paddle.float16
        assert paddle.exp(a).dtype == paddle.float16
    with auto_cast(level="O2", custom_black_list=["exp"], use_promote=False):
        assert paddle.exp(paddle.matmul(a, b)).dtype == paddle.float32
    with auto_cast(level="O2"):
        product = paddle.matmul(a, b)
        assert paddle.exp(product).dtype == paddle.float16
        assert (product + b).dtype == paddle.float32
    with auto_cast(level="OD", dtype="bfloat16"):
        product = paddle.matmul(a, b)
        assert product.dtype == paddle.bfloat16
        assert paddle.tanh(product).dtype == paddle.float32
    for off in ({"enable": False}, {"level": "O0"}):
        with auto_cast(**off):
            assert paddle.matmul(a, b).dtype == paddle.float32


def test_scopes_nest_and_end_also_with_an_error():
    a = tensor(3, 3)
    with auto_cast(dtype="bfloat16"):
        with auto_cast(enable=False):
            assert paddle.matmul(a, a).dtype == paddle.float32
        assert paddle.matmul(a, a).dtype == paddle.bfloat16
        with pytest.raises(ValueError), auto_cast(dtype="float16"):
            raise ValueError
        assert paddle.matmul(a, a).dtype == paddle.bfloat16
    assert paddle.matmul(a, a).dtype == paddle.float32


def kind():
    a = tensor(3, 3)
    return paddle.matmul(a, a).dtype


def in_thread(function):
    """What `function` returns in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    return results[0]


def test_a_thread_is_not_in_the_contexts_of_others():
    def own():
        before = kind()
        with auto_cast(dtype="float16"):
            return before, kind()

    with auto_cast(dtype="bfloat16"):
        assert in_thread(own) == (paddle.float32, paddle.float16)
        assert kind() == paddle.bfloat16
    assert kind() == paddle.float32


def test_several_threads_may_be_inside_the_same_object():
    shared = auto_cast(dtype="bfloat16")
    inside, go_on = threading.Event(), threading.Event()
    seen = []

    def use():
        with auto_cast(dtype="float16"):
            with shared:
                inside.set()
                go_on.wait(60)
                seen.append(kind())
            seen.append(kind())

    thread = threading.Thread(target=use)
    thread.start()
    inside.wait(60)
    with shared:
        assert kind() == paddle.bfloat16
    assert kind() == paddle.float32
    go_on.set()
    thread.join(60)
    assert seen == [paddle.bfloat16, paddle.float16]


def test_a_generator_leaves_its_own_context_whatever_was_entered_since():
    def steps():
        with auto_cast(dtype="bfloat16"):
            yield kind()
            yield kind()

    first = steps()
    assert next(first) == paddle.bfloat16
    with auto_cast(dtype="float16"):
        assert kind() == paddle.float16
        first.close()
        assert kind() == paddle.float16
    assert kind() == paddle.float32
    # Also one that another thread ends.
    second = steps()
    next(second)
    assert kind() == paddle.bfloat16
    in_thread(second.close)
    assert kind() == paddle.float32


def test_what_a_thread_left_open_ends_with_it():
    in_thread(lambda: auto_cast(dtype="bfloat16").__enter__())
    assert kind() == paddle.float32


class Products(paddle.io.Dataset):
    def __getitem__(self, index):
        return kind().name

    def __len__(self):
        return 4


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_dataset_computes_the_same_with_workers_and_without(num_workers):
    loader = paddle.io.DataLoader(
        Products(), batch_size=2, num_workers=num_workers, collate_fn=list
    )
    with auto_cast(dtype="bfloat16"):
        names = [name for batch in loader for name in batch]
        assert kind() == paddle.bfloat16
    assert set(names) == {"bfloat16"}, names


def test_a_function_may_be_decorated():
    @auto_cast(dtype="bfloat16")
    def product(a):
        return paddle.matmul(a, a)

    assert product(tensor(3, 3)).dtype == paddle.bfloat16
    assert paddle.matmul(tensor(3, 3), tensor(3, 3)).dtype == paddle.float32


def test_float64_and_integers_stay():
    a = tensor(3, 3).astype("float64")
    with auto_cast():
        assert paddle.matmul(a, a).dtype == paddle.float64
        assert (paddle.to_tensor([1, 2]) + 1).dtype == paddle.int64


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="level must be O0, OD, O1 or O2"):
        auto_cast(level="O4").__enter__()
    with pytest.raises(ValueError, match="dtype must be 'float16' or 'bfloat16'"):
        auto_cast(dtype="int8").__enter__()
    with pytest.raises(
        ValueError, match="exp in custom_white_list and in custom_black"
    ):
        auto_cast(custom_white_list={"exp"}, custom_black_list={"exp"}).__enter__()


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2D(4)
        self.linear = nn.Linear(4 * 16, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2, 2)
        return self.linear(paddle.flatten(x, 1))


def batch(number):
    x = drawn(16, 1, 8, 8, seed=number)
    label = x.reshape(16, -1)[:, :3].argmax(1)
    return paddle.to_tensor(x), paddle.to_tensor(label)


def train(dtype=None, level="O1", steps=8):
    paddle.seed(3)
    net = Net()
    optimizer = paddle.optimizer.Momentum(0.05, parameters=net.parameters())
    if dtype is not None:
        net, optimizer = paddle.amp.decorate(net, optimizer, level=level, dtype=dtype)
    scaler = GradScaler(enable=dtype == "float16", init_loss_scaling=256.0)
    losses = []
    for i in range(steps):
        x, label = batch(i % 2)
        with auto_cast(enable=dtype is not None, level=level, dtype=dtype or "float16"):
            loss = F.cross_entropy(net(x), label)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        losses.append(loss.astype("float32").item())
    assert all(p.dtype == paddle.float32 for p in net.parameters())
    return losses


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_training_stays_close_to_float32(dtype, level):
    expected, losses = train(), train(dtype, level)
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_allclose(losses, expected, atol=10 * TOLERANCE[dtype])


def test_decorate_takes_layers():
    net = nn.Linear(2, 2)
    assert paddle.amp.decorate(net) is net
    assert paddle.amp.decorate([net], level="O2") == [net]
    with pytest.raises(TypeError, match="models must be Layers, but one is a str"):
        paddle.amp.decorate("net")
    assert paddle.amp.decorate(net, save_dtype="float32") is net
    with pytest.raises(NotImplementedError, match="save_dtype='float16'.*state_dict"):
        paddle.amp.decorate(net, save_dtype="float16")
    with pytest.warns(UserWarning, match="parameters are float32 here"):
        paddle.amp.decorate(net, master_weight=False)


# ---- GradScaler


def parameter(*values):
    return paddle.to_tensor(np.array(values, "float32"), stop_gradient=False)


def scaled(p, factor, scaler):
    """Backward of factor * sum(p), scaled."""
    scaler.scale(paddle.sum(p) * factor).backward()


def test_a_step_is_that_without_scaling():
    p = parameter(1.0, 2.0)
    sgd = paddle.optimizer.SGD(0.5, [p])
    scaler = GradScaler(init_loss_scaling=1024.0)
    scaled(p, 0.25, scaler)
    np.testing.assert_array_equal(p.grad.numpy(), [256.0, 256.0])
    scaler.unscale_(sgd)
    np.testing.assert_array_equal(p.grad.numpy(), [0.25, 0.25])
    scaler.step(sgd)
    scaler.update()
    np.testing.assert_array_equal(p.numpy(), [0.875, 1.875])


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_a_bad_step_changes_nothing_but_the_scaling(wrong):
    p = parameter(1.0, 2.0)
    adam = paddle.optimizer.Adam(0.5, parameters=[p])
    scaler = GradScaler(init_loss_scaling=8.0)
    scaled(p, 1.0, scaler)
    scaler.minimize(adam, paddle.sum(p))
    adam.clear_grad()
    before, state = p.numpy(), {k: v.numpy() for k, v in adam.state_dict().items()}
    scaled(p, wrong, scaler)
    assert scaler.minimize(adam, paddle.sum(p)) == (None, [])
    np.testing.assert_array_equal(p.numpy(), before)
    for name, value in adam.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name])
    assert scaler.state_dict()["scale"].tolist() == [4.0]


def test_the_scaling_follows_good_and_bad_steps():
    p = parameter(1.0)
    sgd = paddle.optimizer.SGD(0.01, [p])
    scaler = GradScaler(
        init_loss_scaling=8.0,
        incr_every_n_steps=3,
        decr_every_n_nan_or_inf=2,
        incr_ratio=4.0,
        decr_ratio=0.25,
    )
    seen = []
    for good in [1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]:
        scaled(p, 1.0 if good else np.inf, scaler)
        scaler.step(sgd)
        scaler.update()
        sgd.clear_grad()
        seen.append(scaler.state_dict()["scale"].item())
    expected = [8, 8, 32, 32, 32, 32, 32, 32, 128, 128, 32, 32, 32]
    assert seen == expected + [32, 8, 8, 2, 2, 1]


def test_minimize_runs_backward_where_nobody_did():
    p = parameter(1.0)
    sgd = paddle.optimizer.SGD(0.5, [p])
    scaler = GradScaler(init_loss_scaling=16.0)
    scaler.minimize(sgd, scaler.scale(paddle.sum(p)))
    np.testing.assert_array_equal(p.numpy(), [0.5])


def test_a_fixed_scaling_stays():
    p = parameter(1.0)
    sgd = paddle.optimizer.SGD(0.5, [p])
    scaler = GradScaler(init_loss_scaling=16.0, use_dynamic_loss_scaling=False)
    assert not scaler.is_use_dynamic_loss_scaling()
    scaled(p, np.inf, scaler)
    scaler.step(sgd)
    scaler.update()
    np.testing.assert_array_equal(p.numpy(), [1.0])
    assert scaler.state_dict()["scale"].item() == 16.0


def test_one_that_is_not_enabled_does_nothing():
    p = parameter(1.0)
    sgd = paddle.optimizer.SGD(0.5, [p])
    scaler = GradScaler(enable=False)
    assert not scaler.is_enable() and scaler.state_dict() == {}
    loss = paddle.sum(p)
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(sgd)
    scaler.step(sgd)
    scaler.update()
    np.testing.assert_array_equal(p.numpy(), [0.5])


def test_rows_of_an_embedding_are_unscaled():
    table = nn.Embedding(6, 2, sparse=True)
    sgd = paddle.optimizer.SGD(1.0, table.parameters())
    scaler = GradScaler(init_loss_scaling=64.0)
    before = table.weight.numpy()
    scaler.scale(paddle.sum(table(paddle.to_tensor([1, 4, 1])))).backward()
    scaler.step(sgd)
    before[[1, 4]] -= [[2.0], [1.0]]
    np.testing.assert_allclose(table.weight.numpy(), before, 1e-6)


def test_a_scaler_goes_on_from_its_state():
    p = parameter(1.0)
    sgd = paddle.optimizer.SGD(0.01, [p])
    scaler = GradScaler(init_loss_scaling=8.0, incr_every_n_steps=2)
    for _ in range(3):
        scaled(p, 1.0, scaler)
        scaler.step(sgd)
        scaler.update()
    other = GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    for one in (scaler, other):
        scaled(p, 1.0, one)
        one.step(sgd)
        one.update()
        assert one.state_dict()["scale"].item() == 32.0
    with pytest.raises(RuntimeError, match="the state is empty"):
        other.load_state_dict({})
    with pytest.raises(ValueError, match="incr_count is missing"):
        state = scaler.state_dict()
        del state["incr_count"]
        other.load_state_dict(state)


def test_settings_can_be_read_and_changed():
    scaler = GradScaler()
    assert scaler.is_enable() and scaler.is_use_dynamic_loss_scaling()
    settings = {
        "init_loss_scaling": (65536.0, 4.0, 0.0),
        "incr_ratio": (2.0, 3.0, 1.0),
        "decr_ratio": (0.5, 0.1, 1.0),
        "incr_every_n_steps": (2000, 7, 0),
        "decr_every_n_nan_or_inf": (1, 3, 1.5),
    }
    for name, (initial, new, wrong) in settings.items():
        get, set_ = (getattr(scaler, f"{verb}_{name}") for verb in ("get", "set"))
        assert get() == initial
        set_(new)
        assert get() == new
        with pytest.raises(ValueError, match=f"{name} must be"):
            set_(wrong)
        with pytest.raises(ValueError, match=f"{name} must be"):
            GradScaler(**{name: wrong})


def test_calls_in_the_wrong_order_are_named():
    p = parameter(1.0)
    sgd = paddle.optimizer.SGD(0.5, [p])
    scaler = GradScaler()
    scaled(p, 1.0, scaler)
    scaler.unscale_(sgd)
    with pytest.raises(RuntimeError, match="unscale_ was called"):
        scaler.unscale_(sgd)
    scaler.step(sgd)
    with pytest.raises(RuntimeError, match="step was called since the last update"):
        scaler.step(sgd)
    with pytest.raises(TypeError, match="the loss must be a Tensor, but is a float"):
        scaler.scale(1.0)


def test_a_fleet_of_one_has_the_same_scaler():
    from paddle.distributed import fleet

    fleet.init(is_collective=True)
    p = parameter(1.0)
    sgd = fleet.distributed_optimizer(paddle.optimizer.SGD(0.5, [p]))
    scaler = fleet.distributed_scaler(GradScaler(init_loss_scaling=4.0))
    scaled(p, 1.0, scaler)
    scaler.step(sgd)
    scaler.update()
    np.testing.assert_array_equal(p.numpy(), [0.5])
    with pytest.raises(TypeError, match="takes a paddle.amp.GradScaler"):
        fleet.distributed_scaler(3)
