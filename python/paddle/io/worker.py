# SPDX-License-Identifier: Apache-2.0
"""What runs in a DataLoader's worker process."""

import ctypes
import gc
import io
import os
import pickle
import random
import select
import signal
import socket
import stat
import struct
import sys
import threading
import traceback
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _tensors
from .batch_buffers import BatchWriter
from .collate import collate, default_collate_fn

# Replies from a worker: what it is, and where its body is.
BATCH, EXHAUSTED, ERROR = range(3)
# kind, body is in the buffer, offset in the buffer, number of bytes
REPLY = struct.Struct("=B?QQ")
REQUEST = struct.Struct("=Q")
# A longer body goes through the buffer: a worker should make the next batch, not
# wait for room in the socket.
MAX_INLINE_BYTES = 2048

_PR_SET_PDEATHSIG = 1
_worker_info = None


class WorkerInfo(NamedTuple):
    """What `get_worker_info` tells: this worker's place, dataset and seed."""

    id: int
    num_workers: int
    dataset: Any
    seed: int


class WorkerOptions(NamedTuple):
    """What all workers of a loader share."""

    dataset: Any
    collate_fn: Any
    init_fn: Any
    num_workers: int
    iterable: bool  # the dataset is read by iter(), not by index
    batched: bool  # samples are collected to batches
    drop_last: bool  # of an iterable dataset; samplers see to it otherwise


class StartEpoch(NamedTuple):
    seed: int


class MakeBatch(NamedTuple):
    buffer: int
    # Sample indices of a map-style dataset; of an iterable one, how many.
    indices: Any


def get_worker_info() -> Optional[WorkerInfo]:
    """In a worker process its WorkerInfo; None elsewhere."""
    return _worker_info


class Fetcher:
    """Makes batches of a dataset's samples, in a worker or in the loader."""

    def __init__(self, options, empty=np.empty):
        self._options = options
        self._empty = empty
        self._samples = iter(options.dataset) if options.iterable else None

    def fetch(self, indices):
        """The batch of `indices`; StopIteration at the end of an iterable."""
        samples = self._next(indices) if self._options.iterable else self._at(indices)
        collate_fn = self._options.collate_fn
        if collate_fn is default_collate_fn:
            return collate(samples, self._empty)
        return collate_fn(samples)

    def _at(self, indices):
        dataset = self._options.dataset
        if self._options.batched:
            return [dataset[index] for index in indices]
        return dataset[indices]

    def _next(self, count):
        if not self._options.batched:
            return next(self._samples)
        samples = [sample for _, sample in zip(range(count), self._samples)]
        if not samples or (self._options.drop_last and len(samples) < count):
            raise StopIteration
        return samples


def run_worker(
    worker_id, sock, buffers_fd, num_buffers, options, parent_pid, die_with, mask
):
    """The life of a worker process; never returns.

    `die_with` is true if the kernel may tie this process to the thread that
    forked it, which is then the parent's main thread. `mask` holds the signals to
    block.
    """
    code = 1
    try:
        _leave_parent(sock, parent_pid, die_with, mask)
        writer = BatchWriter(buffers_fd, num_buffers)
        _serve(worker_id, sock, writer, options)
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # The parent is done with us.
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _leave_parent(sock, parent_pid, die_with, mask):
    # The parent's objects are not this process's to collect.
    gc.freeze()
    signal.set_wakeup_fd(-1)
    # The terminal sends ^C to the whole group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if die_with:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_exit_with, args=(sock,), daemon=True).start()
    if os.getppid() != parent_pid:
        os._exit(1)
    _drop_inherited_sockets(keep=sock.fileno())
    _tensors.enter_worker()


def _exit_with(sock):
    # POLLHUP: the parent's end is closed in full, so the parent is gone.
    poll = select.poll()
    poll.register(sock, 0)
    poll.poll()
    os._exit(1)


