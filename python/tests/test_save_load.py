# SPDX-License-Identifier: Apache-2.0
"""paddle.save and paddle.load: what comes back, what is refused, and damaged files."""

import collections
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import subprocess
import sys

import numpy as np
import paddle
import pytest
import torch
from paddle.framework import container
from paddle.framework.io import DataLossError, load, load_state, save
from save_check import DTYPES, Thing, bfloat16, same, tensor


def to_bytes(obj):
    buffer = io.BytesIO()
    save(obj, buffer)
    return buffer.getvalue()


# -- round trips


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,), (2, 3, 4)])
def test_every_dtype_and_shape_round_trips(tmp_path, dtype, shape):
    rng = np.random.default_rng(0)
    array = np.asarray(rng.uniform(-3, 3, shape)).astype(dtype)
    obj = {"tensor": tensor(array), "array": array, "scalar": array.dtype.type(1)}
    save(obj, tmp_path / "a")
    back = load(str(tmp_path / "a"))
    assert same(back, obj)
    assert same(back["tensor"].numpy(), array)
    arrays = load(tmp_path / "a", return_numpy=True)
    assert same(arrays["tensor"], array)


def test_bfloat16_round_trips(tmp_path):
    values = [1.5, -2.0, 3e38, float("inf"), 0.0]
    saved = bfloat16(values)
    save({"w": saved}, tmp_path / "a")
    back = load(tmp_path / "a")["w"]
    assert back.dtype == saved.dtype
    want = torch.tensor(values, dtype=torch.bfloat16).view(torch.int16).numpy()
    assert np.array_equal(back.numpy(), want.view(np.uint16))


@pytest.mark.parametrize(
    "obj",
    [
        None,
        True,
        -(2**100),
        0.1,
        float("nan"),
        float("-inf"),
        -0.0,
        1 - 2j,
        "text \u00e9\u4e2d \ud800 \0",
        b"",
        b"\x00\xff" * 50,
        [],
        (),
        {},
        [[], [[]], {}],
        {"a": {1: (None, True, 2.5, "x", b"y")}, None: 0, (1, ("a", 2)): 1, 2.5: 3},
        collections.OrderedDict(b=1, a=[2]),
        [np.arange(5, dtype=t) for t in ("u2", "u4", "u8", ">i4", ">f8")],
    ],
    ids=repr,
)
def test_plain_objects_round_trip(tmp_path, obj):
    save(obj, tmp_path / "a")
    back = load(tmp_path / "a")
    if isinstance(obj, list) and obj and isinstance(obj[0], np.ndarray):
        # The byte order of the machine is not part of the value.
        obj = [a.astype(a.dtype.newbyteorder("=")) for a in obj]
    assert same(back, obj)


