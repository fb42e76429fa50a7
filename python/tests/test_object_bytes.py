# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes between processes: everything plain comes back, nothing else goes,
and no bytes whatever run code, crash or take memory that they do not have."""

import collections
import os
import pathlib
import pickle
import random
import re
import struct
import tracemalloc

import numpy as np
import paddle
import pytest
from mutations import mutate
from paddle._core import DataLossError
from paddle.distributed import object_bytes


def back(obj):
    return object_bytes.decode(object_bytes.encode(obj), "rank 1")


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, paddle.Tensor):
        assert (a.dtype, a.shape, a.name, a.place) == (
            b.dtype,
            b.shape,
            b.name,
            b.place,
        )
        assert a.stop_gradient == b.stop_gradient and a.persistable == b.persistable
        np.testing.assert_array_equal(a._numpy_view(), b._numpy_view())
    elif isinstance(a, (np.ndarray, np.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif a != a:
        assert b != b
    else:
        assert a == b


PLAIN = [
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 3**5000),
    *(0.0, -1.5, float("inf"), float("nan"), 1 - 2j, "", "süß", "\ud800", b"", b"\0x"),
    *([], [1, [2, []]], (), (1, (2,)), {}, set(), {1, "a", (2, 3)}, frozenset([1])),
    *(bytearray(b"ab"), {None: 1, True: 2, 1.5: 3, "a": {}, (1, "b"): [()], b"x": 4}),
    collections.OrderedDict(b=1, a=2),
    *(list(range(100)), [0.5] * 100, [1] * 20 + [2**64], [True] * 20, [1] * 20 + [1.0]),
]


@pytest.mark.parametrize("obj", PLAIN, ids=lambda obj: repr(obj)[:20])
def test_plain_values_come_back(obj):
    same(back(obj), obj)


@pytest.mark.parametrize(
    "dtype",
    "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 >i4 >f8 S3 U4 M8[ns] m8[s]".split(),
)
def test_arrays_and_scalars_come_back(dtype):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    for obj in (array, array.T, array[:, ::2], array[:0], array[0, 0]):
        same(back(obj), obj)
    got = back(array)
    got[0, 0] = got[1, 1]  # It has its own memory, which can be written.


@pytest.mark.parametrize("dtype", object_bytes.TENSOR_DTYPES)
def test_tensors_come_back(dtype):
    x = paddle.to_tensor([[0.0, 1.0], [1.0, 0.0]]).astype(dtype)
    x.name = "w/0"
    x.persistable = True
    for tensor in (x, x[:0], x[1], x[0, 0].reshape([])):
        same(back(tensor), tensor)
    if "float" in dtype:
        x.stop_gradient = False
        same(back(x), x)


def test_a_parameter_arrives_as_a_tensor():
    weight = paddle.nn.Linear(2, 3).weight
    got = back({"w": weight})["w"]
    assert type(got) is paddle.Tensor and got.name == weight.name
    assert not got.stop_gradient and got.persistable
    np.testing.assert_array_equal(got.numpy(), weight.numpy())


def test_a_tensor_of_the_cpu_stays_there_and_one_of_a_gpu_on_one():
    device = "gpu" if paddle.is_compiled_with_cuda() else "cpu"
    for name in ("cpu", device):
        x = paddle.ones([2]).to(name)
        assert str(back(x).place) == str(x.place)


def test_what_the_object_holds_twice_is_one_object():
    shared, array, x = [1], np.ones(1000), paddle.ones([1000])
    obj = [shared, {"a": shared, "b": array}, array, x, (x, shared)]
    assert len(object_bytes.encode(obj)) < 2 * 8 * 1000
    got = back(obj)
    assert got[0] is got[1]["a"] is got[4][1]
    assert got[1]["b"] is got[2] and got[3] is got[4][0]
    equal = back([[1], [1]])
    assert equal[0] is not equal[1]


class Own:
    pass


@pytest.mark.parametrize(
    "obj, message",
    [
        (print, r"^obj: a function cannot be sent"),
        (
            {"model": [1, 2, 3, same]},
            r"^obj\['model'\]\[3\]: a function cannot be sent",
        ),
        ([(Own(),)], r"^obj\[0\]\[0\]: a test_object_bytes.Own cannot be sent"),
        ({"a": Own}, r"^obj\['a'\]: a class cannot be sent"),
        ([{Own(): 1}], r"^obj\[0\]\{key\}: a test_object_bytes.Own cannot"),
        ([1, {("a", len)}], r"^obj\[1\]\{member\}\[1\]: a function cannot"),
        (range(3), r"^obj: a range cannot be sent"),
        (collections.Counter("a"), r"^obj: a collections.Counter cannot be sent"),
        (np.array([None]), r"^obj: a numpy array of object cannot be sent"),
        ([paddle.nn.Linear(1, 1)], r"^obj\[0\]: .*send its state_dict\(\)"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place(obj, message):
    with pytest.raises(TypeError, match=message):
        object_bytes.encode(obj)


def test_cycles_and_deep_nesting_are_refused():
    cycle = {"a": [1]}
    cycle["a"].append(cycle)
    with pytest.raises(ValueError, match=r"^obj\['a'\]\[1\]: .* contains itself"):
        object_bytes.encode(cycle)
    deep = []
    for _ in range(object_bytes.MAX_DEPTH - 1):
        deep = [deep]
    same(back(deep), deep)
    with pytest.raises(ValueError, match="deep cannot be sent"):
        object_bytes.encode([deep])
    forged = object_bytes.MAGIC + (b"l" + struct.pack("<Q", 1)) * 200 + b"N"
    with pytest.raises(DataLossError, match="nested too deeply"):
        object_bytes.decode(forged, "rank 1")


SAMPLE = {
    "list": [1, -2.5, None, True, 2**80, "text", b"bytes", 3j, list(range(20))],
    "array": np.arange(12, dtype=np.float32).reshape(3, 4),
    "words": np.array(["a", "bc"]),
    "scalar": np.int16(7),
    "set": {1, 2, (3, "x")},
    "tensor": paddle.arange(6).astype("bfloat16").reshape([2, 3]),
}
SAMPLE["again"] = [SAMPLE["list"], SAMPLE["array"]]


def test_bytes_that_are_cut_off_are_an_error():
    data = object_bytes.encode(SAMPLE)
    for size in range(len(data)):
        with pytest.raises(DataLossError, match="^rank 1: its bytes make no object"):
            object_bytes.decode(data[:size], "rank 1")
    with pytest.raises(DataLossError, match="more follows"):
        object_bytes.decode(data + b"N", "rank 1")


def test_a_pickle_is_no_object_and_runs_nothing(tmp_path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    with pytest.raises(DataLossError, match="another program or version"):
        object_bytes.decode(pickle.dumps(Attack()), "rank 1")
    assert not (tmp_path / "ran").exists()


def test_nothing_that_speaks_to_other_processes_unpickles():
    package = pathlib.Path(paddle.distributed.__file__).parent
    for path in package.rglob("*.py"):
        assert not re.search(r"\b(pickle|marshal|shelve)\b", path.read_text()), path


@pytest.mark.parametrize("tag", "u b B I l t s z d o L G a n x".split())
def test_forged_sizes_take_no_memory(tag):
    for size in (2**64 - 1, 2**63, 2**40, 2**32, 2**20):
        forged = (
            object_bytes.MAGIC + tag.encode() + struct.pack("<Q", size) + bytes(100)
        )
        tracemalloc.start()
        with pytest.raises(DataLossError):
            object_bytes.decode(forged, "rank 1")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000


@pytest.mark.parametrize(
    "shape", [[2**63], [2**32, 2**32], [2**61, 4], [0, 2**63], [3], [1] * 65]
)
def test_forged_shapes_are_an_error(shape):
    forged = object_bytes.MAGIC + b"a" + struct.pack("<Q", 3) + b"<i4"
    forged += struct.pack(f"<B{len(shape)}Q", len(shape), *shape)
    forged += struct.pack("<Q", 4) + bytes(4)
    with pytest.raises(DataLossError):
        object_bytes.decode(forged, "rank 1")


@pytest.mark.filterwarnings("ignore:there is no GPU")
def test_random_bytes_are_an_object_or_an_error():
    draw = random.Random(7)
    data = object_bytes.encode(SAMPLE)
    results = collections.Counter()
    for _ in range(4000):
        try:
            object_bytes.decode(mutate(draw, data), "rank 1")
            results["read"] += 1
        except DataLossError:
            results["refused"] += 1
    for _ in range(1000):
        with pytest.raises(DataLossError):
            noise = draw.randbytes(draw.randrange(200))
            object_bytes.decode(object_bytes.MAGIC + noise, "rank 1")
    assert results["read"] > 50 and results["refused"] > 1000, results
