# SPDX-License-Identifier: Apache-2.0
"""Models on disk: those of real Paddle run here, ours come back, damage is noticed."""

import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import inference, static
from paddle.distributed import fleet
from paddle.framework import state_file
from paddle.framework.io import DataLossError
from paddle.static import InputSpec

PEERS = pathlib.Path(__file__).parent / "data" / "saved_models"
NEW, OLD = PEERS / "paddle_2_6", PEERS / "paddle_1_8"


@pytest.fixture
def static_mode():
    paddle.enable_static()
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        paddle.utils.unique_name.guard(),
    ):
        yield
    paddle.disable_static()


@pytest.fixture
def exe():
    return static.Executor(paddle.CPUPlace())


def examples(path):
    """The inputs by name, and the outputs that Paddle computed."""
    with np.load(str(path) + ".npz") as arrays:
        arrays = dict(arrays)
    outputs = [arrays.pop(f"output_{i}") for i in range(9) if f"output_{i}" in arrays]
    return arrays, outputs


def check(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-5)


# ---- models of real Paddle


@pytest.mark.parametrize("name", ["mlp", "cnn", "embedding", "traced"])
def test_models_of_paddle_2_6(static_mode, exe, name):
    inputs, outputs = examples(NEW / name)
    program, feeds, fetches = static.load_inference_model(str(NEW / name), exe)
    assert set(feeds) == set(inputs)
    check(exe.run(program, feed=inputs, fetch_list=fetches), outputs)


@pytest.mark.parametrize("name", ["mlp", "cnn", "embedding"])
def test_models_of_paddle_1_8(static_mode, exe, name):
    inputs, outputs = examples(OLD / name)
    program, feeds, fetches = fluid.io.load_inference_model(str(OLD / name), exe)
    assert set(feeds) == set(inputs)
    check(exe.run(program, feed=inputs, fetch_list=fetches), outputs)
    program, feeds, fetches = fluid.io.load_inference_model(
        str(OLD / f"{name}_combined"), exe, "model", "params"
    )
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(
            str(OLD / f"{name}_combined"),
            exe,
            model_filename="model",
            params_filename="params",
        )
        check(exe.run(program, feed=inputs, fetch_list=fetches), outputs)


@pytest.mark.parametrize("combined", [False, True])
def test_sequences_of_paddle_1_8(static_mode, exe, combined):
    inputs, outputs = examples(OLD / "sequence")
    offsets = inputs.pop("words.lod")
    words = fluid.create_lod_tensor(
        inputs["words"], [np.diff(offsets).tolist()], fluid.CPUPlace()
    )
    files = ("model", "params") if combined else ()
    folder = OLD / ("sequence_combined" if combined else "sequence")
    program, feeds, fetches = fluid.io.load_inference_model(str(folder), exe, *files)
    assert feeds == ["words"]
    check(exe.run(program, feed={"words": words}, fetch_list=fetches), outputs)


def test_training_goes_on_where_paddle_2_6_stopped(static_mode, exe):
    with np.load(NEW / "training.npz") as arrays:
        wanted = dict(arrays)
    program = paddle.load(str(NEW / "training.pdmodel"))
    static.load(program, str(NEW / "training"), exe)
    feed = {"x": wanted["x"], "y": wanted["y"]}
    loss = [op for op in program.global_block().ops if op.type == "reduce_mean"]
    name = loss[0].output("Out")[0]
    losses = [exe.run(program, feed=feed, fetch_list=[name])[0] for _ in range(3)]
    np.testing.assert_allclose(
        np.ravel(losses), np.ravel(wanted["losses"]), rtol=1e-5, atol=1e-6
    )
    after = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
    np.testing.assert_allclose(after, wanted["after"], rtol=1e-5, atol=1e-6)


def test_a_layer_of_paddle_2_6(exe):
    inputs, outputs = examples(NEW / "traced")
    layer = paddle.jit.load(str(NEW / "traced"))
    check([layer(paddle.to_tensor(inputs["image"]))], outputs)
    assert "conv.weight" in layer.state_dict()
    assert layer._input_spec() == [InputSpec([-1, 1, 12, 12], "float32", "image")]


