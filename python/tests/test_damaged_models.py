# SPDX-License-Identifier: Apache-2.0
"""Models on disk: damage, other files and a full disk are noticed."""

import os
import shutil
import subprocess
import sys

import numpy as np
import paddle
import pytest
from model_check import NEW, check, exe, net, started, static_mode
from paddle import static
from paddle.framework import state_file
from paddle.framework.io import DataLossError

assert static_mode and exe  # fixtures


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
