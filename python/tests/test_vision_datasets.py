# SPDX-License-Identifier: Apache-2.0
"""paddle.vision.datasets over tiny archives written here."""

import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import paddle
import paddle.dataset.common
import pytest
from paddle.vision import set_image_backend
from paddle.vision.datasets import (
    MNIST,
    VOC2012,
    Cifar10,
    Cifar100,
    DatasetFolder,
    FashionMNIST,
    Flowers,
    ImageFolder,
)
from paddle.vision.transforms import ToTensor
from PIL import Image


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Paddle's cache folder, empty."""
    monkeypatch.setattr(paddle.dataset.common, "DATA_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def array_backend():
    set_image_backend("cv2")
    yield
    set_image_backend("pil")


def write_tar(path, files, mode="w:gz"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def cifar_batch(num, seed, labels=b"labels", classes=10):
    rng = np.random.default_rng(seed)
    return {
        b"data": rng.integers(0, 256, (num, 3072), dtype=np.uint8),
        labels: rng.integers(0, classes, num).tolist(),
        b"filenames": [b"%d.png" % i for i in range(num)],
    }


def write_cifar10(home, protocol=2, **replaced):
    batches = {f"data_batch_{i}": cifar_batch(4, i) for i in (1, 2)}
    batches["test_batch"] = cifar_batch(3, 9)
    batches["batches.meta"] = {b"label_names": [b"cat"]}
    batches.update(replaced)
    files = {
        "cifar-10-batches-py/" + name: pickle.dumps(value, protocol)
        for name, value in batches.items()
    }
    write_tar(home / "cifar" / "cifar-10-python.tar.gz", files)
    return batches


# -- CIFAR


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifar10_gives_images_and_labels_in_the_archives_order(home, protocol):
    batches = write_cifar10(home, protocol)
    dataset = Cifar10(mode="train")
    assert len(dataset) == 8
    for i in range(8):
        batch, row = batches[f"data_batch_{i // 4 + 1}"], i % 4
        image, label = dataset[i]
        expected = batch[b"data"][row].reshape(3, 32, 32).transpose(1, 2, 0)
        np.testing.assert_array_equal(np.asarray(image), expected)
        assert isinstance(label, np.ndarray)
        assert label.shape == () and label.dtype == np.int64
        assert label == batch[b"labels"][row]
    assert len(Cifar10(mode="test")) == 3


def test_cifar10_reads_what_python_2_wrote(home):
    # Protocol 2 as Python 2 wrote it: text keys, pixels as a byte string (opcode T).
    pixels = np.arange(3072, dtype=np.uint32).astype(np.uint8)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<I", 3072)
        + pixels.tobytes()
        + b"tb"
    )
    batch = b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x07eu."
    assert pickle.loads(batch, encoding="bytes")[b"labels"] == [7]
    write_tar(home / "cifar" / "cifar-10-python.tar.gz", {"c/test_batch": batch})
    image, label = Cifar10(mode="test")[0]
    np.testing.assert_array_equal(
        np.asarray(image), pixels.reshape(3, 32, 32).transpose(1, 2, 0)
    )
    assert label == 7


def test_cifar10_with_to_tensor_gives_planes_between_0_and_1(home):
    batches = write_cifar10(home)
    expected = batches["test_batch"][b"data"][1].reshape(3, 32, 32) / 255.0
    for backend in ("pil", "cv2"):
        dataset = Cifar10(mode="TEST", transform=ToTensor(), backend=backend)
        image, _ = dataset[1]
        assert isinstance(image, paddle.Tensor) and image.shape == [3, 32, 32]
        assert image.dtype == paddle.float32
        np.testing.assert_allclose(image.numpy(), expected, rtol=1e-6)


def test_cifar10_as_arrays_is_float_without_scaling(home, array_backend):
    batches = write_cifar10(home)
    image, _ = Cifar10(mode="test")[0]
    assert image.dtype == np.float32 and image.shape == (32, 32, 3)
    expected = batches["test_batch"][b"data"][0].reshape(3, 32, 32)
    np.testing.assert_array_equal(image.transpose(2, 0, 1), expected)


def test_cifar100_takes_the_fine_labels(home):
    batch = cifar_batch(5, 1, b"fine_labels", 100)
    batch[b"coarse_labels"] = [0] * 5
    files = {
        "cifar-100-python/train": pickle.dumps(batch, 2),
        "cifar-100-python/test": pickle.dumps(cifar_batch(2, 2, b"fine_labels"), 2),
        "cifar-100-python/meta": pickle.dumps({}, 2),
    }
    write_tar(home / "cifar" / "cifar-100-python.tar.gz", files)
    dataset = Cifar100()
    assert [int(label) for _, label in dataset] == batch[b"fine_labels"]
    assert len(Cifar100(mode="test")) == 2


def test_a_batch_through_the_loader_has_labels_in_one_dimension(home):
    write_cifar10(home)
    dataset = Cifar10(mode="train", transform=ToTensor())
    loader = paddle.io.DataLoader(dataset, batch_size=4)
    for images, labels in loader:
        assert list(images.shape) == [4, 3, 32, 32]
        assert list(labels.shape) == [4]


def test_a_missing_archive_says_which_file_to_put_where(home):
    path = str(home / "cifar" / "cifar-10-python.tar.gz")
    with pytest.raises(FileNotFoundError) as error:
        Cifar10()
    assert path in str(error.value)
    assert "https://" in str(error.value)
    with pytest.raises(FileNotFoundError, match="no file .*absent.tar"):
        Cifar10(data_file=str(home / "absent.tar"))


def test_an_unknown_mode_or_backend_is_named(home):
    with pytest.raises(ValueError, match="'validate'"):
        Cifar10(mode="validate")
    write_cifar10(home)
    with pytest.raises(ValueError, match="'gif'"):
        Cifar10(backend="gif")


def test_a_hostile_archive_runs_nothing(home):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(home / "hacked"),)

    write_cifar10(home, data_batch_1=Hostile())
    with pytest.raises((ValueError, paddle.DataLossError), match="cifar-10-python"):
        Cifar10()
    assert not (home / "hacked").exists()