def test_a_predictor_for_every_layout():
    inputs, outputs = examples(OLD / "mlp")
    for config in (
        inference.Config(str(OLD / "mlp")),
        inference.Config(
            str(OLD / "mlp_combined" / "model"), str(OLD / "mlp_combined" / "params")
        ),
        inference.Config(str(NEW / "mlp")),
        inference.Config(str(NEW / "mlp.pdmodel"), str(NEW / "mlp.pdiparams")),
    ):
        config.disable_gpu()
        config.enable_memory_optim()
        predictor = inference.create_predictor(config)
        assert predictor.get_input_names() == ["x"]
        handle = predictor.get_input_handle("x")
        handle.reshape([5, 6])
        handle.copy_from_cpu(inputs["x"])
        assert predictor.run()
        names = predictor.get_output_names()
        got = [predictor.get_output_handle(name).copy_to_cpu() for name in names]
        expected = (
            outputs if "paddle_1_8" in config.summary() else examples(NEW / "mlp")[1]
        )
        check(got, expected)


# ---- ours


def net(size=3):
    x = static.data("x", [None, 4])
    label = static.data("label", [None, 1], "int64")
    hidden = static.nn.fc(x, 8, activation="tanh")
    y = paddle.nn.functional.softmax(static.nn.fc(hidden, size))
    loss = paddle.mean(paddle.nn.functional.cross_entropy(y, label))
    return x, label, y, loss


def started(exe):
    exe.run(static.default_startup_program())
    return np.random.RandomState(1).rand(6, 4).astype("float32")


def test_an_inference_model_comes_back(static_mode, exe, tmp_path):
    x, label, y, loss = net()
    paddle.optimizer.Adam(0.1).minimize(loss)
    array = started(exe)
    main = static.default_main_program().clone(for_test=True)
    wanted = exe.run(
        main, feed={"x": array, "label": np.zeros((6, 1), "int64")}, fetch_list=[y]
    )
    prefix = str(tmp_path / "deep" / "net")
    static.save_inference_model(prefix, [x], [y], exe)
    assert sorted(os.listdir(tmp_path / "deep")) == ["net.pdiparams", "net.pdmodel"]
    folder = str(tmp_path / "folder")
    assert fluid.io.save_inference_model(folder, ["x"], [y], exe) == [y.name]
    assert "fc_0.w_0" in os.listdir(folder) and "__model__" in os.listdir(folder)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(prefix, exe)
        assert feeds == ["x"] and [v.name for v in fetches] == [y.name]
        check(exe.run(program, feed={"x": array}, fetch_list=fetches), wanted)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
        check(exe.run(program, feed={"x": array}, fetch_list=fetches), wanted)
    # No gradients, no optimizer, no loss.
    types = {op.type for op in program.global_block().ops}
    assert not any(t.endswith("_grad") or t == "adam" for t in types)


def test_bytes_of_a_model(static_mode, exe, tmp_path):
    x, label, y, loss = net()
    array = started(exe)
    program = static.serialize_program([x], [y])
    params = static.serialize_persistables([x], [y], exe)
    wanted = exe.run(
        static.normalize_program(static.default_main_program(), [x], [y]),
        feed={"x": array},
        fetch_list=[y.name],
    )
    static.save_to_file(str(tmp_path / "a" / "p"), program)
    assert static.load_from_file(str(tmp_path / "a" / "p")) == program
    with static.scope_guard(static.Scope()):
        loaded = static.deserialize_program(program)
        static.deserialize_persistables(loaded, params, exe)
        check(exe.run(loaded, feed={"x": array}, fetch_list=[y.name]), wanted)
    with static.scope_guard(static.Scope()):
        loaded, feeds, fetches = static.load_inference_model(
            None, exe, model_filename=program, params_filename=params
        )
        check(exe.run(loaded, feed={"x": array}, fetch_list=fetches), wanted)
    again = static.Program.parse_from_string(loaded.desc.serialize_to_string())
    assert str(again) == str(loaded)


