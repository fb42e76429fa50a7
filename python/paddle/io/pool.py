# SPDX-License-Identifier: Apache-2.0
"""A DataLoader's worker processes, seen from the process that forked them."""

import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import warnings

from .. import _core
from . import batch_buffers, worker

# Batches of one worker that may be on loan to tensors at a time: the one in
# use, and the one that replaces it. Beyond that batches are copied.
MAX_LENT = 2
# How long a worker may finish what it does before it is told to end, and then
# before it is ended.
GRACE_SECONDS = 1.0
# A worker's exit ends its socket at once, unless a process that it forked
# holds the socket too; so look at the worker itself this often.
CHECK_SECONDS = 2.0


class WorkerPool:
    """Forked workers that make batches on request, each in its order.

    `request` and `receive` are for one thread at a time. `close` may be called
    by any thread, and does nothing in a process other than the one that made
    the pool. After an exception from `receive` the pool is closed.
    """

    def __init__(self, options, max_pending, timeout, share):
        self._owner = os.getpid()
        self._timeout = timeout
        self._closed = False
        self.max_pending = max_pending
        self._workers = []
        # A ^C waits until every worker is known here and deaf to it there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for worker_id in range(options.num_workers):
                process = _fork(worker_id, options, max_pending, share, mask)
                self._workers.append(process)
        except BaseException:
            self.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def start_epoch(self, seed):
        """Makes all workers begin anew; batches still pending are dropped."""
        try:
            for process in self._workers:
                while process.pending:
                    _, buffer, _ = self._wait(process)
                    process.reader.give_back(buffer)
                process.send(worker.StartEpoch(seed + process.id))
        except BaseException:
            self.close()
            raise

    def num_pending(self, worker_id):
        """Batches requested of the worker and not received."""
        return len(self._workers[worker_id].pending)

    def request(self, worker_id, number, indices):
        """Asks the worker for batch `number`; never blocks."""
        process = self._workers[worker_id]
        buffer = process.reader.take()
        process.pending.append((number, buffer))
        process.send(worker.MakeBatch(buffer, indices))

    def receive(self, worker_id):
        """The oldest batch requested of the worker; blocks for it.

        Returns (found, batch); found is false at the end of an iterable
        dataset. Raises what the worker raised, with its traceback in the
        message, or RuntimeError if the worker is gone or late.
        """
        process = self._workers[worker_id]
        try:
            kind, buffer, body = self._wait(process)
            if kind == worker.BATCH:
                return True, process.reader.load(buffer, body)
            process.reader.give_back(buffer)
            if kind == worker.EXHAUSTED:
                return False, None
            raise worker.rebuild_error(body)
        except BaseException:
            self.close()
            raise

    def _wait(self, process):
        for other in self._workers:
            other.flush()
        number, buffer = process.pending[0]
        deadline = time.monotonic() + self._timeout if self._timeout else None
        while not process.poll(deadline):
            if deadline is not None and time.monotonic() >= deadline:
                raise RuntimeError(
                    f"DataLoader worker {process.id} (pid {process.pid}) did not "
                    f"deliver batch {number} within timeout={self._timeout} s"
                )
        reply = process.receive()
        if reply is None:
            raise RuntimeError(process.describe_exit(number))
        process.pending.pop(0)
        kind, in_buffer, offset, num_bytes, body = reply
        if in_buffer:
            body = process.reader.read(buffer, offset, num_bytes)
        return kind, buffer, body

    def close(self):
        """Ends the workers and reaps them; tensors on loan stay valid."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        try:
            for process in self._workers:
                process.dismiss()
            self._await_exits()
        finally:
            for process in self._workers:
                process.destroy()
            self._workers = []

    def _await_exits(self):
        for last_word in (signal.SIGTERM, None):
            deadline = time.monotonic() + GRACE_SECONDS
            running = [p for p in self._workers if not p.await_exit(deadline)]
            if not running:
                return
            if last_word is not None:
                for process in running:
                    process.signal(last_word)


class _Process:
    """One worker: its process, its socket, its buffers, what it owes."""

    def __init__(self, worker_id, pid, sock, reader):
        self.id = worker_id
        self.pid = pid
        self.reader = reader
        self.pending = []  # (batch number, buffer), oldest first
        self._sock = sock
        self._reaped = False
        self._status = None  # None after the end too, if others reaped it
        # A worker may be behind with reading; what does not fit the socket
        # waits here, so that the parent never blocks on it while the worker
        # blocks on the parent.
        self._unsent = bytearray()

    def send(self, request):
        body = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        self._unsent += worker.REQUEST.pack(len(body)) + body
        self.flush()

    def flush(self):
        """Sends as much as the socket takes."""
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self._unsent.clear()  # It is gone; receive will say so.
                return
            del self._unsent[:sent]

    def poll(self, deadline):
        """True if `receive` has an answer; may return early with False."""
        wait = CHECK_SECONDS
        if deadline is not None:
            wait = min(wait, max(0.0, deadline - time.monotonic()))
        poll = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
        poll.register(self._sock, events)
        ready = poll.poll(wait * 1000)
        self.flush()
        if not ready:
            return self._exited()
        return bool(ready[0][1] & ~select.POLLOUT)

    def receive(self):
        """The next reply, or None if the worker is gone."""
        if self._reaped and not select.select([self._sock], [], [], 0)[0]:
            return None
        try:
            head = worker.receive_exactly(self._sock, worker.REPLY.size)
            if head is None:
                return None
            kind, in_buffer, offset, num_bytes = worker.REPLY.unpack(head)
            body = b""
            if not in_buffer and num_bytes:
                body = worker.receive_exactly(self._sock, num_bytes)
        except ConnectionResetError:
            return None
        return None if body is None else (kind, in_buffer, offset, num_bytes, body)

    def describe_exit(self, number):
        """Why there is no batch `number`: how the process ended."""
        self.destroy(close=False)
        who = f"DataLoader worker {self.id} (pid {self.pid})"
        what = f"before it delivered batch {number}"
        if self._status is None:
            return f"{who} is gone, {what}"
        if os.WIFSIGNALED(self._status):
            number = os.WTERMSIG(self._status)
            text = f"{who} was killed by {signal.Signals(number).name} {what}"
            if number == signal.SIGKILL:
                text += (
                    "; if nobody killed it, the system ran out of memory: lower "
                    "batch_size, num_workers or prefetch_factor"
                )
            return text
        return f"{who} exited with status {os.WEXITSTATUS(self._status)} {what}"

    def dismiss(self):
        """Tells the worker to end after the batch at hand."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def await_exit(self, deadline):
        """True once the worker's end of the socket is closed, or it exited."""
        if self._reaped:
            return True
        poll = select.poll()
        poll.register(self._sock, 0)
        wait = max(0.0, deadline - time.monotonic())
        return bool(poll.poll(wait * 1000)) or self._exited()

    def signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def destroy(self, close=True):
        """Ends the process if it runs, reaps it, and closes what is ours.

        A process whose socket ended has its exit status already, which the
        signal does not change.
        """
        if not self._exited():
            self.signal(signal.SIGKILL)
            self._exited(wait=True)
        if close and self._sock.fileno() >= 0:
            self._sock.close()
            self.reader.close()

    def _exited(self, wait=False):
        if not self._reaped:
            try:
                pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                self._reaped = True  # By the script, which reaps all children.
            else:
                if pid:
                    self._reaped, self._status = True, status
        return self._reaped


def _fork(worker_id, options, max_pending, share, mask):
    num_buffers = max_pending + MAX_LENT
    fd = _core.make_batch_buffers(num_buffers)
    ours, theirs = socket.socketpair()
    # What is buffered now would otherwise be written by the child as well.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    parent_pid = os.getpid()
    # The kernel ends a child with the thread that forked it. Only the main
    # thread is sure to last as long as the process.
    die_with = threading.current_thread() is threading.main_thread()
    with warnings.catch_warnings():
        # Python warns about threads in the parent; the child starts none of
        # them and runs on one thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            pid = os.fork()
        except OSError:
            os.close(fd)
            raise
    if pid == 0:
        ours.close()
        worker.run_worker(
            worker_id, theirs, fd, num_buffers, options, parent_pid, die_with, mask
        )
    theirs.close()
    reader = batch_buffers.BatchReader(fd, num_buffers, MAX_LENT if share else 0)
    return _Process(worker_id, pid, ours, reader)
