# SPDX-License-Identifier: Apache-2.0
"""paddle.dataset: readers over archives in the cache folder."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import zlib

import numpy as np
import pytest
from paddle.dataset import cifar, common, flowers, imdb, mnist, uci_housing
from paddle.dataset.matlab import load_matrices
from paddle.framework import pickle_reader
from PIL import Image


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    return tmp_path


def put(home, module, name, data):
    folder = home / module
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


def tar(files, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "read, path",
    [
        (mnist.train, "mnist/train-images-idx3-ubyte.gz"),
        (mnist.test, "mnist/t10k-images-idx3-ubyte.gz"),
        (cifar.train10, "cifar/cifar-10-python.tar.gz"),
        (cifar.test100, "cifar/cifar-100-python.tar.gz"),
        (uci_housing.train, "uci_housing/housing.data"),
        (imdb.word_dict, "imdb/aclImdb_v1.tar.gz"),
        (flowers.train, "flowers/102flowers.tgz"),
    ],
)
def test_an_absent_file_is_named_with_its_place(read, path, home):
    with pytest.raises(FileNotFoundError) as caught:
        read()
    assert common.DATA_HOME == str(home)
    assert f"at {home / path}" in str(caught.value)
    assert "as found at http" in str(caught.value)


def test_the_cache_folder_is_the_one_of_paddle():
    assert common.download.__module__ == "paddle.dataset.common"
    import importlib.util

    fresh = importlib.util.module_from_spec(common.__spec__)
    common.__spec__.loader.exec_module(fresh)
    assert fresh.DATA_HOME == os.path.expanduser("~/.cache/paddle/dataset")


def idx(array):
    head = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def test_mnist_scales_pixels(home):
    images = np.arange(3 * 28 * 28, dtype=np.int64).reshape(3, 28, 28) % 256
    images = images.astype(np.uint8)
    put(home, "mnist", "train-images-idx3-ubyte.gz", idx(images))
    put(home, "mnist", "train-labels-idx1-ubyte.gz", idx(np.array([7, 0, 9], "u1")))
    samples = list(mnist.train()())
    assert [label for _, label in samples] == [7, 0, 9]
    assert samples[0][0].dtype == np.float32 and samples[0][0].shape == (784,)
    np.testing.assert_allclose(
        np.stack([x for x, _ in samples]),
        images.reshape(3, 784) / 127.5 - 1,
        atol=1e-6,
    )


def test_damaged_mnist_files_are_refused(home):
    put(home, "mnist", "t10k-images-idx3-ubyte.gz", idx(np.zeros((2, 28, 28), "u1")))
    put(home, "mnist", "t10k-labels-idx1-ubyte.gz", idx(np.zeros(3, "u1")))
    with pytest.raises(ValueError, match="2 images, but 3 labels"):
        list(mnist.test()())
    short = gzip.compress(gzip.decompress(idx(np.zeros((2, 28, 28), "u1")))[:-1])
    put(home, "mnist", "t10k-images-idx3-ubyte.gz", short)
    with pytest.raises(ValueError, match="1567 bytes of data"):
        list(mnist.test()())
    put(home, "mnist", "t10k-images-idx3-ubyte.gz", gzip.compress(b"no"))
    with pytest.raises(ValueError, match="not an IDX file"):
        list(mnist.test()())


def test_cifar_reads_its_pickles(home):
    rng = np.random.RandomState(0)

    def batch(labels, key=b"labels"):
        data = rng.randint(0, 256, (len(labels), 3072)).astype("u1")
        return data, pickle.dumps({b"data": data, key: labels}, protocol=2)

    first, one = batch([3, 1])
    second, two = batch([2])
    _, other = batch([9])
    archive = tar(
        {
            "cifar-10-batches-py/data_batch_1": one,
            "cifar-10-batches-py/data_batch_2": two,
            "cifar-10-batches-py/test_batch": other,
        }
    )
    put(home, "cifar", "cifar-10-python.tar.gz", archive)
    samples = list(cifar.train10()())
    assert [label for _, label in samples] == [3, 1, 2]
    pixels = np.stack([x for x, _ in samples])
    assert pixels.dtype == np.float32
    np.testing.assert_allclose(pixels, np.vstack([first, second]) / 255, rtol=1e-6)
    assert [label for _, label in cifar.test10()()] == [9]
    endless = cifar.test10(cycle=True)()
    assert [next(endless)[1] for _ in range(3)] == [9, 9, 9]
    fine = tar({"cifar-100-python/train": batch([42], b"fine_labels")[1]})
    put(home, "cifar", "cifar-100-python.tar.gz", fine)
    assert [label for _, label in cifar.train100()()] == [42]
    with pytest.raises(ValueError, match="no file named test"):
        list(cifar.test100()())


class Hostile:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize("value", [Hostile(), [np.zeros(2), Hostile()], eval])
def test_pickles_that_would_run_code_are_refused(value):
    file = io.BytesIO(pickle.dumps(value))
    with pytest.raises(ValueError, match="samples: .*arrays and plain containers"):
        pickle_reader.read_file(file, "samples")


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_plain_pickles_are_read(protocol):
    value = {"a": [np.arange(6).reshape(2, 3), (1, 2.5, None)], b"b": np.float32(3)}
    file = io.BytesIO(pickle.dumps(value, protocol))
    loaded = pickle_reader.read_file(file, "samples")
    np.testing.assert_array_equal(loaded["a"][0], value["a"][0])
    assert loaded["a"][1] == (1, 2.5, None)
    assert loaded[b"b"] == np.float32(3)


def test_uci_housing_scales_features_and_splits(home):
    rows = np.random.RandomState(0).rand(10, 14).round(4)
    text = "\n".join(" ".join(f"{v:8.4f}" for v in row) for row in rows)
    put(home, "uci_housing", "housing.data", text.encode())
    train, test = list(uci_housing.train()()), list(uci_housing.test()())
    assert (len(train), len(test)) == (8, 2)
    features = np.stack([x for x, _ in train + test])
    expected = (rows - rows.mean(0)) / (rows.max(0) - rows.min(0))
    np.testing.assert_allclose(features, expected[:, :13], atol=1e-12)
    np.testing.assert_allclose([y[0] for _, y in train + test], rows[:, 13])
    put(home, "uci_housing", "housing.data", b"1 2 3")
    with pytest.raises(ValueError, match="3 numbers"):
        list(uci_housing.train()())


def test_imdb_counts_words_and_numbers_reviews(home):
    files = {
        "aclImdb/train/pos/0_9.txt": b"Good, good film!\n",
        "aclImdb/train/neg/0_2.txt": b"Bad film; bad, bad...",
        "aclImdb/test/pos/0_8.txt": b"good plot",
        "aclImdb/train/unsup/0_0.txt": b"ignored ignored ignored",
    }
    put(home, "imdb", "aclImdb_v1.tar.gz", tar(files))
    words = imdb.word_dict(cutoff=1)
    # Three times each, then two; equal counts in alphabetical order.
    assert words == {b"bad": 0, b"good": 1, b"film": 2, "<unk>": 3}
    reader = imdb.train(words)
    assert list(reader()) == list(reader()) == [([1, 1, 2], 0), ([0, 2, 0, 0], 1)]
    assert list(imdb.test(words)()) == [([1, 3], 0)]


def matlab(order, compress, **matrices):
    def element(kind, data):
        padding = b"" if kind == 15 else b"\0" * (-len(data) % 8)
        return struct.pack(order + "II", kind, len(data)) + data + padding

    out = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(order + "H", 0x0100)
    out += b"IM" if order == "<" else b"MI"
    for name, array in matrices.items():
        short = len(name) <= 4
        tag = struct.pack(order + "I", 1 | len(name) << 16) + name.encode().ljust(4)
        body = element(6, struct.pack(order + "II", 6, 0))
        body += element(5, struct.pack(order + "2i", *array.shape))
        body += tag if short else element(1, name.encode())
        kind = {"u1": 2, "u2": 4, "f8": 9}[array.dtype.str[1:]]
        body += element(
            kind, array.astype(array.dtype.newbyteorder(order)).tobytes("F")
        )
        matrix = element(14, body)
        out += element(15, zlib.compress(matrix)) if compress else matrix
    return out


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compress", [False, True])
def test_matlab_files_are_read(order, compress, tmp_path):
    one = np.arange(6, dtype="u2").reshape(2, 3)
    two = np.array([[0.5, -1]])
    path = tmp_path / "x.mat"
    data = matlab(order, compress, ids=one, measures=two)
    path.write_bytes(data)
    found = load_matrices(path)
    assert set(found) == {"ids", "measures"}
    np.testing.assert_array_equal(found["ids"], one)
    np.testing.assert_array_equal(found["measures"], two)
    path.write_bytes(data[:-20])
    with pytest.raises(ValueError, match="damaged"):
        load_matrices(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="not a MATLAB 5 file"):
        load_matrices(path)


@pytest.mark.parametrize("use_xmap", [False, True])
def test_flowers_joins_images_and_labels(use_xmap, home):
    files = {}
    for number, colour in enumerate([(250, 10, 20), (0, 0, 255), (9, 200, 9)], 1):
        buffer = io.BytesIO()
        Image.new("RGB", (300, 280), colour).save(buffer, "JPEG", quality=95)
        files[f"jpg/image_{number:05d}.jpg"] = buffer.getvalue()
    put(home, "flowers", "102flowers.tgz", tar(files))
    labels = matlab("<", True, labels=np.array([[77, 5, 102]], "u1"))
    put(home, "flowers", "imagelabels.mat", labels)
    sets = matlab(
        "<",
        True,
        tstid=np.array([[1, 3]], "u2"),
        trnid=np.array([[2]], "u2"),
        valid=np.array([[2]], "u2"),
    )
    put(home, "flowers", "setid.mat", sets)
    samples = sorted(flowers.train(use_xmap=use_xmap)(), key=lambda s: s[1])
    assert [label for _, label in samples] == [76, 101]
    pixels = samples[0][0]
    assert pixels.dtype == np.float32 and pixels.shape == (3 * 224 * 224,)
    # Blue first, less the mean of each channel.
    expected = np.array([20, 10, 250]) - [103.94, 116.78, 123.68]
    np.testing.assert_allclose(pixels.reshape(3, -1).mean(1), expected, atol=3)
    assert [label for _, label in flowers.test(use_xmap=use_xmap)()] == [4]
    assert [label for _, label in flowers.valid(use_xmap=use_xmap)()] == [4]


def test_split_and_cluster_files_reader_round_trip(home):
    pattern = str(home / "part-%03d.pickle")
    common.split(lambda: ((i, np.full(2, i)) for i in range(7)), 2, suffix=pattern)
    assert len(list(home.glob("part-*.pickle"))) == 4
    reader = common.cluster_files_reader(str(home / "part-*.pickle"), 2, 1)
    samples = list(reader())
    assert [i for i, _ in samples] == [2, 3, 6]
    assert all((a == i).all() for i, a in samples)


def test_md5file_is_the_md5_sum(home):
    (home / "x").write_bytes(b"abc")
    assert common.md5file(home / "x") == "900150983cd24fb0d6963f7d28e17f72"