def test_a_damaged_archive_is_named(home):
    write_cifar10(home)
    path = home / "cifar" / "cifar-10-python.tar.gz"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no archive at all"):
        path.write_bytes(damaged)
        with pytest.raises(paddle.DataLossError, match="cifar-10-python.tar.gz"):
            Cifar10()
    write_tar(path, {"readme": b"hello"})
    with pytest.raises(ValueError, match="no file named data_batch"):
        Cifar10()


@pytest.mark.parametrize(
    "change, text",
    [
        ({b"labels": [1, 2]}, "no labels for 4 images"),
        ({b"labels": [0, 1, 2, 10]}, "labels from 0 to 10"),
        ({b"data": [1, 2]}, "no images"),
        ({b"data": np.zeros((4, 99), np.uint8)}, "images of shape"),
    ],
)
def test_a_batch_that_is_no_cifar_is_refused(home, change, text):
    write_cifar10(home, data_batch_1={**cifar_batch(4, 1), **change})
    with pytest.raises(ValueError, match=text):
        Cifar10()


# -- MNIST


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


@pytest.mark.parametrize("kind, folder", [(MNIST, "mnist"), (FashionMNIST, None)])
def test_mnist_reads_both_files(home, kind, folder):
    folder = home / (folder or "fashion-mnist")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, 6, dtype=np.uint8)
    for prefix, part in (("train", slice(0, 4)), ("t10k", slice(4, 6))):
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images[part])
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", labels[part])
    dataset = kind()
    assert len(dataset) == 4
    image, label = dataset[3]
    assert isinstance(image, Image.Image) and image.mode == "L"
    np.testing.assert_array_equal(np.asarray(image), images[3])
    assert label.dtype == np.int64 and label.tolist() == [labels[3]]
    image, _ = kind(mode="test", transform=ToTensor())[1]
    np.testing.assert_allclose(image.numpy()[0], images[5] / 255.0, rtol=1e-6)
    image, _ = kind(mode="test", backend="cv2")[1]
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, images[5])


def test_mnist_complains_about_what_does_not_fit(home):
    with pytest.raises(FileNotFoundError) as error:
        MNIST()
    path = home / "mnist" / "train-images-idx3-ubyte.gz"
    assert str(path) in str(error.value)
    write_idx(path, np.zeros((3, 28, 28), np.uint8))
    with pytest.raises(FileNotFoundError, match="train-labels-idx1-ubyte.gz"):
        MNIST()
    labels = home / "mnist" / "train-labels-idx1-ubyte.gz"
    write_idx(labels, np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match="3 images, but 2 labels"):
        MNIST()
    labels.write_bytes(labels.read_bytes()[:-12])
    with pytest.raises(paddle.DataLossError, match="train-labels"):
        MNIST()


# -- Flowers and VOC


def image_bytes(pixels, form):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def matlab_file(name, values):
    """A MATLAB 5 file with one row of int32."""

    def element(kind, data):
        return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    values = np.asarray(values, "<i4")
    body = (
        element(6, struct.pack("<II", 12, 0))
        + element(5, struct.pack("<ii", 1, values.size))
        + element(1, name.encode())
        + element(5, values.tobytes())
    )
    return b" " * 124 + b"\x00\x01IM" + element(14, body)