def test_a_program_in_training_comes_back(static_mode, exe, tmp_path):
    x, label, y, loss = net()
    paddle.optimizer.Adam(0.1).minimize(loss)
    array = started(exe)
    feed = {"x": array, "label": np.arange(6).reshape(6, 1) % 3}
    main = static.default_main_program()
    for _ in range(2):
        exe.run(main, feed=feed, fetch_list=[loss])
    path = str(tmp_path / "state" / "net")
    static.save(main, path)
    names = sorted(os.listdir(tmp_path / "state"))
    assert names == ["net.pdmodel", "net.pdopt", "net.pdparams"]
    wanted = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]

    static.load(main, path, exe)
    got = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
    np.testing.assert_array_equal(got, wanted)

    # Anybody's pickle reads the values.
    with open(path + ".pdparams", "rb") as file:
        arrays = pickle.load(file)
    assert sorted(arrays) == ["fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"]
    state = static.load_program_state(path)
    assert set(arrays) < set(state)
    np.testing.assert_array_equal(state["fc_0.w_0"], arrays["fc_0.w_0"])

    for name in state:
        static.global_scope().find_var(name).get_tensor().set(state[name] * 0)
    with pytest.warns(UserWarning, match="does not have other"):
        static.set_program_state(main, {**state, "other": arrays["fc_0.w_0"]})
    got = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
    np.testing.assert_array_equal(got, wanted)


def test_values_in_files(static_mode, exe, tmp_path):
    x, label, y, loss = net()
    paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    started(exe)
    main, scope = static.default_main_program(), static.global_scope()
    before = {
        v.name: np.array(scope.find_var(v.name).get_tensor())
        for v in main.list_vars()
        if v.persistable
    }
    params = {v.name for v in main.all_parameters()}
    assert params < set(before)

    def check_loading(loading, names):
        for name in before:
            scope.find_var(name).get_tensor().set(before[name] * 0 - 1)
        loading()
        for name in before:
            value = np.array(scope.find_var(name).get_tensor())
            wanted = before[name] if name in names else before[name] * 0 - 1
            np.testing.assert_array_equal(value, wanted, err_msg=name)

    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    fluid.io.save_persistables(exe, a, main)
    assert set(os.listdir(a)) == set(before)
    check_loading(lambda: fluid.io.load_persistables(exe, a, main), before)
    fluid.io.save_persistables(exe, b, main, "all")
    assert os.listdir(b) == ["all"]
    check_loading(lambda: fluid.io.load_persistables(exe, b, main, "all"), before)
    check_loading(lambda: static.load(main, a, exe), before)
    fluid.io.save_params(exe, str(tmp_path / "c"), main)
    assert set(os.listdir(tmp_path / "c")) == params
    check_loading(lambda: fluid.io.load_params(exe, str(tmp_path / "c"), main), params)
    some = [main.global_block().var("fc_0.w_0")]
    static.save_vars(exe, str(tmp_path / "d"), vars=some, filename="w")
    check_loading(
        lambda: static.load_vars(exe, str(tmp_path / "d"), vars=some, filename="w"),
        {"fc_0.w_0"},
    )
    check_loading(
        lambda: static.load_vars(
            exe, a, main, predicate=lambda v: v.name.endswith("b_0")
        ),
        {name for name in before if name.endswith("b_0")},
    )
    state = static.load_program_state(a)
    assert set(state) == set(before)
    state = static.load_program_state(
        b + "/all",
        main.all_parameters()
        + [v for v in main.list_vars() if v.persistable and v.name not in params],
    )
    np.testing.assert_array_equal(state["fc_0.w_0"], before["fc_0.w_0"])


