# SPDX-License-Identifier: Apache-2.0
"""Threads that read and map ahead of a consumer that may leave at any time."""

import collections
import threading


class _Closed(BaseException):
    """The consumer has left: no error, and not to be reported as one."""


class _Channel:
    """A bounded queue that can be closed, which wakes all who wait on it."""

    def __init__(self, capacity):
        self._capacity = max(1, capacity)
        self._items = collections.deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item):
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or len(self._items) < self._capacity
            )
            if self._closed:
                raise _Closed
            self._items.append(item)
            self._changed.notify_all()

    def get(self):
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items)
            if self._closed:
                raise _Closed
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self):
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


_END = object()


class _Failure:
    def __init__(self, error):
        self.error = error


def background(reader, capacity):
    """Yields the samples of `reader`, which a thread reads ahead."""
    samples = _Channel(capacity)
    _start(_read, reader, samples)
    try:
        while (sample := samples.get()) is not _END:
            if isinstance(sample, _Failure):
                raise sample.error
            yield sample
    finally:
        samples.close()


def parallel_map(mapper, reader, num_threads, capacity, ordered):
    """Yields mapper(sample), computed by threads."""
    todo, done = _Channel(capacity), _Channel(capacity)
    _start(_read, lambda: enumerate(reader()), todo)
    for _ in range(num_threads):
        _start(_map, mapper, todo, done)
    try:
        results = _collect(done, num_threads)
        yield from _in_order(results) if ordered else (r for _, r in results)
    finally:
        todo.close()
        done.close()


def _start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


def _read(reader, samples):
    try:
        try:
            for sample in reader():
                samples.put(sample)
            samples.put(_END)
        except Exception as error:
            samples.put(_Failure(error))
    except _Closed:
        pass


def _map(mapper, todo, done):
    try:
        try:
            while (item := todo.get()) is not _END:
                if isinstance(item, _Failure):
                    raise item.error
                number, sample = item
                done.put((number, mapper(sample)))
            todo.put(_END)  # for the next thread
            done.put(_END)
        except Exception as error:
            done.put(_Failure(error))
    except _Closed:
        pass


def _collect(done, num_threads):
    while num_threads:
        item = done.get()
        if isinstance(item, _Failure):
            raise item.error
        if item is _END:
            num_threads -= 1
        else:
            yield item


def _in_order(results):
    early, expected = {}, 0
    for number, result in results:
        early[number] = result
        while expected in early:
            yield early.pop(expected)
            expected += 1
