# SPDX-License-Identifier: Apache-2.0
"""Models on disk: ours come back as they were."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from model_check import check, exe, net, started, static_mode
from paddle import static
from paddle.distributed import fleet

assert static_mode and exe  # fixtures


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
    scripts = pathlib.Path(__file__).parents[2] / "tests" / "interop"
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