def test_models_and_functions_come_back_as_they_go_to_paddle(tmp_path):
    """What tests/interop gives real Paddle to load, loaded here."""
    scripts = pathlib.Path(__file__).parents[2] / "tests" / "interop_peer"
    for script in ("save_ours.py", "load_ours.py"):
        run = subprocess.run(
            [sys.executable, scripts / script, tmp_path],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert "FAIL" not in run.stdout, run.stdout
    assert "ok function bicubic" in run.stdout


def test_fleet_saves_outside_of_a_job(static_mode, exe, tmp_path):
    fleet.init()
    x, label, y, loss = net()
    array = started(exe)
    main = static.default_main_program()
    folder, values = str(tmp_path / "model"), str(tmp_path / "values")
    fleet.save_inference_model(exe, folder, ["x"], [y], main)
    fleet.save_persistables(exe, values, main)
    persistables = {v.name for v in main.list_vars() if v.persistable}
    assert set(os.listdir(values)) == persistables
    wanted = exe.run(
        static.normalize_program(main, [x], [y]), {"x": array}, fetch_list=[y.name]
    )
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
        check(exe.run(program, feed={"x": array}, fetch_list=fetches), wanted)
    with pytest.raises(TypeError, match="executor must be an Executor"):
        fleet.save_persistables(None, values, main)
    compiled = static.CompiledProgram(main)
    with pytest.raises(TypeError, match="must be a Program"):
        fleet.save_persistables(exe, values, compiled)
    with pytest.raises(TypeError, match="must be a Program"):
        fleet.save_inference_model(exe, folder, ["x"], [y], compiled)


def test_wrong_arguments(static_mode, exe, tmp_path):
    x, label, y, loss = net()
    started(exe)
    path = str(tmp_path / "net")
    with pytest.raises(TypeError, match="executor must be an Executor"):
        static.save_inference_model(path, [x], [y], None)
    with pytest.raises(TypeError, match="feed_vars must be a list of Variables"):
        static.save_inference_model(path, ["x"], [y], exe)
    with pytest.raises(ValueError, match="names no file"):
        static.save_inference_model(str(tmp_path) + "/", [x], [y], exe)
    with pytest.raises(ValueError, match="the data x"):
        static.save_inference_model(path, [label], [y], exe)
    with pytest.raises(TypeError, match="program must be a Program"):
        static.save(3, path)
    with pytest.raises(FileNotFoundError, match="net.pdparams"):
        static.load(static.default_main_program(), path)
    with pytest.raises(ValueError, match="there is no model"):
        static.load_inference_model(path, exe)
    compiled = static.CompiledProgram(static.default_main_program())
    with pytest.raises(TypeError, match="must be a Program"):
        fluid.io.save_inference_model(path, ["x"], [y], exe, compiled)
    assert os.listdir(tmp_path) == []


def test_values_that_are_missing(static_mode, exe, tmp_path):
    x, label, y, loss = net()
    with pytest.raises(RuntimeError, match="run the startup program first"):
        static.save_inference_model(str(tmp_path / "net"), [x], [y], exe)
    with pytest.raises(RuntimeError, match="run the startup program first"):
        static.save(static.default_main_program(), str(tmp_path / "net"))
    started(exe)
    static.save_inference_model(str(tmp_path / "net"), [x], [y], exe)
    os.remove(tmp_path / "net.pdiparams")
    with pytest.raises(FileNotFoundError, match="net.pdiparams"):
        static.load_inference_model(str(tmp_path / "net"), exe)
    folder = str(tmp_path / "folder")
    fluid.io.save_inference_model(folder, ["x"], [y], exe)
    os.remove(folder + "/fc_0.w_0")
    with pytest.raises(FileNotFoundError, match="fc_0.w_0"):
        fluid.io.load_inference_model(folder, exe)


# ---- damage


def damaged(data):
    """The bytes cut off at many places, and with many of them changed."""
    step = max(1, len(data) // 150)
    for size in range(0, len(data), step):
        yield data[:size]
    for at in range(0, len(data), step):
        yield data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@pytest.mark.parametrize("suffix", [".pdmodel", ".pdiparams"])
def test_damage_to_a_model_is_noticed(static_mode, exe, tmp_path, suffix):
    x, label, y, loss = net()
    array = started(exe)
    prefix = str(tmp_path / "net")
    static.save_inference_model(prefix, [x], [y], exe)
    program, _, fetches = static.load_inference_model(prefix, exe)
    wanted = exe.run(program, feed={"x": array}, fetch_list=fetches)
    whole = (tmp_path / f"net{suffix}").read_bytes()
    noticed = total = 0
    for data in damaged(whole):
        (tmp_path / f"net{suffix}").write_bytes(data)
        total += 1
        try:
            program, _, fetches = static.load_inference_model(prefix, exe)
        except DataLossError as error:
            assert f"net{suffix}" in str(error)
            noticed += 1
        else:
            # Only the field with the checksum itself was hit: all else is whole.
            check(exe.run(program, feed={"x": array}, fetch_list=fetches), wanted)
    assert noticed > 0.95 * total


@pytest.mark.parametrize("name", ["mlp.pdmodel", "mlp.pdiparams"])
def test_cut_models_of_paddle_are_noticed(static_mode, exe, tmp_path, name):
    for suffix in (".pdmodel", ".pdiparams"):
        shutil.copy(NEW / f"mlp{suffix}", tmp_path)
    whole = (NEW / name).read_bytes()
    # What a program ends with says which versions of ops Paddle has.
    cut = len(whole) if name.endswith(".pdiparams") else len(whole) - 2500
    for size in range(0, cut, 37):
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(DataLossError, match=name):
            static.load_inference_model(str(tmp_path / "mlp"), exe)


@pytest.mark.parametrize("suffix", [".pdparams", ".pdopt"])
def test_damage_to_a_state_is_noticed(static_mode, exe, tmp_path, suffix):
    x, label, y, loss = net()
    paddle.optimizer.Adam(0.1).minimize(loss)
    started(exe)
    main, path = static.default_main_program(), str(tmp_path / "net")
    static.save(main, path)
    whole = (tmp_path / f"net{suffix}").read_bytes()
    for data in damaged(whole):
        (tmp_path / f"net{suffix}").write_bytes(data)
        with pytest.raises((DataLossError, ValueError), match=f"net{suffix}"):
            static.load(main, path, exe)
    (tmp_path / f"net{suffix}").write_bytes(whole)
    static.load(main, path, exe)


def test_other_files(static_mode, exe, tmp_path):
    text = b"Nothing that a model would begin with. " * 20
    for name in ("net.pdmodel", "net.pdiparams", "net.pdparams"):
        (tmp_path / name).write_bytes(text)
    with pytest.raises(DataLossError, match="net.pdmodel"):
        static.load_inference_model(str(tmp_path / "net"), exe)
    with pytest.raises(ValueError, match="net.pdparams"):
        static.load(static.default_main_program(), str(tmp_path / "net"))
    shutil.copy(NEW / "mlp.pdmodel", tmp_path / "net.pdmodel")
    with pytest.raises(DataLossError, match="net.pdiparams.*no tensor"):
        static.load_inference_model(str(tmp_path / "net"), exe)
    shutil.copy(NEW / "cnn.pdiparams", tmp_path / "net.pdiparams")
    with pytest.raises((DataLossError, ValueError), match="net.pdiparams"):
        static.load_inference_model(str(tmp_path / "net"), exe)


def test_values_of_another_shape(static_mode, exe, tmp_path):
    x, label, y, loss = net(size=3)
    started(exe)
    path = str(tmp_path / "net")
    static.save(static.default_main_program(), path)
    other = static.Program()
    with static.program_guard(other), paddle.utils.unique_name.guard():
        net(size=4)
    with pytest.raises(ValueError, match=r"\[8, 3\] for fc_1.w_0.*\[8, 4\]"):
        static.load(other, path)
    arrays = state_file.load(path + ".pdparams")
    del arrays["fc_0.b_0"]
    state_file.save(arrays, path + ".pdparams")
    with pytest.raises(ValueError, match="no values for fc_0.b_0"):
        static.load(static.default_main_program(), path)


FULL = """
import resource, signal, sys
import numpy as np, paddle
from paddle import static
paddle.enable_static()
x = static.data("x", [None, 64])
y = static.nn.fc(x, 512)
exe = static.Executor()
exe.run(static.default_startup_program())
path = sys.argv[1]
static.save_inference_model(path, [x], [y], exe)
static.save(static.default_main_program(), path + "_state")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
scope = static.global_scope()
value = scope.find_var("fc_0.w_0").get_tensor()
value.set(np.array(value) * 0)
for save in (
    lambda: static.save_inference_model(path, [x], [y], exe),
    lambda: static.save(static.default_main_program(), path + "_state"),
    lambda: static.save_vars(exe, path + "_vars", static.default_main_program()),
):
    try:
        save()
    except OSError as error:
        print("OSError", error.errno)
    else:
        print("saved")
"""


def test_a_full_disk_leaves_what_was_there(static_mode, exe, tmp_path):
    path = str(tmp_path / "net")
    run = subprocess.run(
        [sys.executable, "-c", FULL, path], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:3] == ["OSError 27"] * 3, run.stdout
    program, feeds, fetches = static.load_inference_model(path, exe)
    array = np.ones((2, 64), "float32")
    got = exe.run(program, feed={"x": array}, fetch_list=fetches)[0]
    assert np.abs(got).max() > 0.01
    state = static.load_program_state(path + "_state")["fc_0.w_0"]
    assert np.abs(state).max() > 0.01
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


# ---- layers


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = paddle.nn.Conv2D(1, 4, 3, padding=1)
        self.norm = paddle.nn.BatchNorm2D(4)
        self.pool = paddle.nn.MaxPool2D(2, 2)
        self.drop = paddle.nn.Dropout(0.5)
        self.fc = paddle.nn.Linear(4 * 3 * 3, 5)

    def forward(self, image):
        x = self.pool(paddle.nn.functional.relu(self.norm(self.conv(image))))
        return self.fc(self.drop(paddle.flatten(x, 1)))


def trained_net():
    paddle.seed(3)
    layer = Net()
    image = paddle.randn([4, 1, 6, 6])
    for _ in range(3):
        layer(image)  # moves the running means
    return layer, image


@pytest.fixture
def eager_mode():
    paddle.disable_static()


def test_a_layer_is_saved_and_loaded(eager_mode, tmp_path):
    layer, image = trained_net()
    path = str(tmp_path / "net")
    with pytest.raises(ValueError, match="input_spec"):
        paddle.jit.save(layer, path)
    weight = layer.conv.weight
    paddle.jit.save(layer, path, input_spec=[InputSpec([None, 1, 6, 6], "float32")])
    assert layer.training and layer.conv.weight is weight
    names = ["net.pdiparams", "net.pdiparams.info", "net.pdmodel"]
    assert sorted(os.listdir(tmp_path)) == names
    layer.eval()
    wanted = layer(image).numpy()
    loaded = paddle.jit.load(path)
    assert isinstance(loaded, paddle.jit.TranslatedLayer)
    np.testing.assert_allclose(loaded(image).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert loaded(image[:2]).shape == [2, 5]
    with pytest.raises(ValueError, match="takes 1 inputs"):
        loaded(image, image)
    twin = Net()
    twin.set_state_dict(loaded.state_dict())
    twin.eval()
    np.testing.assert_array_equal(twin(image).numpy(), wanted)
    predictor = inference.create_predictor(
        inference.Config(path + ".pdmodel", path + ".pdiparams")
    )
    got = predictor.run([image.numpy()])
    np.testing.assert_allclose(got[0].numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_loaded_layer_is_trained_on(eager_mode, tmp_path):
    layer, image = trained_net()
    layer.eval()  # as the loaded one: dropout and batch norm of evaluation
    path = str(tmp_path / "net")
    paddle.jit.save(layer, path, input_spec=[InputSpec([None, 1, 6, 6], "float32")])
    loaded = paddle.jit.load(path)
    loaded.train()
    losses = []
    for net in (layer, loaded):
        sgd = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        losses.append([])
        for _ in range(4):
            loss = paddle.mean(net(image) ** 2)
            loss.backward()
            sgd.step()
            sgd.clear_grad()
            losses[-1].append(float(loss))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
    # The executor sees the new values.
    loaded.eval()
    np.testing.assert_allclose(
        loaded(image).numpy(), layer(image).numpy(), rtol=1e-4, atol=1e-5
    )


def test_to_static(eager_mode, tmp_path):
    layer, image = trained_net()
    layer.eval()
    wanted = layer(image).numpy()
    marked = paddle.jit.to_static(layer, input_spec=[InputSpec([None, 1, 6, 6])])
    np.testing.assert_array_equal(marked(image).numpy(), wanted)
    types = [op.type for op in marked.forward.main_program.global_block().ops]
    assert any(t.startswith("conv2d") for t in types)
    paddle.jit.save(marked, str(tmp_path / "net"))
    loaded = paddle.jit.load(str(tmp_path / "net"))
    np.testing.assert_allclose(loaded(image).numpy(), wanted, rtol=1e-5, atol=1e-6)

    @paddle.jit.to_static(input_spec=[InputSpec([None, 3], name="a")])
    def double(a):
        return a * 2 + 1

    np.testing.assert_array_equal(double(paddle.ones([1, 3])).numpy(), [[3, 3, 3]])
    paddle.jit.save(double, str(tmp_path / "double"))
    loaded = paddle.jit.load(str(tmp_path / "double"))
    np.testing.assert_array_equal(loaded(paddle.ones([1, 3])).numpy(), [[3, 3, 3]])

    class Marked(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = paddle.nn.Linear(3, 2)

        @paddle.jit.to_static(input_spec=[InputSpec([None, 3])])
        def forward(self, x):
            return self.fc(x), x

    assert paddle.jit.not_to_static(double) is double
    layer = Marked()
    x = paddle.rand([2, 3])
    wanted = layer(x)
    paddle.jit.save(layer, str(tmp_path / "marked"))
    got = paddle.jit.load(str(tmp_path / "marked"))(x)
    check(got, [w.numpy() for w in wanted])


def test_a_traced_layer(eager_mode, tmp_path):
    layer, image = trained_net()
    layer.eval()
    wanted, traced = paddle.jit.TracedLayer.trace(layer, [image])
    np.testing.assert_allclose(
        traced([image])[0].numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6
    )
    path = str(tmp_path / "net")
    traced.save_inference_model(path, feed=[0], fetch=[0])
    exe = static.Executor(paddle.CPUPlace())
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(path, exe)
        got = exe.run(program, feed={feeds[0]: image.numpy()}, fetch_list=fetches)
    check(got, [wanted.numpy()])


# ---- the predictor


def test_wrong_use_of_a_predictor():
    with pytest.raises(ValueError, match="names no model"):
        inference.create_predictor(inference.Config())
    with pytest.raises(TypeError, match="takes a Config"):
        inference.create_predictor("net")
    with pytest.raises(FileNotFoundError):
        inference.create_predictor(inference.Config("absent.pdmodel", "absent"))
    predictor = inference.create_predictor(inference.Config(str(NEW / "mlp")))
    assert isinstance(predictor, inference.Predictor)
    with pytest.raises(RuntimeError, match="'x' has no value"):
        predictor.run()
    with pytest.raises(KeyError, match="no input 'y'"):
        predictor.get_input_handle("y")
    with pytest.raises(ValueError, match="takes 1 inputs"):
        predictor.run([])


def test_predictors_share_parameters():
    inputs, outputs = examples(NEW / "cnn")
    pool = inference.PredictorPool(inference.Config(str(NEW / "cnn")), 2)
    for i in range(2):
        check(pool.retrive(i).run([inputs["image"]]), outputs)
    assert pool.retrive(0)._scope is pool.retrive(1)._scope
    handle = pool.retrive(0).get_input_handle("image")
    assert handle.shape() == [3, 1, 12, 12]
    assert handle.type() is inference.DataType.FLOAT32
    assert inference.get_num_bytes_of_data_type(handle.type()) == 4


def test_a_model_from_memory():
    inputs, outputs = examples(NEW / "embedding")
    program = (NEW / "embedding.pdmodel").read_bytes()
    params = (NEW / "embedding.pdiparams").read_bytes()
    config = inference.Config()
    config.set_model_buffer(program, len(program), params, len(params))
    assert config.model_from_memory()
    predictor = inference.create_predictor(config)
    names = predictor.get_input_names()
    check(predictor.run([inputs[name] for name in names]), outputs)


def test_a_predictor_over_sequences():
    inputs, outputs = examples(OLD / "sequence")
    config = inference.Config(str(OLD / "sequence"))
    predictor = inference.create_predictor(config)
    handle = predictor.get_input_handle("words")
    handle.copy_from_cpu(inputs["words"])
    handle.set_lod([inputs["words.lod"].tolist()])
    predictor.run()
    names = predictor.get_output_names()
    check([predictor.get_output_handle(n).copy_to_cpu() for n in names], outputs)


def test_settings_are_kept():
    config = inference.Config("a.pdmodel", "a.pdiparams")
    assert (config.prog_file(), config.params_file()) == ("a.pdmodel", "a.pdiparams")
    config.set_cpu_math_library_num_threads(2)
    assert config.cpu_math_library_num_threads() == 2
    config.enable_mkldnn()
    assert config.mkldnn_enabled()
    config.switch_ir_optim(False)
    assert not config.ir_optim()
    config.enable_use_gpu(100, 0)
    assert config.use_gpu() and config.gpu_device_id() == 0
    config.disable_gpu()
    assert not config.use_gpu()