def test_non_contiguous_arrays_keep_their_values(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    obj = [
        base.T,
        base[::2, ::-3],
        np.asfortranarray(base),
        np.broadcast_to(1.0, (2, 2)),
    ]
    save(obj, tmp_path / "a")
    for want, got in zip(obj, load(tmp_path / "a")):
        assert np.array_equal(want, got)
        got[...] = 0  # loaded arrays are the user's own


def test_tensor_keeps_its_name_and_stops_gradients(tmp_path):
    w = tensor([1.0, 2.0], "float32")
    w.name = "linear_0.w_0"
    w.stop_gradient = False
    save(w, tmp_path / "a")
    back = load(tmp_path / "a")
    assert back.name == "linear_0.w_0"
    assert back.stop_gradient
    assert same(back.numpy(), w.numpy())


def test_one_object_twice_is_stored_once(tmp_path):
    big = tensor(np.ones(10000, dtype="float32"))
    save({"a": big, "b": big}, tmp_path / "two")
    assert os.path.getsize(tmp_path / "two") < 50000
    back = load(tmp_path / "two")
    assert back["a"] is back["b"]


def test_arrays_lie_aligned_in_the_file(tmp_path):
    save([np.ones(3, "i1"), np.ones(5), b"x", tensor([1.0])], tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    offset, size = struct.unpack_from("<QQ", data, len(data) - 64)
    for begin, _, _ in json.loads(data[offset : offset + size])["blobs"]:
        assert begin % 64 == 0


def test_buffers_hold_several_objects():
    first = {"w": tensor(np.arange(100.0)), "trick": container.MAGIC * 20}
    second = [1, 2]
    buffer = io.BytesIO()
    save(first, buffer)
    save(second, buffer)
    pickle.dump({"a": np.ones(2, "float32")}, buffer, protocol=4)
    buffer.seek(0)
    assert same(load(buffer), first)
    assert load(buffer) == second
    assert same(load(buffer, return_numpy=True), {"a": np.ones(2, "float32")})


def test_folders_are_made_and_files_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "model.pdparams"
    save({"x": 1}, path)
    save({"x": 2}, str(path), protocol=2)
    assert load(path) == {"x": 2}
    assert os.listdir(path.parent) == ["model.pdparams"]


def test_relative_path_without_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save([1], "model")
    assert load("model") == [1]


# -- refusals


@pytest.mark.parametrize(
    "obj, where",
    [
        ({"model": {"layers": [1, Thing()]}}, "obj['model']['layers'][1]"),
        ([{1, 2}], "obj[0]"),
        ((1, lambda: 0), "obj[1]"),
        ({"a": np.array([object()])}, "obj['a']"),
        ({"a": np.array(["text"])}, "obj['a']"),
        ({"a": {Thing(): 1}}, "obj['a']"),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_place(tmp_path, obj, where):
    save("old", tmp_path / "a")
    with pytest.raises(TypeError) as error:
        save(obj, tmp_path / "a")
    assert where in str(error.value)
    assert load(tmp_path / "a") == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_object_with_a_state_dict_is_told_to_use_it(tmp_path):
    class Layer:
        def state_dict(self):
            return {}

    with pytest.raises(TypeError, match=r"state_dict\(\)"):
        save(Layer(), tmp_path / "a")


def test_cycles_and_depth_are_refused(tmp_path):
    loop = []
    loop.append({"self": loop})
    with pytest.raises(ValueError, match=r"obj\[0\]\['self'\] contains itself"):
        save(loop, tmp_path / "a")
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="too deeply"):
        save(deep, tmp_path / "a")


def test_wrong_arguments(tmp_path):
    for protocol in (1, 5, "4", True, None):
        with pytest.raises(ValueError, match="protocol"):
            save({}, tmp_path / "a", protocol=protocol)
    with pytest.raises(ValueError, match="names no file"):
        save({}, str(tmp_path) + "/")
    with pytest.raises(TypeError, match="path"):
        save({}, 3)
    with pytest.raises(TypeError, match="unexpected argument 'x'"):
        save({}, tmp_path / "a", x=1)
    with pytest.raises(TypeError, match="unexpected argument 'x'"):
        load(tmp_path / "a", x=1)
    with pytest.raises(TypeError, match="path"):
        load(None)
    with pytest.raises(TypeError, match="one Tensor"):
        save({}, tmp_path / "a", use_binary_format=True)
    assert os.listdir(tmp_path) == []


def test_one_tensor_in_binary_format(tmp_path):
    value = tensor([[1.5, 2], [3, 4]], "float32")
    save(value, tmp_path / "w", use_binary_format=True)
    data = (tmp_path / "w").read_bytes()
    assert data[:16] == bytes(16)  # version, no LoD, version
    same(load(tmp_path / "w"), value)
    array = load(tmp_path / "w", return_numpy=True)
    np.testing.assert_array_equal(array, value.numpy())
    for size in range(1, len(data)):
        (tmp_path / "w").write_bytes(data[:size])
        with pytest.raises(DataLossError):
            load(tmp_path / "w")


def test_wrong_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        load(tmp_path / "absent")
    save({}, tmp_path / "model.pdparams")
    with pytest.raises(FileNotFoundError, match="there is .*model.pdparams"):
        load(str(tmp_path / "model"))
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    with pytest.raises(IsADirectoryError):
        save({}, tmp_path)
    with pytest.raises(NotADirectoryError):
        save({}, tmp_path / "model.pdparams" / "below")
    with pytest.raises(ValueError, match="plain file"):
        load("/dev/zero")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not written by paddle.save"):
        load(tmp_path / "text")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(DataLossError, match="empty"):
        load(tmp_path / "empty")


# -- the disk


def test_full_disk_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "model"
    save({"w": tensor(np.ones(100))}, path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, hard))
    try:
        with pytest.raises(OSError, match="model"):
            save({"w": tensor(np.ones(100000))}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old_handler)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_killed_while_saving_leaves_a_whole_file(tmp_path):
    path = tmp_path / "model"
    script = (
        "import sys, numpy as np\n"
        "from paddle.framework.io import save\n"
        "for i in range(100000):\n"
        "    save(np.full(200000, i % 100), sys.argv[1])\n"
        "    print(flush=True)\n"
    )
    for count in (1, 3, 8):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE
        )
        try:
            for _ in range(count):
                assert child.stdout.readline()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        array = load(path)
        assert array.shape == (200000,) and np.all(array == array[0])


# -- damaged and hostile files of our own


def sample():
    rng = np.random.default_rng(1)
    w = tensor(rng.normal(size=(4, 5)).astype("float32"))
    w.name = "linear_0.w_0"
    return {
        "w": w,
        "mask": tensor([True, False]),
        "empty": np.zeros((0, 2)),
        "step": 12,
        "lr": 0.1,
        "names": ["a", ("b", None)],
        "raw": bytes(range(100)),
    }


def test_ten_thousand_bit_flips(tmp_path):
    good = to_bytes(sample())
    want = load(io.BytesIO(good))
    rng = random.Random(7)
    refused = 0
    for trial in range(10000):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            bit = rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << (bit % 8)
        source = io.BytesIO(data)
        if trial % 10 == 0:
            source = tmp_path / "flipped"
            source.write_bytes(data)
        try:
            got = load(source)
        except (DataLossError, ValueError):
            refused += 1
        else:
            assert same(got, want), f"trial {trial} gave wrong data"
    assert refused > 5000  # the rest hit padding or flipped a bit twice


def test_every_truncation_is_noticed(tmp_path):
    good = to_bytes(sample())
    path = tmp_path / "cut"
    path.write_bytes(good)
    for size in range(len(good) - 1, -1, -1):
        os.truncate(path, size)
        with pytest.raises((DataLossError, ValueError), match="cut"):
            load(path)
    path.write_bytes(good + b"x")
    with pytest.raises(DataLossError):
        load(path)


def test_a_later_version_is_named(tmp_path):
    data = bytearray(to_bytes([1]))
    data[8] = 2
    with pytest.raises(DataLossError, match="version 2"):
        load(io.BytesIO(data))


def forge(header, blobs=b""):
    """A file with right checksums and any header."""
    data = container.MAGIC + struct.pack("<I", 1) + bytes(52) + blobs
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    crc = paddle._core.crc32c
    fields = struct.pack(
        "<QQIQ24x", len(data), len(text), crc(text), len(data) + len(text) + 64
    )
    return data + text + fields + struct.pack("<I", crc(fields)) + container.MAGIC


def blob(data, offset=64):
    return [offset, len(data), paddle._core.crc32c(data)]


EIGHT = bytes(8)


def array_node(**changes):
    return {"array": 0, "dtype": "<f4", "shape": [2], **changes}


def test_forged_files_can_be_right():
    data = forge({"root": array_node(), "blobs": [blob(EIGHT)]}, EIGHT)
    assert same(load(io.BytesIO(data)), np.zeros(2, "float32"))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff",
        b"[" * 100000,
        b'{"root": ' + b"9" * 10000 + b', "blobs": []}',
        [],
        3,
        {},
        {"root": None},
        {"root": None, "blobs": {}},
        {"root": None, "blobs": [1]},
        {"root": None, "blobs": [[64, 4]]},
        {"root": None, "blobs": [[0, 8, 0]]},
        {"root": None, "blobs": [[64, 2**62, 0]]},
        {"root": None, "blobs": [[2**70, 2**70, 0]]},
        {"root": None, "blobs": [[64, -8, 0]]},
        {"root": None, "blobs": [[64, 8, 0], [64, 8, 0]]},
        {"root": None, "blobs": [["64", "8", "0"]]},
        {"root": {"object": 1}, "blobs": []},
        {"root": {}, "blobs": []},
        {"root": {"tuple": 3}, "blobs": []},
        {"root": {"dict": [[1]]}, "blobs": []},
        {"root": {"dict": [[[], 1]]}, "blobs": []},
        {"root": {"dict": [[{"tuple": [{"tuple": [{"tuple": []}]}]}, 1]]}, "blobs": []},
        {"root": {"complex": ["1", 2]}, "blobs": []},
        {"root": {"bytes": 0}, "blobs": []},
        {"root": {"bytes": True}, "blobs": [blob(EIGHT)]},
        {"root": {"bytes": -1}, "blobs": [blob(EIGHT)]},
        {"root": {"bytes": [0]}, "blobs": [blob(EIGHT)]},
        {"root": {"bytes": 0}, "blobs": [[64, 8, 1]]},
        {"root": [array_node(), {"bytes": 0}], "blobs": [blob(EIGHT)]},
        *[
            {"root": array_node(**changes), "blobs": [blob(EIGHT)]}
            for changes in (
                {"dtype": "O"},
                {"dtype": "|O"},
                {"dtype": "V8"},
                {"dtype": None},
                {"dtype": ["<f4"]},
                {"dtype": "float32"},
                {"shape": [3]},
                {"shape": [-2]},
                {"shape": [2.0]},
                {"shape": [True, 2]},
                {"shape": None},
                {"shape": "2"},
                {"shape": [1] * 65 + [2]},
                {"shape": [2**40, 2**40]},
            )
        ],
        {"root": {"array": 0, "shape": [2]}, "blobs": [blob(EIGHT)]},
        {"root": array_node(shape=[0, 2**61, 2**61]), "blobs": [[64, 0, 0]]},
        {
            "root": {"tensor": 0, "dtype": "float32", "shape": [2], "name": 3},
            "blobs": [blob(EIGHT)],
        },
        {
            "root": {"tensor": 0, "dtype": "<f4", "shape": [2], "name": "x"},
            "blobs": [blob(EIGHT)],
        },
    ],
    ids=lambda header: str(header)[:60],
)
def test_forged_headers_are_refused(header):
    with pytest.raises(DataLossError, match="the buffer is damaged"):
        load(io.BytesIO(forge(header, EIGHT)))


# -- paddle.framework.load


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"LR_Scheduler": {"last_epoch": 1}},
        {"linear_0.w_0_moment1_0": 1.0, "linear_0.w_0_beta1_pow_acc_0": 0.9},
        {"fc_0.w_0_velocity_0": 1.0},
    ],
)
def test_framework_load_of_an_optimizer_state_gives_a_pair(tmp_path, state):
    path = str(tmp_path / "paddle_dy")
    save(state, path)
    assert load_state(path) == (None, state)
    assert load(path) == state
    save(state, path + ".pdopt")
    assert load_state(path + ".pdopt") == state


def test_framework_load_of_other_things_gives_what_was_saved(tmp_path):
    path = str(tmp_path / "paddle_dy")
    for obj in ({"linear_0.w_0": 1.0}, {"0.weight": 1}, [], None):
        save(obj, path)
        assert load_state(path) == obj


def test_the_names_users_know():
    assert paddle.save is save and paddle.framework.save is save
    assert paddle.load is load and paddle.framework.load is load_state
    assert issubclass(paddle.DataLossError, RuntimeError)