def _drop_inherited_sockets(keep):
    # Peers of the parent must see its connections end when it ends. Pointing
    # the numbers at /dev/null, rather than closing them, keeps objects that
    # still refer to them from closing a file that took the number.
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd in (1, 2, keep, null):
            continue
        try:
            if fd == 0 or stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.dup2(null, fd, inheritable=fd == 0)
        except OSError:
            continue  # The folder's own descriptor, closed meanwhile.
    os.close(null)


def _serve(worker_id, sock, writer, options):
    fetcher = None
    failure = None
    while True:
        request = _receive(sock)
        if request is None:
            return
        if isinstance(request, StartEpoch):
            try:
                first = fetcher is None
                fetcher = _start_epoch(worker_id, request.seed, options, writer, first)
                failure = None
            except BaseException as error:
                failure = describe_error(worker_id, error)
            continue
        writer.start(request.buffer)
        reply = failure or _make_batch(worker_id, fetcher, writer, request.indices)
        _send(sock, writer, *reply)


def _start_epoch(worker_id, seed, options, writer, first):
    global _worker_info
    _worker_info = WorkerInfo(worker_id, options.num_workers, options.dataset, seed)
    random.seed(seed)
    np.random.seed(np.random.SeedSequence(seed).generate_state(4))
    _tensors.seed_core(seed)
    if first and options.init_fn is not None:
        options.init_fn(worker_id)
    return Fetcher(options, writer.empty)


def _make_batch(worker_id, fetcher, writer, indices):
    try:
        return BATCH, writer.dump(fetcher.fetch(indices))
    except StopIteration as error:
        if fetcher._options.iterable:
            return EXHAUSTED, b""
        return describe_error(worker_id, error)
    except BaseException as error:
        return describe_error(worker_id, error)


def describe_error(worker_id, error):
    """The reply that lets the parent raise `error` with our traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = f"in DataLoader worker {worker_id} (pid {os.getpid()}):\n{text.rstrip()}"
    kind = type(error)
    # These would end the parent, or its loop, without a word.
    if not issubclass(kind, Exception) or issubclass(kind, StopIteration):
        kind = RuntimeError
    try:
        return ERROR, pickle.dumps((kind, text))
    except Exception:  # A class that the parent could not find either.
        return ERROR, pickle.dumps((RuntimeError, text))


def rebuild_error(body):
    """The exception that `describe_error` packed."""
    try:
        kind, text = pickle.loads(body)
        if issubclass(kind, KeyError):
            return kind(_PlainText(text))
        error = kind(text)
    except Exception:
        kind, text = RuntimeError, _text_of(body)
        error = kind(text)
    return error if text in str(error) else RuntimeError(text)


class _PlainText(str):
    """KeyError shows the repr of its argument; ours is text of many lines."""

    def __repr__(self):
        return str(self)


def _text_of(body):
    # The class did not load, or does not take a message: keep the text.
    class _AnyClass(pickle.Unpickler):
        def find_class(self, module, name):
            return RuntimeError

    return _AnyClass(io.BytesIO(body)).load()[1]


def _receive(sock):
    """The next request; None when the parent has no more use for us."""
    # Requests may be queued before the parent's last word: look ahead for it.
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLRDHUP)
    if any(event & select.POLLRDHUP for _, event in poll.poll()):
        return None
    head = receive_exactly(sock, REQUEST.size)
    if head is None:
        return None
    body = receive_exactly(sock, REQUEST.unpack(head)[0])
    return None if body is None else pickle.loads(body)


def _send(sock, writer, kind, body):
    if len(body) <= MAX_INLINE_BYTES:
        sock.sendall(REPLY.pack(kind, False, 0, len(body)) + body)
    else:
        offset = writer.write(body)
        sock.sendall(REPLY.pack(kind, True, offset, len(body)))


def receive_exactly(sock, num_bytes):
    """Blocks for `num_bytes`; None if the stream ends before them."""
    data = sock.recv(num_bytes, socket.MSG_WAITALL)
    while len(data) < num_bytes:
        more = sock.recv(num_bytes - len(data), socket.MSG_WAITALL)
        if not more:
            return None
        data += more
    return data


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
