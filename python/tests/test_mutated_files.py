# SPDX-License-Identifier: Apache-2.0
"""Files of every kind, crafted and damaged at random: reading them is an error that the
caller can catch, or not, and never a crash, nor memory that the file does not have."""

import collections
import contextlib
import gzip
import io
import json
import pathlib
import random
import struct

import numpy as np
import paddle
import pytest
from model_check import NEW, OLD, examples, exe, static_mode
from mutations import mutate, peak_memory, replace
from paddle import static
from paddle.dataset import matlab, mnist
from paddle.distributed import InMemoryDataset
from paddle.framework import container, pickle_reader, state_file
from paddle.vision.datasets.archive import reading

assert static_mode and exe  # fixtures

DATA = pathlib.Path(__file__).parent / "data"
# What files may raise. Python's own errors about code (TypeError, KeyError, ...) are not
# among them: they would say that a reader did not look.
ERRORS = (paddle.DataLossError, ValueError, OSError, NotImplementedError, EOFError)
ROOM = 64 << 20


def check(read, good, trials, seed=1, refused_at_least=0.2):
    """Reads `trials` mutations of the bytes `good`."""
    draw = random.Random(seed)
    read(good)
    before = peak_memory()
    results = collections.Counter()
    for _ in range(trials):
        try:
            read(mutate(draw, good))
            results["read"] += 1
        except ERRORS:
            results["refused"] += 1
    assert results["refused"] >= refused_at_least * trials, results
    assert peak_memory() - before < ROOM
    return results


def plain_sample():
    return {
        "w": paddle.arange(20).astype("float32").reshape([4, 5]),
        "b": paddle.arange(4).astype("bfloat16"),
        "array": np.arange(6).reshape(2, 3),
        "rest": [1, 2.5, None, "text", (True, b"bytes"), {"k": np.float32(2)}],
    }


# -- paddle.save


def test_files_of_paddle_save():
    file = io.BytesIO()
    paddle.save(plain_sample(), file)
    check(lambda data: paddle.load(io.BytesIO(data)), file.getvalue(), 3000)


def test_files_of_paddle_save_with_right_checksums():
    """Changes in the header, which has all sizes, and sums that fit."""
    file = io.BytesIO()
    paddle.save(plain_sample(), file)
    good = file.getvalue()
    offset, size = struct.unpack_from("<QQ", good, len(good) - 64)
    body, header = good[:offset], good[offset : offset + size]

    def read(text):
        crc = paddle._core.crc32c
        fields = struct.pack(
            "<QQIQ24x", len(body), len(text), crc(text), len(body) + len(text) + 64
        )
        end = fields + struct.pack("<I", crc(fields)) + container.MAGIC
        paddle.load(io.BytesIO(body + text + end))

    check(read, header, 2000)
    # JSON that is whole has other things than text that is not.
    numbers = [-1, 0, 1, 2**31, 2**63, 10**30, 1.5, None, "x", [], {}, True]
    draw = random.Random(2)

    def change(node):
        if isinstance(node, list) and node and draw.random() < 0.9:
            at = draw.randrange(len(node))
            node[at] = change(node[at])
            return node
        if isinstance(node, dict) and node and draw.random() < 0.9:
            at = draw.choice(list(node))
            node[at] = change(node[at])
            return node
        return draw.choice(numbers)

    refused = 0
    for _ in range(2000):
        try:
            read(json.dumps(change(json.loads(header))).encode())
        except ERRORS:
            refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    "name", ["net_p2.pdparams", "adam_p4.pdopt", "net_2_0.pdparams"]
)
def test_states_that_paddle_saved(name):
    good = (DATA / "paddle_2_6" / name).read_bytes()
    check(lambda data: paddle.load(io.BytesIO(data)), good, 1500)


def test_states_of_programs(tmp_path):
    path = str(tmp_path / "net.pdparams")
    state_file.save({"w": np.ones((3, 4), "float32"), "b": np.arange(5)}, path)
    good = (tmp_path / "net.pdparams").read_bytes()
    trailer = struct.Struct("<QI")

    def read(data):
        replace(pathlib.Path(path), data)
        state_file.load(path)

    check(read, good, 1500)
    magic = len(state_file.MAGIC)
    body = good[: len(good) - trailer.size - magic]

    def read_repaired(data):
        end = trailer.pack(len(data), paddle._core.crc32c(data)) + state_file.MAGIC
        read(data + end)

    check(read_repaired, body, 1500)


