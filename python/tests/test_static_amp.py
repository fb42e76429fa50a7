# SPDX-License-Identifier: Apache-2.0
"""Programs in mixed precision: against torch's autocast, and against float32."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from conftest import DEVICE
from paddle import static
from paddle.static import amp
from static_check import (
    drawn,
    fresh_programs,  # noqa: F401
    op_types,
    run,
    start,
    value_of,
)

pytestmark = pytest.mark.usefixtures("fresh_programs")

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
# For numbers near 1: some units in the last place of eleven and of eight bits.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}


def weight(*shape, seed):
    value = drawn(*shape, seed=seed) / np.float32(shape[0] ** 0.5)
    return value, paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(value))


def two_layers():
    """tanh(x w + b) v, its mean square, and the values of w, b and v."""
    x = static.data("x", [None, 6])
    values, attrs = zip(weight(6, 8, seed=1), weight(8, seed=2), weight(8, 3, seed=3))
    hidden = static.nn.fc(
        x, 8, activation="tanh", weight_attr=attrs[0], bias_attr=attrs[1]
    )
    out = static.nn.fc(hidden, 3, weight_attr=attrs[2], bias_attr=False)
    return out, paddle.mean(paddle.square(out)), values


def train(optimizer, steps=6, **settings):
    """Losses and last parameters of a net of two layers."""
    with (
        paddle.utils.unique_name.guard(),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        _, loss, _ = two_layers()
        if settings:
            optimizer = amp.decorate(optimizer, **settings)
        optimizer.minimize(loss)
        start()
        losses = [
            run([loss], {"x": drawn(16, 6, seed=10 + i)})[0].item()
            for i in range(steps)
        ]
        names = [p.name for p in static.default_main_program().all_parameters()]
        return np.array(losses), [value_of(name) for name in names]


# ---- values


@pytest.mark.parametrize("dtype", TYPES)
def test_a_step_computes_what_torchs_autocast_does(dtype):
    out, loss, values = two_layers()
    optimizer = amp.decorate(
        paddle.optimizer.SGD(0.5), dtype=dtype, init_loss_scaling=1024.0
    )
    _, pairs = optimizer.minimize(loss)
    start()
    x = drawn(16, 6)
    results = run([out, loss, *(g for _, g in pairs)], {"x": x})

    w, b, v = (torch.tensor(value, requires_grad=True) for value in values)
    with torch.autocast("cpu", TYPES[dtype]):
        hidden = torch.tanh(torch.tensor(x) @ w + b.to(TYPES[dtype]))
        expected = hidden @ v
    assert expected.dtype == TYPES[dtype]
    mean = expected.float().square().mean()
    mean.backward()
    if dtype == "bfloat16":  # numpy has no bfloat16: its bits
        assert results[0].dtype == np.uint16
        bits = results[0].astype(np.uint32) << 16
        results[0] = bits.view(np.float32)
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(
        results[0], expected.detach().float().numpy(), tolerance, tolerance
    )
    assert results[1].dtype == np.float32
    np.testing.assert_allclose(results[1].item(), mean.item(), tolerance)
    for got, parameter in zip(results[2:], (w, b, v)):
        assert got.dtype == np.float32
        np.testing.assert_allclose(
            got, parameter.grad.numpy(), tolerance, tolerance / 10
        )
    for (parameter, _), before, gradient in zip(pairs, values, results[2:]):
        np.testing.assert_allclose(
            value_of(parameter.name), before - 0.5 * gradient, 1e-6, 1e-7
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"init_loss_scaling": 1024.0},
        {"use_bf16": True},
        {"use_pure_fp16": True, "use_fp16_guard": False},
        {"level": "O2", "init_loss_scaling": 1024.0},
        {"level": "O2", "init_loss_scaling": 1024.0, "use_promote": True},
        {"level": "OD", "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_training_stays_close_to_float32(settings):
    losses, parameters = train(paddle.optimizer.Adam(0.02))
    short_losses, short_parameters = train(paddle.optimizer.Adam(0.02), **settings)
    bfloat = settings.get("use_bf16") or settings.get("dtype") == "bfloat16"
    tolerance = TOLERANCE["bfloat16" if bfloat else "float16"]
    np.testing.assert_allclose(short_losses, losses, tolerance)
    for got, expected in zip(short_parameters, parameters):
        assert got.dtype == np.float32
        # Where a gradient is near zero, Adam takes its sign.
        assert np.abs(got - expected).mean() < tolerance


def test_level_o0_changes_nothing():
    losses, parameters = train(paddle.optimizer.Adam(0.02))
    same_losses, same_parameters = train(paddle.optimizer.Adam(0.02), level="O0")
    np.testing.assert_array_equal(same_losses, losses)
    for got, expected in zip(same_parameters, parameters):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_convolutional_net_trains(dtype, level):
    image = static.data("image", [None, 3, 12, 12])
    label = static.data("label", [None, 1], "int64")
    net = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 3, padding=1),
        paddle.nn.BatchNorm2D(8),
        paddle.nn.ReLU(),
        paddle.nn.MaxPool2D(2),
        paddle.nn.Dropout(0.1),
        paddle.nn.Conv2D(8, 8, 3, stride=2),
        paddle.nn.LeakyReLU(),
        paddle.nn.AdaptiveAvgPool2D(1),
        paddle.nn.Flatten(),
        paddle.nn.Linear(8, 4),
    )
    loss = F.cross_entropy(net(image), label)
    optimizer = amp.decorate(
        paddle.optimizer.Momentum(0.05),
        level=level,
        dtype=dtype,
        init_loss_scaling=128.0,
    )
    optimizer.minimize(loss)
    types = {op.type for op in static.default_main_program().global_block().ops}
    assert {"cast", "conv2d_grad"} <= types
    start()
    images = drawn(32, 3, 12, 12)
    labels = np.arange(32).reshape(32, 1) % 4
    images += labels.reshape(32, 1, 1, 1).astype("float32")
    program = static.default_main_program()
    last = optimizer.get_scaled_loss()
    losses = [
        run([last], {"image": images, "label": labels}, program)[0].item()
        for _ in range(40)
    ]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("dtype", TYPES)
def test_the_device_of_the_tests_trains_as_the_cpu_does(dtype):
    place = paddle.CUDAPlace(0) if DEVICE.startswith("gpu") else paddle.CPUPlace()
    _, loss, _ = two_layers()
    optimizer = amp.decorate(
        paddle.optimizer.Adam(0.02), dtype=dtype, init_loss_scaling=64.0
    )
    optimizer.minimize(loss)
    results = []
    for where in (paddle.CPUPlace(), place):
        with static.scope_guard(static.Scope()):
            executor = static.Executor(where)
            executor.run(static.default_startup_program())
            losses = []
            for step in range(7):
                x = drawn(16, 6, seed=step)
                x[0, 0] = np.nan if dtype == "float16" and step == 2 else x[0, 0]
                fetched = executor.run(feed={"x": x}, fetch_list=[loss])
                losses.append(fetched[0].item())
            results.append(losses)
    assert np.isfinite(results[0][3:]).all()
    np.testing.assert_allclose(results[1], results[0], TOLERANCE[dtype])


# ---- scaling


def nan_batch():
    x = drawn(16, 6)
    x[3, 2] = np.nan
    return x


OPTIMIZERS = [
    lambda: paddle.optimizer.SGD(0.1),
    lambda: paddle.optimizer.Momentum(0.1, 0.9),
    lambda: paddle.optimizer.Adam(0.1),
    lambda: paddle.optimizer.AdamW(0.1, weight_decay=0.1),
    lambda: paddle.optimizer.Adagrad(0.1),
    lambda: paddle.optimizer.Adamax(0.1),
    lambda: paddle.optimizer.Adadelta(0.1),
    lambda: paddle.optimizer.RMSProp(0.1, momentum=0.9),
    lambda: paddle.optimizer.Lamb(0.1),
    lambda: paddle.fluid.optimizer.FtrlOptimizer(0.1),
    lambda: paddle.fluid.optimizer.LarsMomentumOptimizer(0.1, 0.9),
    lambda: paddle.fluid.optimizer.DecayedAdagradOptimizer(0.1),
    lambda: paddle.fluid.optimizer.GradientMergeOptimizer(
        paddle.optimizer.Momentum(0.1, 0.9), 2
    ),
]


@pytest.mark.parametrize("make", OPTIMIZERS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("bad_at", [0, 1, 4])
def test_a_bad_step_changes_nothing_but_the_scaling(make, bad_at):
    # A plain run comes first, then runs by a plan: each has a bad step.
    _, loss, _ = two_layers()
    optimizer = amp.decorate(
        make(), init_loss_scaling=64.0, decr_every_n_nan_or_inf=1, decr_ratio=0.5
    )
    optimizer.minimize(loss)
    start()
    program = static.default_main_program()
    scaling = optimizer.get_loss_scaling()
    kept = [
        v.name
        for v in program.list_vars()
        if v.persistable and not v.name.startswith(("loss_scaling", "num_"))
    ]
    assert len(kept) >= 4
    for step in range(6):
        before = {name: value_of(name) for name in kept}
        batch = nan_batch() if step == bad_at else drawn(16, 6, seed=step)
        run([loss], {"x": batch})
        changed = [n for n in kept if not np.array_equal(before[n], value_of(n))]
        if step == bad_at:
            assert changed == []
        else:
            assert changed
    assert all(np.isfinite(value_of(name)).all() for name in kept)
    assert value_of(scaling.name).tolist() == [32.0]


def test_the_scaling_follows_good_and_bad_steps():
    _, loss, _ = two_layers()
    optimizer = amp.decorate(
        paddle.optimizer.SGD(0.01),
        init_loss_scaling=8.0,
        incr_every_n_steps=3,
        decr_every_n_nan_or_inf=2,
        incr_ratio=4.0,
        decr_ratio=0.25,
    )
    optimizer.minimize(loss)
    start()
    seen = []
    for good in [1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]:
        x = drawn(16, 6) if good else nan_batch()
        seen.append(run([optimizer.get_loss_scaling()], {"x": x})[0].item())
    # Three good ones on end, and two bad ones on end; never below 1.
    expected = [8, 8, 32, 32, 32, 32, 32, 32, 128, 128, 32, 32, 32]
    assert seen == expected + [32, 8, 8, 2, 2, 1]


def test_a_gradient_that_overflows_in_float16_makes_the_scaling_fall():
    _, loss, _ = two_layers()
    optimizer = amp.decorate(
        paddle.optimizer.SGD(0.01),
        init_loss_scaling=2.0**24,
        decr_ratio=0.5,
        decr_every_n_nan_or_inf=1,
    )
    optimizer.minimize(loss)
    start()
    x = drawn(16, 6)
    values = [
        run([optimizer.get_loss_scaling()], {"x": x})[0].item() for _ in range(20)
    ]
    assert values[0] == 2.0**23
    assert values[-1] == values[-2] < 2.0**21  # found one that fits
    assert np.isfinite(run([loss], {"x": x})[0])


def test_a_fixed_scaling_stays_and_skips():
    _, loss, _ = two_layers()
    optimizer = amp.decorate(
        paddle.optimizer.SGD(0.01),
        init_loss_scaling=16.0,
        use_dynamic_loss_scaling=False,
    )
    optimizer.minimize(loss)
    assert "update_loss_scaling" not in op_types()
    start()
    name = static.default_main_program().all_parameters()[0].name
    before = value_of(name)
    scaled, plain = run([optimizer.get_scaled_loss(), loss], {"x": nan_batch()})
    np.testing.assert_array_equal(value_of(name), before)
    scaled, plain = run([optimizer.get_scaled_loss(), loss], {"x": drawn(16, 6)})
    assert scaled.item() == 16.0 * plain.item()
    assert not np.array_equal(value_of(name), before)
    assert value_of(optimizer.get_loss_scaling().name).tolist() == [16.0]


def test_clipping_sees_gradients_without_the_scaling():
    clip = paddle.nn.ClipGradByGlobalNorm(0.05)
    losses, parameters = train(paddle.optimizer.SGD(0.5, grad_clip=clip))
    short = train(paddle.optimizer.SGD(0.5, grad_clip=clip), init_loss_scaling=4096.0)
    np.testing.assert_allclose(short[0], losses, TOLERANCE["float16"])
    for got, expected in zip(short[1], parameters):
        np.testing.assert_allclose(got, expected, atol=2e-3)


# ---- the ops


def numpy_scaling(found, scaling, good, bad, every, ratio):
    if found:
        good, bad = 0, bad + 1
        if bad == every[1]:
            scaling, bad = max(1.0, scaling * ratio[1]), 0
    else:
        good, bad = good + 1, 0
        if good == every[0]:
            larger = scaling * ratio[0]
            scaling, good = (larger if larger < 3.4e38 else scaling), 0
    return [scaling, good, bad]


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("scaling", [1.0, 8.0, 3e38])
@pytest.mark.parametrize(("good", "bad"), [(0, 0), (2, 0), (0, 1)])
def test_update_loss_scaling(found, scaling, good, bad):
    paddle.disable_static()
    x = [drawn(2, 3), drawn(4, seed=1)]
    *outs, new, new_good, new_bad = paddle._ops.update_loss_scaling(
        [paddle.to_tensor(array) for array in x],
        paddle.to_tensor([found]),
        paddle.to_tensor([scaling], "float32"),
        paddle.to_tensor([good], "int32"),
        paddle.to_tensor([bad], "int32"),
        incr_every_n_steps=3,
        decr_every_n_nan_or_inf=2,
        incr_ratio=2.0,
        decr_ratio=0.5,
    )
    outs = outs[0] if isinstance(outs[0], list) else outs
    for got, given in zip(outs, x, strict=True):
        np.testing.assert_array_equal(got.numpy(), given * (not found))
    got = [new.item(), new_good.item(), new_bad.item()]
    expected = numpy_scaling(found, scaling, good, bad, (3, 2), (2.0, 0.5))
    np.testing.assert_allclose(got, expected, 1e-6)


def test_update_loss_scaling_can_be_stopped():
    paddle.disable_static()
    arguments = [
        [],
        paddle.to_tensor([True]),
        paddle.to_tensor([8.0]),
        paddle.to_tensor([1], "int32"),
        paddle.to_tensor([1], "int32"),
    ]
    settings = dict(
        incr_every_n_steps=2, decr_every_n_nan_or_inf=1, incr_ratio=2.0, decr_ratio=0.5
    )
    for stop in ([None, *settings.values(), True], [paddle.to_tensor([True])]):
        more = {} if len(stop) > 1 else settings
        *_, new, good, bad = paddle._ops.update_loss_scaling(*arguments, *stop, **more)
        assert [new.item(), good.item(), bad.item()] == [8.0, 1, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("wrong", [None, np.inf, -np.inf, np.nan])
def test_check_finite_and_unscale(dtype, wrong):
    paddle.disable_static()
    arrays = [drawn(3, 5), drawn(7, seed=1), drawn(2, 2, seed=2)]
    if wrong is not None:
        arrays[1][6] = wrong
    tensors = [paddle.to_tensor(array).astype(dtype) for array in arrays]
    *outs, found = paddle._ops.check_finite_and_unscale(
        tensors, paddle.to_tensor([4.0])
    )
    outs = outs[0] if isinstance(outs[0], list) else outs
    assert found.shape == [1]
    assert found.item() == (wrong is not None)
    for got, given in zip(outs, tensors, strict=True):
        assert got.dtype == given.dtype
        expected = given.astype("float64").numpy() / 4
        np.testing.assert_array_equal(got.astype("float64").numpy(), expected)


def test_large_numbers_are_finite():
    paddle.disable_static()
    x = np.full(1000, 3e38, "float32")
    *_, found = paddle._ops.check_finite_and_unscale(
        [paddle.to_tensor(x)], paddle.to_tensor([1.0])
    )
    assert not found.item()


def test_the_ops_say_what_is_wrong_with_their_arguments():
    paddle.disable_static()
    one = paddle.to_tensor([1.0])
    with pytest.raises(ValueError, match="X must be floating point, not int64"):
        paddle._ops.check_finite_and_unscale([paddle.to_tensor([1])], one)
    with pytest.raises(ValueError, match="Scale must be one float32"):
        paddle._ops.check_finite_and_unscale([one], paddle.to_tensor([1.0, 2.0]))


# ---- lists and scopes


def casts():
    """What is cast to float16 in the main program."""
    block = static.default_main_program().global_block()
    return [
        op.input("X")[0]
        for op in block.ops
        if op.type == "cast" and op.attr("out_dtype") == 4
    ]


def test_lists_move_operations():
    usual = amp.AutoMixedPrecisionLists()
    assert "matmul_v2" in usual.white_list
    assert "softmax" in usual.black_list
    assert "tanh" in usual.gray_list
    moved = amp.CustomOpLists({"softmax", "tanh"}, ["matmul_v2"], {"fc_0.w_0"})
    assert {"softmax", "tanh"} <= moved.white_list
    assert "matmul_v2" in moved.black_list & moved.unsupported_list
    assert "matmul_v2" not in moved.white_list
    assert "tanh" not in moved.gray_list
    assert moved.black_varnames == {"fc_0.w_0"}
    # Those of the next training are the usual ones again.
    assert amp.AutoMixedPrecisionLists().white_list == usual.white_list


def test_an_op_in_both_lists_is_an_error():
    with pytest.raises(
        ValueError, match="mul in custom_white_list and in custom_black"
    ):
        amp.AutoMixedPrecisionLists({"mul", "tanh"}, {"mul"})
    with pytest.raises(TypeError, match="custom_white_list must be a set of names"):
        amp.AutoMixedPrecisionLists("mul")
    with pytest.raises(ValueError, match="dtype must be 'float16' or 'bfloat16'"):
        amp.AutoMixedPrecisionLists(dtype="float32")


def test_custom_lists_decide():
    _, loss, _ = two_layers()
    lists = amp.AutoMixedPrecisionLists(custom_black_list={"mul"})
    amp.decorate(paddle.optimizer.SGD(0.1), lists).minimize(loss)
    assert casts() == []


def test_black_variables_decide():
    _, loss, _ = two_layers()
    lists = amp.AutoMixedPrecisionLists(custom_black_varnames={"fc_1.w_0"})
    amp.decorate(paddle.optimizer.SGD(0.1), lists).minimize(loss)
    assert casts() == ["x", "fc_0.w_0", "fc_0.b_0"]


def test_the_guard_says_what_may_be_short():
    x = static.data("x", [None, 6])
    hidden = static.nn.fc(x, 8)
    with amp.fp16_guard():
        hidden = static.nn.fc(hidden, 8, activation="relu")
    loss = paddle.mean(static.nn.fc(hidden, 1))
    optimizer = amp.decorate(
        paddle.optimizer.SGD(0.1), init_loss_scaling=8.0, use_pure_fp16=True
    )
    optimizer.minimize(loss)
    assert casts() == ["fc_0.tmp_1", "fc_1.w_0", "fc_1.b_0"]
    start()
    optimizer.amp_init(paddle.CPUPlace(), static.global_scope())
    assert np.isfinite(run([loss], {"x": drawn(4, 6)})[0])


# ---- programs for evaluation, and files


def test_a_clone_for_evaluation_computes_the_same():
    out, loss, _ = two_layers()
    program = static.default_main_program()
    before = program.clone(for_test=True)
    optimizer = amp.decorate(paddle.optimizer.SGD(0.1), init_loss_scaling=8.0)
    optimizer.minimize(loss)
    after = program.clone(for_test=True)
    assert "check_finite_and_unscale" not in op_types(after)
    start()
    optimizer.amp_init(paddle.CPUPlace(), test_program=before, use_fp16_test=True)
    assert op_types(before) == op_types(after)[: len(op_types(before))]
    x = drawn(5, 6)
    kept = value_of("fc_0.w_0")
    values = [run([out.name], {"x": x}, p)[0] for p in (before, after)]
    assert values[0].dtype == np.float16
    np.testing.assert_array_equal(*values)
    np.testing.assert_array_equal(value_of("fc_0.w_0"), kept)


def test_training_goes_on_from_a_file(tmp_path):
    _, loss, _ = two_layers()
    optimizer = amp.decorate(
        paddle.optimizer.Adam(0.05), init_loss_scaling=8.0, incr_every_n_steps=2
    )
    optimizer.minimize(loss)
    start()
    program = static.default_main_program()
    wanted = [loss, optimizer.get_loss_scaling()]
    for i in range(3):
        run(wanted, {"x": drawn(8, 6, seed=i)})
    static.save(program, str(tmp_path / "model"))
    ahead = [run(wanted, {"x": drawn(8, 6, seed=i)}) for i in range(3, 7)]
    assert ahead[-1][1].item() == 64.0
    start()
    assert value_of(wanted[1].name).item() == 8.0
    static.load(program, str(tmp_path / "model"))
    assert value_of(wanted[1].name).item() == 16.0
    again = [run(wanted, {"x": drawn(8, 6, seed=i)}) for i in range(3, 7)]
    np.testing.assert_array_equal(again, ahead)
    # The program itself, by its bytes.
    copy = static.Program.parse_from_string(program.desc.serialize_to_string())
    static.load(program, str(tmp_path / "model"))
    names = [v.name for v in wanted]
    third = [run(names, {"x": drawn(8, 6, seed=i)}, copy) for i in range(3, 7)]
    # Its first run is not yet by a plan, and adds in another order.
    np.testing.assert_allclose(third, ahead, TOLERANCE["float16"])


def test_a_model_for_inference(tmp_path):
    out, loss, _ = two_layers()
    amp.decorate(paddle.optimizer.SGD(0.1)).minimize(loss)
    start()
    x = drawn(5, 6)
    program = static.default_main_program()
    expected = run([out], {"x": x}, program.clone(for_test=True))[0]
    executor = static.Executor(paddle.CPUPlace())
    feed = program.global_block().var("x")
    static.save_inference_model(str(tmp_path / "m"), [feed], [out], executor)
    with static.scope_guard(static.Scope()):
        loaded, names, fetch = static.load_inference_model(
            str(tmp_path / "m"), executor
        )
        assert {"cast", "mul"} <= set(op_types(loaded))
        got = executor.run(loaded, feed={names[0]: x}, fetch_list=fetch)[0]
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_model_and_its_parameters_become_short(dtype):
    x = static.data("x", [None, 6])
    net = paddle.nn.Sequential(
        paddle.nn.Linear(6, 8), paddle.nn.BatchNorm1D(8), paddle.nn.Linear(8, 3)
    )
    net.eval()
    out = F.softmax(net(x))
    start()
    value = drawn(5, 6)
    expected = run([out], {"x": value})[0]
    program = static.default_main_program()
    names = amp.cast_model_to_fp16(program, use_fp16_guard=False, dest_type=dtype)
    assert names == {f"linear_{i}.{p}_0" for i in (0, 1) for p in "wb"}
    scope = static.global_scope()
    amp.cast_parameters_to_fp16(paddle.CPUPlace(), program, scope, names, dtype)
    for parameter in program.all_parameters():
        short = parameter.name in names
        assert parameter.dtype == getattr(paddle, dtype if short else "float32")
        kept = scope.find_var(parameter.name).get_tensor()._dtype()
        assert kept == parameter.dtype
    as_float = paddle.cast(program.global_block().var(out.name), "float32")
    got = run([as_float], {"x": value})[0]
    np.testing.assert_allclose(got, expected, atol=TOLERANCE[dtype])


def test_parameters_without_values_cannot_be_cast():
    two_layers()
    program = static.default_main_program()
    amp.cast_model_to_fp16(program, use_fp16_guard=False)
    with pytest.raises(
        RuntimeError, match=r"fc_0.w_0 has no value yet: run the startup"
    ):
        amp.cast_parameters_to_fp16(paddle.CPUPlace(), program)


# ---- what it goes together with


def test_recompute_and_mixed_precision_go_together():
    def minimize(loss, checkpoints):
        rule = paddle.fluid.optimizer.RecomputeOptimizer(paddle.optimizer.Adam(0.02))
        rule._set_checkpoints(checkpoints)
        optimizer = amp.decorate(rule, init_loss_scaling=64.0)
        optimizer.minimize(loss)
        start()
        values = [run([loss], {"x": drawn(8, 6, seed=i)})[0] for i in range(5)]
        before = value_of("fc_0.w_0")
        run([loss], {"x": nan_batch()})
        np.testing.assert_array_equal(value_of("fc_0.w_0"), before)
        return values, op_types()

    results = []
    for checkpoints in ([], ["fc_2.tmp_1"]):
        with (
            paddle.utils.unique_name.guard(),
            static.program_guard(static.Program(), static.Program()),
            static.scope_guard(static.Scope()),
        ):
            x = static.data("x", [None, 6])
            hidden = x
            for i in range(4):
                _, attr = weight(6 if i == 0 else 8, 8, seed=i)
                hidden = static.nn.fc(hidden, 8, activation="tanh", weight_attr=attr)
            loss = paddle.mean(paddle.square(hidden))
            results.append(minimize(loss, checkpoints))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert len(results[1][1]) > len(results[0][1])


def test_rows_of_an_embedding_are_unscaled_and_skipped():
    ids = static.data("ids", [None, 1], "int64")
    x = static.data("x", [None, 6])
    rows = paddle.static.nn.embedding(ids, [20, 6], is_sparse=True)
    product = paddle.matmul(paddle.reshape(rows, [-1, 6]), x, transpose_y=True)
    loss = paddle.mean(product)
    optimizer = amp.decorate(
        paddle.optimizer.SGD(1.0), init_loss_scaling=256.0, decr_every_n_nan_or_inf=1
    )
    optimizer.minimize(loss)
    start()
    name = static.default_main_program().all_parameters()[0].name
    before = value_of(name)
    batch, chosen = drawn(4, 6), np.array([[3], [7], [3]])
    run([loss], {"x": batch, "ids": chosen})
    expected = before.copy()
    np.add.at(expected, chosen[:, 0], -batch.mean(0) / 3)
    np.testing.assert_allclose(value_of(name), expected, atol=2e-3)
    kept = value_of(name)
    run([loss], {"x": batch * np.nan, "ids": chosen})
    np.testing.assert_array_equal(value_of(name), kept)
    assert value_of(optimizer.get_loss_scaling().name).item() == pytest.approx(204.8)


def test_branches_read_float32():
    x = static.data("x", [None, 6])
    hidden = static.nn.fc(x, 8, activation="tanh")
    positive = paddle.mean(paddle.cast(hidden, "float32")) > 0
    chosen = static.nn.cond(positive, lambda: hidden * 2.0, lambda: hidden - 1.0)
    loss = paddle.mean(chosen)
    optimizer = amp.decorate(paddle.optimizer.SGD(0.1), init_loss_scaling=8.0)
    optimizer.minimize(loss)
    assert chosen.dtype == paddle.float32
    start()
    name = static.default_main_program().all_parameters()[0].name
    before = value_of(name)
    batch = drawn(4, 6)
    w, b = before, value_of("fc_0.b_0")
    value = np.tanh(batch @ w + b)
    expected = value.mean() * 2 if value.mean() > 0 else value.mean() - 1
    assert run([loss], {"x": batch})[0].item() == pytest.approx(expected, abs=2e-3)
    assert not np.array_equal(value_of(name), before)


def test_a_scheduled_rate_moves():
    _, loss, _ = two_layers()
    rate = paddle.optimizer.lr.StepDecay(0.5, step_size=1, gamma=0.5)
    optimizer = amp.decorate(paddle.optimizer.SGD(rate), init_loss_scaling=8.0)
    _, pairs = optimizer.minimize(loss)
    start()
    for expected in (0.5, 0.25):
        assert optimizer.get_lr() == expected
        before = value_of(pairs[0][0].name)
        gradient = run([pairs[0][1]], {"x": drawn(8, 6)})[0]
        moved = before - expected * gradient
        np.testing.assert_allclose(value_of(pairs[0][0].name), moved, 1e-5, 1e-6)
        rate.step()


# ---- by other names, and mistakes


def test_the_steps_of_minimize_by_themselves():
    _, loss, _ = two_layers()
    optimizer = amp.decorate(paddle.optimizer.SGD(0.1), init_loss_scaling=8.0)
    assert optimizer.get_scaled_loss() is None
    with pytest.raises(RuntimeError, match="get_loss_scaling comes after minimize"):
        optimizer.get_loss_scaling()
    with pytest.raises(RuntimeError, match="amp_init comes after minimize"):
        optimizer.amp_init(paddle.CPUPlace())
    pairs = optimizer.backward(loss)
    assert len(pairs) == 3
    assert optimizer.get_loss_scaling().shape == [1]
    made = optimizer.apply_optimize(loss, None, pairs)
    assert [op.type for op in made] == ["sgd"] * 3
    start()
    assert np.isfinite(run([loss], {"x": drawn(4, 6)})[0])


def test_bf16_names():
    bf16 = amp.bf16
    array = np.array([1.0, -2.5, 3.1415927], "float32")
    bits = torch.tensor(array[:2]).bfloat16().view(torch.int16).numpy()
    np.testing.assert_array_equal(
        bf16.convert_float_to_uint16(array)[:2], bits.view("uint16")
    )
    lists = bf16.AutoMixedPrecisionListsBF16({"softmax"}, {"mul"}, {"a"})
    assert "softmax" in lists.bf16_list
    assert "mul" in lists.fp32_list
    assert lists.fp32_varnames == {"a"}
    out, _, _ = two_layers()
    program = static.default_main_program()
    other = program.clone()
    bf16.rewrite_program_bf16(program)
    assert program.global_block().var(out.name).dtype == paddle.bfloat16
    start()
    names = bf16.cast_model_to_bf16(other, use_bf16_guard=False)
    assert names == {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0"}
    bf16.cast_parameters_to_bf16(paddle.CPUPlace(), other, to_bf16_var_names=names)
    x = drawn(4, 6)
    got = run([out.name], {"x": x}, other)[0]
    assert got.dtype == np.uint16


def test_decorate_bf16_trains():
    _, loss, _ = two_layers()
    with amp.bf16.bf16_guard():
        pass
    optimizer = amp.bf16.decorate_bf16(paddle.optimizer.SGD(0.5))
    optimizer.minimize(loss)
    assert "check_finite_and_unscale" not in op_types()  # its range is that of float32
    start()
    x = drawn(8, 6)
    losses = [run([loss], {"x": x})[0].item() for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]


def test_fluid_has_it_by_its_older_name():
    mixed = paddle.fluid.contrib.mixed_precision
    assert mixed.decorate is amp.decorate
    assert mixed.AutoMixedPrecisionLists is amp.AutoMixedPrecisionLists
    _, loss, _ = two_layers()
    rule = paddle.fluid.optimizer.AdamOptimizer(0.01)
    optimizer = mixed.decorate(rule, init_loss_scaling=128.0)
    optimizer.minimize(loss)
    start()
    assert np.isfinite(run([loss], {"x": drawn(4, 6)})[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": "O3"}, "level must be O0, OD, O1 or O2, but is 'O3'"),
        ({"dtype": "float64"}, "dtype must be 'float16' or 'bfloat16', but is float64"),
        ({"init_loss_scaling": 0.0}, "init_loss_scaling must be positive"),
        ({"incr_every_n_steps": 0}, "incr_every_n_steps must be a whole number"),
        ({"decr_every_n_nan_or_inf": 1.5}, "decr_every_n_nan_or_inf must be a whole"),
        ({"incr_ratio": 1.0}, "incr_ratio must be above 1"),
        ({"decr_ratio": 1.0}, "decr_ratio must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        amp.decorate(paddle.optimizer.SGD(0.1), **settings)


def test_wrong_uses_are_named():
    with pytest.raises(TypeError, match="optimizer must be an optimizer, but is a str"):
        amp.decorate("sgd")
    with pytest.raises(TypeError, match="unexpected keyword argument 'scaling'"):
        amp.decorate(paddle.optimizer.SGD(0.1), scaling=3.0)
    with pytest.warns(UserWarning, match="parameters are float32 here"):
        amp.decorate(paddle.optimizer.SGD(0.1), level="O2", master_weight=False)
    _, loss, _ = two_layers()
    static.append_backward(loss)
    with pytest.raises(RuntimeError, match="has its backward already"):
        amp.decorate(paddle.optimizer.SGD(0.1)).minimize(loss)
    paddle.disable_static()
    with pytest.raises(TypeError, match="eager training has paddle.amp"):
        amp.decorate(paddle.optimizer.SGD(0.1)).minimize(paddle.to_tensor([1.0]))


# ---- by a strategy


def fleet_minimize(loss, optimizer, **settings):
    from paddle.distributed import fleet

    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    return fleet


def test_a_strategy_asks_for_it():
    out, loss, _ = two_layers()
    fleet = fleet_minimize(
        loss,
        paddle.optimizer.Adam(0.01),
        amp=True,
        amp_configs={
            "init_loss_scaling": 32.0,
            "decr_every_n_nan_or_inf": 1,
            "decr_ratio": 0.5,
            "custom_black_varnames": ["fc_1.w_0"],
        },
    )
    assert fleet._get_applied_meta_list() == ["AMPOptimizer"]
    assert casts() == ["x", "fc_0.w_0", "fc_0.b_0"]
    start()
    fleet.amp_init(paddle.CPUPlace(), static.global_scope())
    before = value_of("fc_0.w_0")
    run([out], {"x": nan_batch()})
    np.testing.assert_array_equal(value_of("fc_0.w_0"), before)
    assert value_of("loss_scaling_0").tolist() == [16.0]
    run([out], {"x": drawn(8, 6)})
    assert not np.array_equal(value_of("fc_0.w_0"), before)
    assert fleet.get_lr() == 0.01


def test_a_strategy_asks_for_pure_bfloat16():
    out, loss, _ = two_layers()
    fleet_minimize(
        loss,
        paddle.optimizer.SGD(0.1),
        amp=True,
        amp_configs={"use_pure_bf16": True, "use_fp16_guard": False},
    )
    assert out.dtype == paddle.bfloat16
    assert "check_finite_and_unscale" not in op_types()


def test_a_strategy_asks_for_checkpoints():
    _, loss, _ = two_layers()
    fleet = fleet_minimize(
        loss,
        paddle.optimizer.Momentum(0.1),
        amp=True,
        recompute=True,
        recompute_configs={"checkpoints": ["fc_1.tmp_0"]},
        lars=True,
    )
    applied = ["LarsOptimizer", "RecomputeOptimizer", "AMPOptimizer"]
    assert fleet._get_applied_meta_list() == applied
    block = static.default_main_program().global_block()
    assert any(name.endswith("@AGAIN") for name in block.vars)
    assert op_types().count("lars_momentum") == 3
    start()
    assert np.isfinite(run([loss], {"x": drawn(8, 6)})[0])


def test_a_second_program_of_a_fleet_is_scaled_once():
    _, loss, _ = two_layers()
    fleet = fleet_minimize(loss, paddle.optimizer.SGD(0.1), amp=True)
    with static.program_guard(static.Program(), static.Program()):
        _, loss, _ = two_layers()
        fleet.minimize(loss)
        assert op_types().count("check_finite_and_unscale") == 1
        assert fleet._get_applied_meta_list() == ["AMPOptimizer"]
        start()
        assert np.isfinite(run([loss], {"x": drawn(8, 6)})[0])


def test_recompute_without_checkpoints_is_told():
    _, loss, _ = two_layers()
    with pytest.warns(UserWarning, match="without recompute_configs"):
        fleet = fleet_minimize(loss, paddle.optimizer.SGD(0.1), recompute=True)
    assert fleet._get_applied_meta_list() == []


def test_amp_init_of_a_fleet_needs_mixed_precision():
    _, loss, _ = two_layers()
    fleet = fleet_minimize(loss, paddle.optimizer.SGD(0.1))
    with pytest.raises(RuntimeError, match="does not train in mixed precision"):
        fleet.amp_init(paddle.CPUPlace())


def test_the_older_fleet_asks_for_it():
    from paddle.fluid.incubate.fleet.base import role_maker
    from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    _, loss, _ = two_layers()
    strategy = DistributedStrategy()
    strategy.use_amp = True
    strategy.amp_loss_scaling = 64
    strategy.forward_recompute = True
    strategy.recompute_checkpoints = [loss.block.var("fc_1.tmp_0")]
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
    optimizer.minimize(loss)
    start()
    assert value_of("loss_scaling_0").tolist() == [64.0]
    assert any(n.endswith("@AGAIN") for n in loss.block.vars)


def test_servers_train_in_bfloat16_but_not_with_scaling():
    from paddle.distributed.fleet.base import program_training

    sgd = paddle.optimizer.SGD(0.1)
    with pytest.raises(NotImplementedError, match="jobs with servers do not scale"):
        program_training.check_served(amp.decorate(sgd))
    program_training.check_served(amp.decorate(sgd, use_bf16=True))
    program_training.check_served(sgd)
