# SPDX-License-Identifier: Apache-2.0
"""Files that Paddle saved, and pickles that mean harm."""

import collections
import io
import os
import pickle
import pickletools
import random
import struct
import subprocess

import numpy as np
import paddle
import pytest
from paddle.framework.io import DataLossError, load
from save_check import DTYPES, Thing, bfloat16, same

DATA = os.path.join(os.path.dirname(__file__), "data", "paddle_2_6")


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