def test_info_of_saved_layers(tmp_path):
    layer = paddle.jit.to_static(
        paddle.nn.Linear(3, 2), input_spec=[paddle.ones([1, 3])]
    )
    prefix = str(tmp_path / "net")
    paddle.jit.save(layer, prefix)
    path = pathlib.Path(prefix + ".pdiparams.info")

    def read(data):
        replace(path, data)
        paddle.jit.load(prefix)

    check(read, path.read_bytes(), 500)


# -- models


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("suffix", ["pdmodel", "pdiparams"])
def test_models_of_paddle(static_mode, exe, tmp_path, model, suffix):
    files = {
        f"m.{part}": (NEW / f"{model}.{part}").read_bytes()
        for part in ("pdmodel", "pdiparams")
    }
    good = files.pop(f"m.{suffix}")
    for name, data in files.items():
        replace(tmp_path / name, data)
    feed, _ = examples(NEW / model)

    def read(data):
        replace(tmp_path / f"m.{suffix}", data)
        with static.scope_guard(static.Scope()):
            prefix = str(tmp_path / "m")
            program, _, fetches = static.load_inference_model(prefix, exe)
            # What can be loaded can be run, or is an error then.
            with contextlib.suppress(RuntimeError):
                exe.run(program, feed=feed, fetch_list=fetches)

    check(read, good, 1000, refused_at_least=0.05)


def test_programs_of_older_paddle(static_mode):
    for name in ("sequence", "embedding"):
        good = (OLD / name / "__model__").read_bytes()
        check(static.Program.parse_from_string, good, 1500, refused_at_least=0.05)


def test_tensors_alone(static_mode, tmp_path):
    path = tmp_path / "w"
    paddle.disable_static()
    paddle.save(paddle.ones([5, 6]), str(path), use_binary_format=True)

    def read(data):
        replace(path, data)
        paddle.load(str(path))

    check(read, path.read_bytes(), 2000)


# -- datasets


def test_digits(tmp_path):
    path = tmp_path / "idx.gz"
    head = struct.pack(">IIII", 0x0803, 3, 28, 28)

    def read(data):
        replace(path, gzip.compress(data, 1))
        mnist.read_idx(path, 3)

    check(read, head + bytes(3 * 28 * 28), 1000)

    def read_packed(data):
        replace(path, data)
        with reading(path):
            mnist.read_idx(path, 3)

    check(read_packed, gzip.compress(head + bytes(3 * 28 * 28)), 1000)


def test_labels_of_flowers(tmp_path):
    path = tmp_path / "labels.mat"
    name = struct.pack("<HH4s", 1, 4, b"lbls")
    body = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, 1, 3) + name
    body += struct.pack("<II8s", 2, 3, b"\1\2\3")
    good = b"MATLAB 5".ljust(124) + b"\0\1IM" + struct.pack("<II", 14, len(body)) + body

    def read(data):
        replace(path, data)
        matlab.load_matrices(path)

    check(read, good, 2000, refused_at_least=0.1)


def test_pickled_batches():
    import pickle

    good = pickle.dumps(
        {b"data": np.zeros((4, 12), np.uint8), b"labels": [1, 2, 3, 4]}, 2
    )
    check(lambda data: pickle_reader.read_file(io.BytesIO(data), "batch"), good, 2000)


def test_lines_of_slots(static_mode, tmp_path):
    ids = static.data("ids", [None, 1], "int64", lod_level=1)
    dense = static.data("dense", [None, 3])
    path = tmp_path / "part-0"
    good = b"".join(b"%d %s 3 .5 1 2\n" % (n, b"7 " * n) for n in range(1, 30))

    def read(data):
        replace(path, data)
        dataset = InMemoryDataset()
        dataset.init(batch_size=4, thread_num=1, use_var=[ids, dense])
        dataset.set_filelist([str(path)])
        dataset.load_into_memory()

    check(read, good, 300)
