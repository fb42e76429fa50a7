# SPDX-License-Identifier: Apache-2.0
import collections
import io
import json
import os
import pickle
import pickletools
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

DATA = os.path.join(os.path.dirname(__file__), "data", "paddle_2_6")

DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
).split()


def tensor(value, dtype=None):
    return paddle._core.from_object(np.asarray(value, dtype=dtype))


def bfloat16(values):
    bits = torch.tensor(values, dtype=torch.bfloat16).view(torch.int16).numpy()
    return paddle._core.bfloat16_from_bits(bits.view(np.uint16))


def same(a, b):
    """Equal in value and type, arrays bit by bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, paddle.Tensor):
        return a.dtype == b.dtype and same(a.numpy(), b.numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return a == b


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


class Thing:
    pass


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


# -- files of real Paddle


def data_file(name):
    return os.path.join(DATA, name)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("part", ["net", "adam"])
def test_reads_state_that_paddle_saved(protocol, part):
    expected = np.load(data_file("expected.npz"))
    suffix = "pdparams" if part == "net" else "pdopt"
    state = load(data_file(f"{part}_p{protocol}.{suffix}"))
    scheduler = state.pop("LR_Scheduler", None)
    wanted = [key for key in expected if key.startswith(part + ".")]
    assert [f"{part}.{key}" for key in state] == wanted
    for key, value in state.items():
        assert isinstance(value, paddle.Tensor)
        assert same(value.numpy(), expected[f"{part}.{key}"])
    if part == "net":
        assert state["0.weight"].name == "linear_0.w_0"
    else:
        assert scheduler == {"last_epoch": 3, "last_lr": pytest.approx(0.01)}


@pytest.mark.parametrize("protocol", [2, 4])
def test_reads_everything_that_paddle_can_save(protocol):
    mixed = load(data_file(f"mixed_p{protocol}.pdparams"))
    for dtype in DTYPES:
        got = mixed["tensors"][dtype]
        assert isinstance(got, paddle.Tensor)
        assert same(got.numpy(), np.array([[0, 1, 2]]).astype(dtype))
    assert same(mixed["bfloat16"].numpy(), bfloat16([1.5, -2.0]).numpy())
    assert mixed["bfloat16"].dtype == bfloat16([0.0]).dtype
    assert same(mixed["array"], np.arange(6.0).reshape(2, 3))
    assert same(mixed["big_endian"], np.arange(3, dtype="i4"))
    assert same(mixed["scalar"], np.float64(2.5))
    assert mixed["empty"].shape == [0, 3]
    assert mixed["zero_d"].shape == [] and mixed["zero_d"].numpy() == 7
    assert mixed["plain"] == [1, 2.5, True, None, "text", (1, "a"), -(2**70), {3: {}}]
    assert same(mixed["ordered"], collections.OrderedDict(b=1, a=2))
    arrays = load(data_file(f"mixed_p{protocol}.pdparams"), return_numpy=True)
    assert same(arrays["tensors"]["int16"], np.array([[0, 1, 2]], "int16"))


def test_reads_the_form_of_paddle_2_0():
    expected = np.load(data_file("expected.npz"))
    state = load(data_file("net_2_0.pdparams"))
    assert "StructuredToParameterName@@" not in state
    for key, value in state.items():
        assert isinstance(value, paddle.Tensor)
        assert same(value.numpy(), expected[f"net.{key}"])
    assert state["2.bias"].name == "linear_1.b_0"
    named = load(data_file("net_2_0.pdparams"), keep_name_table=True)
    assert named["StructuredToParameterName@@"]["2.bias"] == "linear_1.b_0"


def test_joins_arrays_that_were_sliced():
    state = load(data_file("sliced.pdparams"))
    assert list(state) == ["w"]
    assert same(state["w"].numpy(), np.arange(10, dtype="f4").reshape(2, 5))
    assert state["w"].name == "linear_0.w_0"


def test_bare_arrays_become_tensors_only_without_tensors():
    arrays = {"a": np.ones(2, "float32"), "b": [np.ones(2, "u4")]}
    back = load(io.BytesIO(pickle.dumps(arrays, protocol=4)))
    assert isinstance(back["a"], paddle.Tensor)
    assert isinstance(back["b"][0], np.ndarray)  # no tensor has this type


def test_what_appears_twice_in_a_pickle_is_one_object():
    w = np.ones(4, "float32")
    back = load(io.BytesIO(pickle.dumps([w, {"same": w}], protocol=2)))
    assert back[0] is back[1]["same"]


# -- hostile pickles


class Evil:
    def __init__(self, *reduced):
        self._reduced = reduced

    def __reduce__(self):
        return self._reduced


def pickled(obj, protocol=4):
    return pickle.dumps(obj, protocol=protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize(
    "function, arguments",
    [
        (os.system, ("touch {0}",)),
        (eval, ("__import__('os').system('touch {0}')",)),
        (eval, ("open('{0}', 'w')", {"data": 1})),
        (exec, ("open('{0}', 'w')",)),
        (open, ("{0}", "w")),
        (subprocess.call, (["touch", "{0}"],)),
        (getattr, (os, "system")),
        (np.load, ("{0}",)),
    ],
)
def test_nothing_in_a_pickle_is_executed(tmp_path, protocol, function, arguments):
    witness = str(tmp_path / "witness")
    arguments = tuple(a.format(witness) if isinstance(a, str) else a for a in arguments)
    if function is getattr:
        arguments = ("os", "system")
    obj = {"w": np.ones(2), "x": [Evil(function, arguments)]}
    with pytest.raises(ValueError, match="asks for"):
        load(io.BytesIO(pickled(obj, protocol)))
    assert not os.path.exists(witness)


@pytest.mark.parametrize(
    "obj",
    [
        np.array([object()]),
        np.array(["text"]),
        np.zeros(2, [("a", "f4")]),
        np.array(["2020-01-01"], "M8[D]"),
        np.ma.masked_array([1]),
        {1, 2},
        Thing,
        complex(1, 2),
        bytearray(b"x"),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_other_objects_in_pickles_are_refused(obj):
    with pytest.raises(ValueError, match="cannot read the buffer"):
        load(io.BytesIO(pickled({"x": obj})))


def text(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


ARRAY = text("numpy.core.multiarray") + text("_reconstruct") + b"\x93"
ARRAY += text("numpy") + text("ndarray") + b"\x93K\x00\x85C\x01b\x87R"
FLOAT = text("numpy") + text("dtype") + b"\x93" + text("f4") + b"\x89\x88\x87R"


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b".",
        b"0.",
        b"(.",
        b"((((t.",
        b"h\x05.",
        b"j\xff\xff\xff\xff.",
        b"q\x00.",
        b"a.",
        b"K\x01K\x02a.",
        b"K\x01K\x02s.",
        b"}(K\x01u.",
        b"}]K\x01s.",
        b"}K\x01K\x02K\x03.",
        b"R.",
        b"))R.",
        b"b.",
        b"]Nb.",
        b"\x85.",
        b"\x93.",
        b"K\x01K\x02\x93.",
        b"cos\nsystem\n.",
        b"c" + b"x" * 1000,
        b"cnumpy\nndarray\n.",
        b"cnumpy\nndarray\n)R.",
        b"X\xff\xff\xff\xffabc.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x8d\x00\x00\x00\x00\x00\x00\x00\x80.",
        b"\x8b\xff\xff\xff\xff.",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"X\x02\x00\x00\x00\xff\xff.",
        b"\x80\x04N",
        b"N",
        b"i",
        b"\x82\x01.",
        b"Ptoken\n.",
        b"]q\x00h\x00a.",
        b"\x85" * 10,
        b")" + b"\x85" * 100000 + b".",
        b"}" + b")" + b"\x85" * 100000 + b"K\x01s.",
        b"]" * 100000 + b"a" * 99999 + b".",
        ARRAY + b".",
        ARRAY + b"Nb.",
        ARRAY + b"(K\x01K\x02\x85" + FLOAT + b"\x89C\x04abcdtb.",
        ARRAY + b"(K\x01K\x01\x85NN\x89C\x04abcdtb.",
        ARRAY + b"(K\x01J\xff\xff\xff\xff\x85" + FLOAT + b"\x89C\x04abcdtb.",
        ARRAY + b"(K\x01K\x01\x85" + FLOAT + b"\x89]tb.",
        FLOAT + b".",
        text("_codecs")
        + text("encode")
        + b"\x93"
        + text("a")
        + text("rot13")
        + b"\x86R.",
        text("_codecs")
        + text("encode")
        + b"\x93"
        + text("\u4e2d")
        + text("latin1")
        + b"\x86R.",
        text("builtins") + text("tuple") + b"\x93]\x85R.",
        text("builtins") + text("tuple") + b"\x93NN\x86\x85R.",
        text("collections") + text("OrderedDict") + b"\x93K\x01\x85R.",
    ],
    ids=lambda program: str(program[:30]),
)
def test_programs_that_make_no_sense_are_refused(program):
    with pytest.raises((DataLossError, ValueError), match="the buffer"):
        load(io.BytesIO(b"\x80\x04" + program))


def test_other_protocols_are_refused():
    for start in (b"\x80\x05", b"\x80\x01", b"\x80\x00", b"\x80"):
        with pytest.raises((DataLossError, ValueError)):
            load(io.BytesIO(start + b"N."))


def test_bombs_cost_no_more_than_their_file():
    # 2^60 leaves through a chain of pairs; visited once each.
    bomb = b"\x80\x04]\x94" + b"".join(
        b"]\x94(h" + bytes([i]) + b"h" + bytes([i]) + b"e" for i in range(60)
    )
    with pytest.raises((DataLossError, ValueError)):
        load(io.BytesIO(bomb + b"."))  # values are left over
    shared = []
    for _ in range(60):
        shared = [shared, shared]
    back = load(io.BytesIO(pickled(shared)))
    assert back[0] is back[1]
    # A thousand arrays over one stored megabyte.
    raw = b"\x8e" + struct.pack("<Q", 1 << 20) + bytes(1 << 20) + b"\x94"
    build = ARRAY + b"(K\x01J" + struct.pack("<i", 1 << 18) + b"\x85" + FLOAT
    program = b"\x80\x04]" + raw + b"0" + (build + b"\x89h\x00tba") * 1000 + b"."
    with pytest.raises(DataLossError, match="larger than the file"):
        load(io.BytesIO(program))
    # A key whose hash would visit 1000^3 parts.
    key = (1,)
    for _ in range(3):
        key = (key,) * 1000
    parts = b")\x94" + b"".join(
        b"(" + b"h" + bytes([i]) + (b"h" + bytes([i])) * 999 + b"t\x94"
        for i in range(3)
    )
    with pytest.raises((DataLossError, ValueError)):
        load(io.BytesIO(b"\x80\x04}" + parts + b"K\x01s."))


def is_plain(value):
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    kinds = (type(None), bool, int, float, str, bytes, np.ndarray, np.generic)
    return isinstance(value, (*kinds, paddle.Tensor))


@pytest.mark.parametrize("name", ["mixed_p2.pdparams", "mixed_p4.pdparams"])
def test_bit_flips_in_pickles_give_an_error_or_plain_data(name):
    with open(data_file(name), "rb") as file:
        good = file.read()
    positions = [position for _, _, position in pickletools.genops(good)]
    rng = random.Random(3)
    for trial in range(5000):
        data = bytearray(good)
        if trial % 2:  # an opcode, which does more harm than a byte of data
            data[rng.choice(positions)] = rng.randrange(256)
        else:
            bit = rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << (bit % 8)
        try:
            value = load(io.BytesIO(data))
        except (DataLossError, ValueError):
            continue
        assert is_plain(value)


def test_every_truncation_of_a_pickle_is_noticed():
    for name in ("net_p2.pdparams", "mixed_p4.pdparams"):
        with open(data_file(name), "rb") as file:
            good = file.read()
        for size in range(len(good)):
            with pytest.raises((DataLossError, ValueError)):
                load(io.BytesIO(good[:size]))


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
