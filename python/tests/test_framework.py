# SPDX-License-Identifier: Apache-2.0
"""Types, places, modes, seeds, versions, and the small modules around them."""

import importlib
import pathlib
import re
import subprocess
import sys
import warnings

import numpy as np
import paddle
import pytest
from paddle.framework import dtype as dtypes
from paddle.framework import place as places

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(code):
    """What a fresh Python prints for `code`."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- element types


@pytest.mark.parametrize(
    "name",
    "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 "
    "complex128".split(),
)
def test_an_element_type_has_many_spellings(name):
    kind = getattr(paddle, name)
    scalar = getattr(np, "bool_" if name == "bool" else name)
    for spelling in (kind, name, f"paddle.{name}", np.dtype(name), scalar):
        assert dtypes.convert(spelling) is kind
    assert dtypes.convert_dtype(kind) == name
    assert repr(kind) == f"paddle.{name}"
    assert isinstance(kind, paddle.dtype)
    assert paddle.zeros([1], dtype=kind).numpy().dtype == np.dtype(name)


def test_pythons_own_types_and_short_names():
    assert dtypes.convert(bool) is paddle.bool
    assert dtypes.convert(int) is paddle.int64
    assert dtypes.convert(float) is paddle.float32
    assert dtypes.convert("double") is paddle.float64
    assert dtypes.convert("half") is paddle.float16
    assert dtypes.convert("bfloat16") is paddle.bfloat16
    assert dtypes.convert(None).name == "none"
    for wrong in ("float31", 7, object(), np.dtype("U3")):
        with pytest.raises(TypeError, match="is no element type; the known ones"):
            dtypes.convert(wrong)


def test_the_default_type_is_that_of_new_floats():
    assert paddle.get_default_dtype() == "float32"
    try:
        for spelling in ("float64", np.float64, paddle.float64):
            paddle.set_default_dtype(spelling)
            assert paddle.get_default_dtype() == "float64"
            assert paddle.to_tensor([1.0]).dtype is paddle.float64
            assert paddle.ones([2]).dtype is paddle.float64
            assert paddle.nn.Linear(2, 2).weight.dtype is paddle.float64
            assert paddle.to_tensor(np.float32([1])).dtype is paddle.float32
            paddle.set_default_dtype("float32")
    finally:
        paddle.set_default_dtype("float32")
    with pytest.raises(TypeError, match="floating-point type, not int32"):
        paddle.set_default_dtype("int32")


# -- places


def test_places_compare_by_device():
    assert paddle.CPUPlace() == paddle.CPUPlace()
    assert paddle.CUDAPlace(0) == paddle.CUDAPlace() != paddle.CUDAPlace(1)
    assert paddle.CPUPlace() != paddle.CUDAPlace(0)
    assert len({paddle.CPUPlace(), paddle.CPUPlace(), paddle.CUDAPlace(0)}) == 2
    assert repr(paddle.CUDAPlace(1)) == "CUDAPlace(1)"
    assert repr(paddle.CUDAPinnedPlace()) == "CUDAPinnedPlace"
    assert repr(paddle.XPUPlace(0)) == "XPUPlace(0)"
    assert paddle.CPUPlace().is_cpu_place() and paddle.CUDAPlace(3).is_gpu_place()
    assert paddle.CUDAPlace(3).get_device_id() == 3
    assert paddle.CUDAPinnedPlace().is_cpu_place()
    for wrong in (-1, "0", None):
        with pytest.raises(ValueError, match="device number"):
            paddle.CUDAPlace(wrong)


def test_the_device_is_where_new_tensors_are():
    assert paddle.set_device("cpu") == paddle.CPUPlace()
    assert paddle.get_device() == "cpu"
    assert paddle.ones([1]).place == paddle.CPUPlace()
    for wrong in ("tpu", "gpu:x", "cpu:0:1", ""):
        with pytest.raises(ValueError, match="unknown device"):
            paddle.set_device(wrong)
    with pytest.raises(TypeError, match="a place is"):
        paddle.set_device(0)


def test_a_process_begins_on_the_gpu_that_was_chosen_for_it(monkeypatch):
    def first_device(**environment):
        for name in ("FLAGS_selected_gpus", "PADDLE_TRAINERS_NUM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return run("import paddle; print(paddle.get_device())").strip()

    gpu = "gpu:0" if paddle._core.num_cuda_devices() else "cpu"
    assert first_device() == gpu
    assert first_device(PADDLE_TRAINERS_NUM="2", FLAGS_selected_gpus="0") == gpu
    # Started as a job on the CPU.
    assert first_device(PADDLE_TRAINERS_NUM="2") == "cpu"


def test_without_a_gpu_one_warning_and_on_with_the_cpu(monkeypatch):
    monkeypatch.setattr(places._core, "num_cuda_devices", lambda: 0)
    monkeypatch.setattr(places, "_warned", False)
    with pytest.warns(UserWarning, match="going on with the CPU"):
        assert paddle.set_device("gpu") == paddle.CPUPlace()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert paddle.set_device("gpu:1") == paddle.CPUPlace()
        paddle.disable_static(paddle.CUDAPlace(0))
        assert paddle.get_device() == "cpu"
        x = paddle.to_tensor([1.0], place=paddle.CUDAPlace(0))
    assert x.place == paddle.CPUPlace() and x.item() == 1.0
    assert not paddle.is_compiled_with_cuda()


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(places._core, "num_cuda_devices", lambda: 2)
    assert places.device_of("gpu:1") == "cuda:1"
    assert places.device_of(paddle.XPUPlace(1)) == "cuda:1"
    with pytest.raises(ValueError, match="no GPU 2: this machine has 2"):
        places.device_of("gpu:2")


def test_what_was_compiled_in():
    count = paddle._core.num_cuda_devices()
    assert paddle.is_compiled_with_cuda() == (count > 0)
    assert paddle.is_compiled_with_xpu() is False
    version = paddle.get_cudnn_version()
    assert version is None if count == 0 else version > 7000
    assert len(places.cuda_places()) == count
    assert places.cpu_places(2) == [paddle.CPUPlace()] * 2


# -- modes


def test_the_mode_can_be_switched():
    assert paddle.in_dynamic_mode() is True
    paddle.enable_static()
    try:
        assert paddle.in_dynamic_mode() is False
        assert paddle.static.data("x", [None, 2]).shape == [-1, 2]
    finally:
        paddle.disable_static()
    assert paddle.in_dynamic_mode() is True


# -- random numbers


def draws():
    return [
        paddle.rand([3]).numpy(),
        paddle.randn([3]).numpy(),
        paddle.randint(0, 1000, [3]).numpy(),
        paddle.randperm(20).numpy(),
        paddle.nn.Linear(2, 2).weight.numpy(),
        paddle.nn.functional.dropout(paddle.ones([50])).numpy(),
    ]


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_seed_repeats_everything():
    generator = paddle.seed(7)
    first = draws()
    assert generator.initial_seed() == 7
    second = draws()
    paddle.seed(np.int64(7))
    assert_same(first, draws())
    assert_same(second, draws())
    generator.manual_seed(7)
    assert_same(first, draws())
    paddle.seed(8)
    assert not np.array_equal(first[0], paddle.rand([3]).numpy())
    for wrong in ("7", 1.5, True, None):
        with pytest.raises(TypeError, match="a seed is an integer"):
            paddle.seed(wrong)


def test_two_processes_with_one_seed_agree():
    code = "import paddle; paddle.seed(3); print(paddle.randn([4]).numpy().tolist())"
    assert run(code) == run(code)


def test_the_state_of_the_generator_can_be_kept():
    device = paddle.get_device()
    state = paddle.get_rng_state(device)
    first = draws()
    paddle.set_rng_state(state, device)
    assert_same(first, draws())
    with pytest.raises(ValueError, match="size"):
        paddle.set_rng_state(b"abc", device)


def test_the_states_of_gpus_are_one_for_each():
    states = paddle.get_cuda_rng_state()
    assert len(states) == paddle._core.num_cuda_devices()
    paddle.set_cuda_rng_state(states)
    assert paddle.get_cuda_rng_state() == states


# -- names


def test_unique_names_count_and_begin_anew_in_a_guard():
    from paddle.utils import unique_name

    with unique_name.guard():
        assert unique_name.generate("fc") == "fc_0"
        assert unique_name.generate("fc") == "fc_1"
        assert unique_name.generate("conv") == "conv_0"
        with paddle.utils.unique_name.guard("inner_"):
            assert unique_name.generate("fc") == "inner_fc_0"
        assert unique_name.generate("fc") == "fc_2"
        assert paddle.nn.Linear(1, 1).weight.name == "linear_0.w_0"
        old = unique_name.switch()
        assert unique_name.generate("fc") == "fc_0"
        unique_name.switch(old)
        assert unique_name.generate("fc") == "fc_3"


def test_a_guard_ends_with_an_exception():
    from paddle.utils import unique_name

    with unique_name.guard():
        with pytest.raises(KeyError), unique_name.guard():
            unique_name.generate("fc")
            raise KeyError
        assert unique_name.generate("fc") == "fc_0"


def test_a_parameter_outside_of_layers():
    weight = paddle.create_parameter([2, 3], "float32", name="mine")
    assert weight.name == "mine" and weight.shape == [2, 3]
    assert not weight.stop_gradient and weight.persistable
    bias = paddle.create_parameter([3], "float64", is_bias=True)
    assert bias.dtype is paddle.float64 and not bias.numpy().any()
    attr = paddle.ParamAttr(
        name="given", initializer=paddle.nn.initializer.Constant(2.0), trainable=False
    )
    given = paddle.create_parameter([2], "float32", attr=attr)
    assert given.name == "given" and given.stop_gradient
    np.testing.assert_array_equal(given.numpy(), [2.0, 2.0])
    assert paddle.framework.ParamAttr is paddle.ParamAttr


# -- versions


def test_the_version_is_that_of_the_api(capsys):
    version = paddle.version
    assert paddle.__version__ == version.full_version == "2.0.0"
    assert (version.major, version.minor, version.patch) == ("2", "0", "0")
    version.show()
    shown = capsys.readouterr().out
    assert f"full_version: {version.full_version}" in shown
    assert f"fleet_version: {version.fleet_version}" in shown
    project = (ROOT / "pyproject.toml").read_text()
    assert re.search(rf'^version = "{version.fleet_version}"$', project, re.M)
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert f"project(fleet VERSION {version.fleet_version} " in cmake
    assert version.mkl() in ("ON", "OFF")


def test_versions_of_cuda_are_numbers_or_false(monkeypatch):
    if not paddle.is_compiled_with_cuda():
        assert paddle.version.cuda() == paddle.version.cudnn() == "False"
    core = paddle.version._core
    monkeypatch.setattr(core, "cuda_version", lambda: 12080)
    assert paddle.version.cuda() == "12.8"
    for number, text in ((91002, "9.10.2"), (90100, "9.1.0"), (8902, "8.9.2")):
        monkeypatch.setattr(core, "cudnn_version", lambda number=number: number)
        assert paddle.version.cudnn() == text


def test_a_script_can_require_a_version():
    paddle.require_version("1.8.0")
    paddle.utils.require_version("2.0.0", "2.0.0")
    with pytest.raises(Exception, match="2.1 or later is required"):
        paddle.require_version("2.1")
    with pytest.raises(Exception, match="1.7 to 1.8.5"):
        paddle.require_version("1.7", "1.8.5")
    with pytest.raises(TypeError, match="min_version must be a string"):
        paddle.require_version(2)
    with pytest.raises(ValueError, match="max_version is no version"):
        paddle.require_version("1.8", "latest")


# -- tools


def test_run_check_trains(capsys, monkeypatch):
    paddle.utils.run_check()
    shown = capsys.readouterr().out
    assert f"works on {paddle.get_device()}" in shown
    monkeypatch.setattr(paddle.optimizer.SGD, "step", lambda self: None)
    with pytest.raises(RuntimeError, match="does not learn"):
        paddle.utils.run_check()


def test_deprecated_functions_warn_and_still_work():
    @paddle.utils.deprecated(update_to="paddle.new", since="2.0", reason="it is old")
    def old(x):
        """Adds one."""
        return x + 1

    with pytest.warns(DeprecationWarning, match="since 2.0: it is old; use paddle.new"):
        assert old(1) == 2
    assert old.__name__ == "old" and old.__doc__ == "Adds one."
    gone = paddle.utils.deprecated(level=2)(old)
    with pytest.raises(RuntimeError, match="old is deprecated"):
        gone(1)


def test_try_import_says_how_to_get_a_module():
    assert paddle.utils.try_import("json") is importlib.import_module("json")
    with pytest.raises(ImportError, match="no_such_module.*pip"):
        paddle.utils.try_import("no_such_module")
    with pytest.raises(ImportError, match="get it there"):
        paddle.utils.try_import("no_such_module", "get it there")


def test_dlpack_shares_memory_with_other_libraries():
    import torch
    from paddle.utils.dlpack import from_dlpack, to_dlpack

    x = paddle.arange(6, dtype="float32").reshape([2, 3])
    other = torch.from_dlpack(to_dlpack(x))
    other[0, 0] = 9.0
    assert x[0, 0].item() == 9.0
    theirs = torch.arange(4)
    ours = from_dlpack(torch.utils.dlpack.to_dlpack(theirs))
    theirs[1] = 7
    np.testing.assert_array_equal(ours.numpy(), [0, 7, 2, 3])
    array = np.arange(3.0)
    np.testing.assert_array_equal(from_dlpack(array).numpy(), array)
    with pytest.raises(TypeError, match="to_dlpack: x must be a Tensor.*list"):
        to_dlpack([1])
    with pytest.raises(TypeError, match="from_dlpack.*list"):
        from_dlpack([1])


def test_a_capsule_is_consumed_once():
    capsule = paddle.utils.dlpack.to_dlpack(paddle.ones([2]))
    paddle.utils.dlpack.from_dlpack(capsule)
    with pytest.raises(ValueError, match="PyCapsule"):
        paddle.utils.dlpack.from_dlpack(capsule)


# -- old modules


def test_the_old_core_module():
    assert paddle.common_ops_import.core is paddle.core
    assert paddle.fluid.core.EOFException is paddle.core.EOFException
    with pytest.raises(Exception, match="no more data"):
        raise paddle.core.EOFException("no more data")
    assert paddle.common_ops_import.core.EOFException is paddle.core.EOFException
    assert paddle.core.VarDesc.VarType.FP32 is paddle.float32
    assert paddle.core.get_cuda_device_count() == paddle._core.num_cuda_devices()
    for core in (paddle.core, paddle.fluid.core):
        assert core.Scope is paddle.static.Scope
        assert isinstance(paddle.static.Program().desc, core.ProgramDesc)
        with pytest.raises(NotImplementedError, match="Gloo belongs to the binding"):
            _ = core.Gloo
        with pytest.raises(AttributeError, match="no attribute 'foo'"):
            _ = core.foo


def test_batch_cuts_a_reader_into_lists():
    def reader():
        yield from range(5)

    assert list(paddle.batch(reader, 2)()) == [[0, 1], [2, 3], [4]]
    assert list(paddle.batch(reader, 2, drop_last=True)()) == [[0, 1], [2, 3]]
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="paddle.batch: batch_size"):
            paddle.batch(reader, wrong)


# -- what comes later


@pytest.mark.parametrize(
    "name, reason",
    [
        ("onnx.export", "the export of models"),
    ],
)
def test_what_is_put_off_says_with_what_it_comes(name, reason):
    module, _, last = f"paddle.{name}".rpartition(".")
    namespace = importlib.import_module(module)
    message = f"paddle.{name} belongs to {reason}, which this version"
    with pytest.raises(NotImplementedError, match=re.escape(message)):
        getattr(namespace, last)
    with pytest.raises(NotImplementedError, match=re.escape(message)):
        exec(f"from {module} import {last}")


def test_a_name_that_is_nowhere_is_an_attribute_error():
    for module in (paddle, paddle.framework):
        with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
            _ = module.no_such_name
    assert not hasattr(paddle, "no_such_name")
    assert not hasattr(paddle.static, "__wrapped__")


def test_import_loads_neither_numpy_nor_slow_modules():
    code = """
import sys
import paddle
slow = "numpy torch PIL paddle.nn paddle.vision paddle.io paddle.fluid".split()
print([name for name in slow if name in sys.modules])
assert paddle.nn.Linear and paddle.save and paddle.framework.load
"""
    assert run(code) == "[]\n"
