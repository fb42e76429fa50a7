# SPDX-License-Identifier: Apache-2.0
"""paddle.io.DataLoader: what it yields, and its processes."""

import gc
import os
import random
import select
import signal
import socket
import threading
import time

import numpy as np
import paddle
import pytest
from io_samples import Call, Count, Images, Squares, children, leaves_nothing, num
from paddle import _core, _ops
from paddle.io import DataLoader, get_worker_info

assert leaves_nothing  # a fixture


# DataLoader: what it yields


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_loader_yields_the_batches_in_order(num_workers, drop_last, leaves_nothing):
    loader = DataLoader(
        Squares(23), batch_size=4, drop_last=drop_last, num_workers=num_workers
    )
    for _ in range(2):
        batches = [(num(x), num(y)) for x, y in loader]
        assert len(batches) == len(loader) == (5 if drop_last else 6)
        order = np.concatenate([y for _, y in batches])
        count = 20 if drop_last else 23
        np.testing.assert_array_equal(order, np.arange(count) ** 2)
        assert all(isinstance(v, paddle.Tensor) for batch in loader for v in batch)
        for x, y in batches:
            assert (x.dtype, y.dtype) == (np.float32, np.int64)
            assert x.shape == (len(y), 2, 3) and y.shape == (len(y),)
            np.testing.assert_array_equal(x[:, 1, 2] ** 2, y)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_keeps_the_form_of_samples(num_workers, leaves_nothing):
    def sample(i):
        return {
            "x": np.full(2, i, "float64"),
            "nested": [np.int32(i), {"deep": (i, "s" * i)}],
        }

    for batch in DataLoader(Call(4, sample), batch_size=2, num_workers=num_workers):
        assert num(batch["x"]).dtype == np.float64
        first, rest = batch["nested"]
        assert num(first).dtype == np.int32
        count, text = rest["deep"]
        assert text == ["s" * i for i in num(count)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_single_field_is_not_wrapped(num_workers):
    loader = DataLoader(
        Call(4, lambda i: np.full(3, i)), batch_size=2, num_workers=num_workers
    )
    first, second = loader
    np.testing.assert_array_equal(num(first), [[0] * 3, [1] * 3])
    np.testing.assert_array_equal(num(second), [[2] * 3, [3] * 3])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batch_size_none_gives_samples_as_they_are(num_workers):
    loader = DataLoader(Squares(3), batch_size=None, num_workers=num_workers)
    samples = list(loader)
    assert len(samples) == len(loader) == 3
    assert [num(x).shape for x, _ in samples] == [(2, 3)] * 3
    assert [y for _, y in samples] == [0, 1, 4]
    np.random.seed(1)
    shuffled = [y for _, y in DataLoader(Squares(9), batch_size=None, shuffle=True)]
    assert sorted(shuffled) == [i * i for i in range(9)] != shuffled


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_sampler_decides(num_workers):
    batches = [[3, 1], [0], [2, 2, 2]]
    loader = DataLoader(Squares(4), batch_sampler=batches, num_workers=num_workers)
    assert len(loader) == 3
    assert [num(y).tolist() for _, y in loader] == [[9, 1], [0], [4, 4, 4]]


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_iterable_datasets_are_read_by_all_workers(num_workers, leaves_nothing):
    loader = DataLoader(Count(23), batch_size=3, num_workers=num_workers)
    seen = np.concatenate([num(batch)[:, 0] for batch in loader])
    assert sorted(seen) == list(range(23))
    if num_workers < 2:
        assert seen.tolist() == list(range(23))
    with pytest.raises(TypeError, match="not known"):
        len(loader)
    dropping = DataLoader(
        Count(23), batch_size=3, drop_last=True, num_workers=num_workers
    )
    assert {len(num(batch)) for batch in dropping} == {3}
    plain = DataLoader(Count(5), batch_size=None, num_workers=num_workers)
    assert sorted(int(num(v)[0]) for v in plain) == list(range(5))


def test_iterable_batches_alternate_between_workers():
    loader = DataLoader(Count(6), batch_size=1, num_workers=2)
    assert [int(num(v)[0, 0]) for v in loader] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_custom_collate_function_sees_samples(num_workers):
    def pad(samples):
        longest = max(len(s) for s in samples)
        out = np.zeros((len(samples), longest), "int32")
        for row, s in zip(out, samples):
            row[: len(s)] = s
        return {"ids": out.T, "lengths": tuple(len(s) for s in samples)}

    dataset = Call(4, lambda i: np.arange(i + 1))
    batches = list(
        DataLoader(dataset, batch_size=2, collate_fn=pad, num_workers=num_workers)
    )
    np.testing.assert_array_equal(num(batches[0]["ids"]), [[0, 0], [0, 1]])
    np.testing.assert_array_equal(
        num(batches[1]["ids"]), [[0, 0], [1, 1], [2, 2], [0, 3]]
    )
    assert batches[1]["lengths"] == (3, 4)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_empty_datasets_and_empty_arrays(num_workers, leaves_nothing):
    assert list(DataLoader(Squares(0), batch_size=4, num_workers=num_workers)) == []
    with pytest.raises(ValueError, match="the dataset is empty"):
        DataLoader(Squares(0), shuffle=True, num_workers=num_workers)
    assert list(DataLoader(Count(0), batch_size=4, num_workers=num_workers)) == []
    assert list(DataLoader(Squares(3), batch_sampler=[], num_workers=2)) == []
    no_rows = Call(2, lambda i: np.zeros((0, 3), "float32"))
    (batch,) = DataLoader(no_rows, batch_size=2, num_workers=num_workers)
    assert num(batch).shape == (2, 0, 3)


def test_the_loader_can_be_called_and_iterated_at_once():
    loader = DataLoader(Squares(4), batch_size=2, num_workers=1)
    pairs = [(num(a[1]).tolist(), num(b[1]).tolist()) for a, b in zip(loader(), loader)]
    assert pairs == [([0, 1], [0, 1]), ([4, 9], [4, 9])]
    assert len(loader()) == 2


# DataLoader: shared memory


def test_batches_kept_by_the_script_keep_their_values(leaves_nothing):
    kept = list(DataLoader(Images(96), batch_size=8, num_workers=2))
    for i, (x, y) in enumerate(kept):
        expected = np.arange(8 * i, 8 * i + 8)
        np.testing.assert_array_equal(num(y), expected)
        np.testing.assert_array_equal(num(x)[:, 2, 63, 63], expected)
    del kept, x, y


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("custom", [False, True])
def test_samples_may_hold_tensors(num_workers, custom, leaves_nothing):
    def sample(i):
        image = paddle.Tensor(_core.from_object(np.full((64, 64), i, "float32")))
        return image, {"scale": _core.from_object(np.float32([i, i]))}

    def stack(samples):
        images = np.stack([image.numpy() for image, _ in samples])
        scales = np.stack([fields["scale"].numpy() for _, fields in samples])
        return [_core.from_object(images), {"scale": _core.from_object(scales)}]

    loader = DataLoader(
        Call(12, sample),
        batch_size=4,
        num_workers=num_workers,
        collate_fn=stack if custom else None,
    )
    for i, (image, fields) in enumerate(loader):
        assert isinstance(image, paddle.Tensor)
        rows = np.arange(4 * i, 4 * i + 4)
        np.testing.assert_array_equal(image.numpy()[:, 3, 5], rows)
        np.testing.assert_array_equal(fields["scale"].numpy()[:, 1], rows)
    del image, fields


def test_tensors_do_not_alias_what_a_collate_function_keeps():
    data = np.zeros((3, 2), "float32")
    loader = DataLoader(Call(3, lambda i: data[i]), batch_size=None)
    for row in loader:
        row.set_value(np.ones(2, "float32"))
    assert (data == 0).all()


def test_large_batches_come_without_another_copy(leaves_nothing):
    """The tensors of an epoch lie in the few slots that its worker has."""
    places = set()
    device = paddle.get_device()
    paddle.set_device("cpu")
    try:
        for x, _ in DataLoader(Images(400), batch_size=4, num_workers=1):
            places.add(x._data_ptr())
    finally:
        paddle.set_device(device)
    assert 2 <= len(places) <= 4
    del x


def test_kept_labels_do_not_hold_images(leaves_nothing):
    labels = [y for _, y in DataLoader(Images(64), batch_size=4, num_workers=1)]
    np.testing.assert_array_equal(np.concatenate([num(y) for y in labels]), range(64))


def test_a_batch_outlives_its_loader(leaves_nothing):
    loader = DataLoader(Images(16), batch_size=8, num_workers=1)
    iterator = iter(loader)
    first = next(iterator)[0]
    del loader, iterator
    gc.collect()
    assert not children()
    np.testing.assert_array_equal(num(first)[:, 0, 0, 0], np.arange(8))
    del first


def test_batches_may_grow_and_shrink(leaves_nothing):
    sizes = [1, 3000, 10, 500_000, 2, 2_000_000, 7]
    dataset = Call(len(sizes), lambda i: (np.full(sizes[i], i, "int16"), np.ones(5)))
    loader = DataLoader(dataset, batch_size=None, num_workers=1, prefetch_factor=1)
    for i, (x, y) in enumerate(loader):
        assert num(x).shape == (sizes[i],) and (num(x) == i).all()
        assert (num(y) == 1).all()
    del x, y


def test_without_shared_memory_tensors_own_their_data(leaves_nothing):
    loader = DataLoader(
        Images(32), batch_size=8, num_workers=2, use_shared_memory=False
    )
    for i, (x, _) in enumerate(loader):
        np.testing.assert_array_equal(num(x)[:, 0, 0, 0], np.arange(8 * i, 8 * i + 8))


def test_text_of_any_length_comes_through(leaves_nothing):
    loader = DataLoader(Call(4, lambda i: "x" * 100_000 + str(i)), num_workers=2)
    assert [text[-1] for (text,) in loader] == ["0", "1", "2", "3"]


def test_long_index_lists_and_deep_prefetch_do_not_block(leaves_nothing):
    indices = list(range(20_000))
    loader = DataLoader(
        Call(20_000, lambda i: "t"),
        batch_sampler=[indices] * 24,
        collate_fn=lambda samples: "y" * 1500,
        num_workers=1,
        prefetch_factor=24,
    )
    assert list(loader) == ["y" * 1500] * 24


# DataLoader: workers


def test_worker_info_names_the_worker():
    def sample(i):
        info = get_worker_info()
        return np.array([info.id, info.num_workers, len(info.dataset)])

    loader = DataLoader(Call(4, sample), num_workers=2)
    rows = [num(batch)[0].tolist() for batch in loader]
    assert rows == [[0, 2, 4], [1, 2, 4], [0, 2, 4], [1, 2, 4]]
    assert get_worker_info() is None


def test_worker_init_fn_runs_once_in_each_worker():
    started = []
    loader = DataLoader(
        Call(4, lambda i: np.array(started)),
        num_workers=2,
        worker_init_fn=started.append,
        persistent_workers=True,
    )
    for _ in range(2):
        assert [num(b).tolist() for b in loader] == [[[0]], [[1]], [[0]], [[1]]]
    assert started == []


def test_a_failing_worker_init_fn_is_reported(leaves_nothing):
    def fail(worker_id):
        raise LookupError(f"no licence for {worker_id}")

    with pytest.raises(LookupError, match="no licence for 0"):
        next(iter(DataLoader(Squares(4), num_workers=1, worker_init_fn=fail)))


def test_persistent_workers_serve_all_epochs(leaves_nothing):
    loader = DataLoader(
        Call(6, lambda i: (i, os.getpid())), num_workers=2, persistent_workers=True
    )
    epochs = [[(int(num(i)[0]), int(num(p)[0])) for i, p in loader] for _ in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    assert [i for i, _ in epochs[0]] == list(range(6))
    # An epoch left early does not leak into the next.
    for i, _ in loader:
        break
    assert [(int(num(i)[0]), int(num(p)[0])) for i, p in loader] == epochs[0]
    old = iter(loader)
    new = iter(loader)
    with pytest.raises(RuntimeError, match="another was started"):
        next(old)
    assert int(num(next(new)[0])[0]) == 0
    del loader, old, new


def test_persistent_workers_restart_after_a_failure(leaves_nothing):
    flag = []

    def sample(i):
        if i == 2 and not flag:
            raise ValueError("bad sample")
        return i

    loader = DataLoader(Call(4, sample), num_workers=1, persistent_workers=True)
    with pytest.raises(ValueError, match="bad sample"):
        list(loader)
    flag.append(True)
    assert [int(num(b)[0]) for b in loader] == [0, 1, 2, 3]
    del loader


def test_persistent_workers_iterate_anew():
    loader = DataLoader(Count(5), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert sorted(v for b in loader for v in num(b)[:, 0]) == list(range(5))


def test_workers_run_ahead_by_prefetch_factor_and_no_more(leaves_nothing):
    read, write = os.pipe()
    os.set_blocking(read, False)

    def sample(i):
        os.write(write, b"%c" % i)
        return i

    loader = DataLoader(Call(12, sample), num_workers=2, prefetch_factor=3)
    iterator = iter(loader)
    made = b""
    while len(made) < 6:
        select.select([read], [], [], 30)
        made += os.read(read, 100)
    assert sorted(made) == [0, 1, 2, 3, 4, 5]
    assert int(num(next(iterator))[0]) == 0
    assert select.select([read], [], [], 30)[0]
    assert os.read(read, 100) == bytes([6])
    del iterator
    os.close(read)
    os.close(write)


def test_a_slow_worker_does_not_change_the_order(leaves_nothing):
    def sample(i):
        if get_worker_info().id == 0:
            time.sleep(0.02)
        return i

    loader = DataLoader(Call(10, sample), num_workers=3)
    assert [int(num(b)[0]) for b in loader] == list(range(10))


def test_workers_are_alone_with_their_parent(leaves_nothing):
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    fd = server.fileno()

    def sample(i):
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        link = os.readlink(f"/proc/self/fd/{fd}")
        threads = _core.get_num_threads()
        sockets = sum(
            os.path.exists(path) and os.readlink(path).startswith("socket:")
            for path in (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
            if int(path.rsplit("/", 1)[1]) > 2
        )
        return str((ignored, link, threads, sockets))

    loader = DataLoader(Call(2, sample), num_workers=2)
    assert [text for (text,) in loader] == [str((True, "/dev/null", 1, 1))] * 2
    server.close()


def test_workers_may_compute_though_the_parent_has_threads(leaves_nothing):
    matrix = np.random.RandomState(0).rand(300, 300).astype("float32")
    tensor = _core.from_object(matrix)._to("cpu", True)  # workers have no GPU

    def product(i=0):
        return _ops.matmul_v2(_ops.exp(tensor), tensor, False, False)

    threads = _core.get_num_threads()
    _core.set_num_threads(2)
    product()
    try:
        found = list(DataLoader(Call(4, product), num_workers=2))
    finally:
        _core.set_num_threads(threads)
    for batch in found:
        np.testing.assert_allclose(num(batch)[0], np.exp(matrix) @ matrix, rtol=1e-5)
    del found, batch


def test_workers_draw_different_and_reproducible_numbers():
    def sample(i):
        drawn = _core.draw_seed() / 2**64
        return np.array([random.random(), np.random.rand(), drawn])

    def epoch():
        return np.concatenate(
            [num(b) for b in DataLoader(Call(6, sample), num_workers=2)]
        )

    paddle.seed(3)
    first, second = epoch(), epoch()
    assert len(np.unique(np.stack([first, second]))) == 36
    paddle.seed(3)
    np.testing.assert_array_equal(epoch(), first)
    np.testing.assert_array_equal(epoch(), second)


def test_the_loader_works_on_any_thread(leaves_nothing):
    """Its workers outlive the thread that started them, but not the process."""
    found = []

    def start():
        found.append(iter(DataLoader(Images(400), batch_size=4, num_workers=2)))
        found.append(next(found[0]))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    iterator, first = found
    labels = [num(first[1])] + [num(y) for _, y in iterator]
    np.testing.assert_array_equal(np.concatenate(labels), np.arange(400))
    del iterator, first
    found.clear()


# DataLoader.from_generator


def samples():
    for i in range(5):
        yield np.full(2, i, "float32"), i


@pytest.mark.parametrize("use_multiprocess", [False, True])
def test_from_generator_takes_three_kinds_of_sources(use_multiprocess, leaves_nothing):
    def make():
        return DataLoader.from_generator(
            capacity=4, use_multiprocess=use_multiprocess, return_list=True
        )

    def labels(loader):
        return [num(y).tolist() for _, y in loader()]

    loader = make().set_sample_generator(samples, batch_size=2)
    assert labels(loader) == labels(loader) == [[0, 1], [2, 3]]
    loader = make().set_sample_generator(samples, batch_size=2, drop_last=False)
    assert labels(loader) == [[0, 1], [2, 3], [4]]
    loader = make().set_sample_list_generator(lambda: [list(samples())])
    ((x, y),) = loader
    assert num(x).shape == (5, 2) and num(y).dtype == np.int64
    loader = make().set_batch_generator(lambda: [(np.ones((3, 2)), [0.5, 1, 2])])
    ((x, y),) = loader
    assert num(x).dtype == np.float64 and num(y).dtype == np.float32
    del x, y


def test_from_generator_says_what_it_needs():
    with pytest.raises(RuntimeError, match="set_sample_generator"):
        iter(DataLoader.from_generator(capacity=2))
    with pytest.raises(ValueError, match="feed_list must say"):
        DataLoader.from_generator(capacity=2, iterable=False)
    with pytest.raises(ValueError, match="capacity"):
        DataLoader.from_generator(capacity=0)
    with pytest.raises(TypeError, match="takes an InMemoryDataset"):
        DataLoader.from_dataset(None, None)


def test_a_generator_s_exception_comes_through(leaves_nothing):
    def bad():
        yield np.zeros(1), 0
        raise OSError("pipe closed")

    for use_multiprocess in (False, True):
        loader = DataLoader.from_generator(use_multiprocess=use_multiprocess)
        loader.set_sample_generator(bad, batch_size=1)
        with pytest.raises(OSError, match="pipe closed"):
            list(loader)
