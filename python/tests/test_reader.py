# SPDX-License-Identifier: Apache-2.0
"""paddle.reader and paddle.batch: readers made of readers."""

import random
import threading

import numpy as np
import paddle
import pytest
from paddle.batch import batch
from paddle.reader import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)


def count(n):
    return lambda: iter(range(n))


def failing():
    yield 1
    raise OSError("file is gone")


def test_batch_groups_samples():
    assert list(batch(count(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(batch(count(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(batch(count(0), 2)()) == []
    for size in (0, -1, 1.5):
        with pytest.raises(ValueError, match="batch_size must be a positive"):
            batch(count(5), size)


def test_simple_readers():
    assert list(map_readers(lambda a, b: a + b, count(3), count(3))()) == [0, 2, 4]
    assert list(chain(count(2), count(3))()) == [0, 1, 0, 1, 2]
    assert list(firstn(count(10), 3)()) == [0, 1, 2]
    reader = chain(count(2))
    assert list(reader()) == list(reader()) == [0, 1]


def test_cache_reads_once():
    calls = []

    def reader():
        calls.append(1)
        yield from range(3)

    cached = cache(reader)
    assert list(cached()) == list(cached()) == [0, 1, 2]
    assert len(calls) == 1


def test_shuffle_stays_within_its_buffer():
    random.seed(0)
    shuffled = list(shuffle(count(100), 10)())
    assert shuffled != list(range(100))
    for start in range(0, 100, 10):
        assert sorted(shuffled[start : start + 10]) == list(range(start, start + 10))


def test_compose_flattens_and_checks_lengths():
    pairs = map_readers(lambda i: (i, -i), count(3))
    assert list(compose(pairs, count(3))()) == [(0, 0, 0), (1, -1, 1), (2, -2, 2)]
    with pytest.raises(ComposeNotAligned):
        list(compose(count(3), count(4))())
    loose = compose(count(3), count(4), check_alignment=False)
    assert list(loose()) == [(0, 0), (1, 1), (2, 2)]


def test_buffered_keeps_order_and_passes_errors_on():
    assert list(buffered(count(100), 7)()) == list(range(100))
    with pytest.raises(OSError, match="file is gone"):
        list(buffered(failing, 7)())


@pytest.mark.parametrize("order", [False, True])
def test_xmap_maps_all_samples(order):
    mapped = list(xmap_readers(lambda i: i * i, count(200), 4, 8, order)())
    if not order:
        mapped.sort()
    assert mapped == [i * i for i in range(200)]
    with pytest.raises(OSError, match="file is gone"):
        list(xmap_readers(lambda i: i, failing, 4, 8, order)())
    with pytest.raises(ZeroDivisionError):
        list(xmap_readers(lambda i: 1 // (i - 5), count(9), 2, 8, order)())


def test_leaving_early_ends_the_threads():
    before = set(threading.enumerate())
    endless = iter(int, 1)
    for reader in (
        buffered(lambda: endless, 4),
        xmap_readers(lambda i: i, lambda: endless, 3, 4),
    ):
        samples = reader()
        assert next(samples) == 0
        samples.close()
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in started)


def test_multiprocess_reader_joins_processes():
    def arrays(first):
        return lambda: ((np.full(3, i), i) for i in range(first, first + 100))

    samples = list(multiprocess_reader([arrays(0), arrays(1000)])())
    assert sorted(i for _, i in samples) == [*range(100), *range(1000, 1100)]
    assert all(type(a) is np.ndarray and (a == i).all() for a, i in samples)
    with pytest.raises(OSError, match="file is gone"):
        list(multiprocess_reader([failing])())
    with pytest.raises(ValueError, match="needs a reader"):
        multiprocess_reader([])


def test_the_names_are_where_scripts_look_for_them():
    assert paddle.batch is batch
    assert paddle.reader.shuffle is shuffle