def test_flowers_joins_images_labels_and_sets(home):
    folder = home / "flowers"
    colours = {n: np.full((8, 6, 3), 20 * n, np.uint8) for n in range(1, 6)}
    write_tar(
        folder / "102flowers.tgz",
        {f"jpg/image_{n:05d}.jpg": image_bytes(p, "JPEG") for n, p in colours.items()},
    )
    (folder / "imagelabels.mat").write_bytes(matlab_file("labels", [5, 4, 3, 2, 102]))
    sets = matlab_file("tstid", [4, 1, 5]) + matlab_file("trnid", [2])[128:]
    (folder / "setid.mat").write_bytes(sets)
    dataset = Flowers()
    assert len(dataset) == 3
    for i, (number, label) in enumerate([(4, 2), (1, 5), (5, 102)]):
        image, found = dataset[i]
        assert found.tolist() == [label] and found.dtype == np.int64
        assert np.abs(np.asarray(image).astype(int) - 20 * number).max() <= 2
    image, label = Flowers(mode="test", backend="cv2")[0]
    assert image.shape == (8, 6, 3) and image.dtype == np.float32
    assert label.tolist() == [4]


def test_flowers_names_each_missing_file(home):
    (home / "flowers").mkdir()
    for name in ("102flowers.tgz", "imagelabels.mat", "setid.mat"):
        with pytest.raises(FileNotFoundError, match=name):
            Flowers()
        (home / "flowers" / name).write_bytes(b"")


@pytest.mark.parametrize("compression", ["w", "w:gz"])
def test_voc2012_pairs_photographs_with_classes(home, compression):
    rng = np.random.default_rng(0)
    photo = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    classes = rng.integers(0, 21, (8, 6), dtype=np.uint8)
    root = "VOCdevkit/VOC2012/"
    files = {root + "ImageSets/Segmentation/val.txt": b"2007_01\n2007_02\n"}
    for name in ("2007_01", "2007_02"):
        files[f"{root}JPEGImages/{name}.jpg"] = image_bytes(photo, "JPEG")
        files[f"{root}SegmentationClass/{name}.png"] = image_bytes(classes, "PNG")
    write_tar(home / "voc2012" / "VOCtrainval_11-May-2012.tar", files, compression)
    dataset = VOC2012(mode="valid")
    assert len(dataset) == 2
    image, label = dataset[1]
    assert image.size == (6, 8)
    np.testing.assert_array_equal(np.asarray(label), classes)
    image, label = VOC2012(mode="valid", backend="cv2")[0]
    assert image.shape == (8, 6, 3) and label.dtype == np.float32
    with pytest.raises(paddle.DataLossError, match="trainval.txt"):
        VOC2012(mode="train")


# -- folders


@pytest.fixture
def tree(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("dog/b.png", "dog/deep/a.PNG", "cat/c.png", "cat/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("txt"):
            path.write_text("no image")
        else:
            pixels = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    (tmp_path / "bird").mkdir()
    return tmp_path


def test_dataset_folder_numbers_classes_by_name(tree):
    dataset = DatasetFolder(str(tree))
    assert dataset.classes == ["bird", "cat", "dog"]
    assert dataset.class_to_idx == {"bird": 0, "cat": 1, "dog": 2}
    assert [os.path.relpath(p, tree) for p, _ in dataset.samples] == [
        "cat/c.png",
        "dog/b.png",
        "dog/deep/a.PNG",
    ]
    assert dataset.targets == [1, 2, 2]
    image, target = dataset[2]
    assert isinstance(image, Image.Image) and image.mode == "RGB" and target == 2


def test_dataset_folder_takes_loader_transform_and_filters(tree):
    dataset = DatasetFolder(str(tree), loader=os.path.basename, transform=str.upper)
    assert dataset[0] == ("C.PNG", 1)
    dataset = DatasetFolder(str(tree), os.path.basename, extensions=(".txt",))
    assert [dataset[i] for i in range(len(dataset))] == [("notes.txt", 1)]
    dataset = DatasetFolder(str(tree), is_valid_file=lambda p: "deep" in p)
    assert len(dataset) == 1
    with pytest.raises(ValueError, match="not both"):
        DatasetFolder(str(tree), extensions=(".x",), is_valid_file=bool)
    with pytest.raises(RuntimeError, match=r"no samples .*\.bmp"):
        DatasetFolder(str(tree), extensions=(".bmp",))


def test_image_folder_gives_lists_of_one(tree, array_backend):
    dataset = ImageFolder(str(tree), transform=ToTensor())
    assert len(dataset) == 3
    (image,) = dataset[0]
    with Image.open(dataset.samples[0]) as expected:
        np.testing.assert_allclose(
            image.numpy(), np.asarray(expected).transpose(2, 0, 1) / 255.0, rtol=1e-6
        )
    with pytest.raises(RuntimeError, match="no samples"):
        ImageFolder(str(tree / "bird"))
