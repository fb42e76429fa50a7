# SPDX-License-Identifier: Apache-2.0
"""Calls a function on many items in a process of its own: one that crashes or hangs
costs its item, and the next begins in a new process."""

import os
import pickle
import select
import signal
import struct
import time
from pathlib import Path


class Ended(Exception):
    """The process was ended by a signal, or ended itself, or took too long."""


def _waited(pid):
    """The seconds that a process was ready to run and got no core: those of the thread
    that waited most."""
    waited = [0.0]
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited.append(int(task.read_text().split()[1]) * 1e-9)
        except OSError:  # the thread just ended
            pass
    return max(waited)


class _Patience:
    """What is left of the seconds that a process has for an item. Those in which it
    waited for a core, on a machine that is busy, do not count."""

    def __init__(self, pid, seconds):
        self._pid, self._before = pid, _waited(pid)
        self._end = time.monotonic() + seconds

    def left(self):
        left = self._end - time.monotonic()
        return left if left > 0 else left + _waited(self._pid) - self._before


def _read(pipe, count, patience):
    data = b""
    while len(data) < count:
        left = patience.left()
        if left <= 0:
            raise TimeoutError
        if not select.select([pipe], [], [], left)[0]:
            continue
        more = os.read(pipe, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _child(pipe, function, items):
    """In the new process: a result for each item; never returns."""
    status = 1
    try:
        for item in items:
            data = pickle.dumps(function(item))
            data = struct.pack("<Q", len(data)) + data
            while data:
                data = data[os.write(pipe, data) :]
        status = 0
    finally:
        os._exit(status)


def _how(pid, end):
    """What ended the process, in words."""
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            if os.WIFSIGNALED(status):
                return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
            return f"ended with status {os.WEXITSTATUS(status)}"
        select.select([], [], [], 0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "did not end"


def each(function, items, seconds=60, at_once=20):
    """Yields (item, result) in order; the result is an `Ended` where there is none after
    `seconds`. Results must be picklable."""
    items = list(items)
    while items:
        reader, writer = os.pipe()
        part = items[:at_once]
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(writer, function, part)
        os.close(writer)
        done = 0
        try:
            for item in part:
                patience = _Patience(pid, seconds)
                (size,) = struct.unpack("<Q", _read(reader, 8, patience))
                result = pickle.loads(_read(reader, size, patience))
                done += 1
                yield item, result
            os.waitpid(pid, 0)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            yield items[done], Ended(f"no result in {seconds} s")
            done += 1
        except EOFError:
            yield items[done], Ended(_how(pid, time.monotonic() + 10))
            done += 1
        except GeneratorExit:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(reader)
        items = items[done:]


def one(function, item, seconds=60):
    """The result for one item, or an `Ended`."""
    ((_, result),) = each(function, [item], seconds)
    return result
