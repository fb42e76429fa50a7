# SPDX-License-Identifier: Apache-2.0
"""Readers made of readers."""

import itertools
import random

from .threads import background, parallel_map


class ComposeNotAligned(ValueError):
    """Composed readers ended at different samples."""


def cache(reader):
    """Reads `reader` once, when this is called, and repeats it from memory."""
    samples = tuple(reader())
    return lambda: iter(samples)


def map_readers(func, *readers):
    """A reader of func(a, b, ...) over the samples of all readers in step."""
    return lambda: map(func, *(reader() for reader in readers))


def shuffle(reader, buf_size):
    """Shuffles runs of `buf_size` samples, by Python's `random`."""

    def shuffled():
        samples = iter(reader())
        while run := list(itertools.islice(samples, buf_size)):
            random.shuffle(run)
            yield from run

    return shuffled


def chain(*readers):
    """One reader after the other."""
    return lambda: itertools.chain.from_iterable(reader() for reader in readers)


def compose(*readers, check_alignment=True):
    """Joins the samples of readers in step: (1, 2) and 3 make (1, 2, 3).

    Raises ComposeNotAligned when one reader ends before another, unless
    `check_alignment` is false; the rest is then dropped.
    """
    end = object()

    def composed():
        for row in itertools.zip_longest(*(r() for r in readers), fillvalue=end):
            if any(sample is end for sample in row):
                if check_alignment:
                    raise ComposeNotAligned(
                        "paddle.reader.compose: the readers differ in length"
                    )
                return
            fields = []
            for sample in row:
                fields.extend(sample if isinstance(sample, tuple) else (sample,))
            yield tuple(fields)

    return composed


def firstn(reader, n):
    """The first `n` samples."""
    return lambda: itertools.islice(reader(), n)


def buffered(reader, size):
    """Reads up to `size` samples ahead on a thread."""
    return lambda: background(reader, size)


def xmap_readers(mapper, reader, process_num, buffer_size, order=False):
    """Maps samples by `process_num` threads, `buffer_size` ahead.

    The samples come in the reader's order with `order`, else as they are done.
    """
    return lambda: parallel_map(mapper, reader, process_num, buffer_size, order)


def multiprocess_reader(readers, use_pipe=True, queue_size=1000):
    """Reads each of `readers` in a process of its own, by turns.

    `use_pipe` and `queue_size` are accepted for compatibility. An exception of
    a reader is raised here, with its traceback in the message.
    """
    readers = list(readers)
    if not readers:
        raise ValueError("paddle.reader.multiprocess_reader: needs a reader")

    def read():
        # Imported late, so that the other readers cost nothing.
        from paddle.io import DataLoader, IterableDataset, get_worker_info

        class OneEach(IterableDataset):
            def __iter__(self):
                return iter(readers[get_worker_info().id]())

        # Lists of many samples, to cross the process boundary seldom; a
        # wrapper, to keep arrays from becoming tensors.
        loader = DataLoader(
            OneEach(),
            batch_size=64,
            collate_fn=_Samples,
            num_workers=len(readers),
        )
        for batch in loader:
            yield from batch.samples

    return read


class _Samples:
    def __init__(self, samples):
        self.samples = samples
