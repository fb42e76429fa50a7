# SPDX-License-Identifier: Apache-2.0
"""paddle.io.DataLoader: how its processes fail, and how they end."""

import faulthandler
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from io_samples import (
    Call,
    Count,
    Images,
    Squares,
    children,
    leaves_nothing,
    num,
    status_of,
)
from paddle.io import DataLoader, Subset

assert leaves_nothing  # a fixture


# DataLoader: failures


class Peculiar(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


def raise_at_five(error):
    def sample(i):
        if i == 5:
            raise error
        return i

    return Call(8, sample)


@pytest.mark.parametrize(
    "error, kind",
    [
        (ValueError("no such image"), ValueError),
        (KeyError("no such image"), KeyError),
        (OSError(2, "no such image"), OSError),
        (Peculiar("no such image", 2), RuntimeError),
        (SystemExit("no such image"), RuntimeError),
        (StopIteration("no such image"), RuntimeError),
        (KeyboardInterrupt("no such image"), RuntimeError),
        (type("Local", (Exception,), {})("no such image"), RuntimeError),
    ],
)
def test_an_exception_arrives_with_the_worker_traceback(error, kind, leaves_nothing):
    loader = DataLoader(raise_at_five(error), batch_size=2, num_workers=2)
    seen = []
    with pytest.raises(kind) as caught:
        for batch in loader:
            seen.append(num(batch).tolist())
    assert seen == [[0, 1], [2, 3]]
    text = str(caught.value)
    assert "in DataLoader worker 0 (pid " in text
    assert "no such image" in text
    assert "raise error\n" in text and os.path.basename(__file__) in text
    del caught, loader


def test_without_workers_the_exception_is_the_dataset_s_own():
    error = ValueError("no such image")
    with pytest.raises(ValueError) as caught:
        list(DataLoader(raise_at_five(error), batch_size=2))
    assert caught.value is error
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(DataLoader(raise_at_five(StopIteration()), batch_size=2))


def test_after_an_exception_the_iteration_is_over(leaves_nothing):
    iterator = iter(DataLoader(raise_at_five(ValueError("x")), num_workers=2))
    with pytest.raises(ValueError):
        for _ in iterator:
            pass
    assert not children()
    assert list(iterator) == []


def test_samples_of_different_shapes_are_named(leaves_nothing):
    dataset = Call(4, lambda i: (np.zeros((i + 1, 2)), i))
    for num_workers in (0, 1):
        with pytest.raises(
            ValueError, match=r"field \[0\] has shape \[1, 2\].*\[2, 2\]"
        ):
            list(DataLoader(dataset, batch_size=2, num_workers=num_workers))


def test_results_that_do_not_pickle_are_an_error(leaves_nothing):
    loader = DataLoader(
        Squares(2), num_workers=1, collate_fn=lambda samples: threading.Lock()
    )
    with pytest.raises(TypeError, match="pickle"):
        list(loader)


def test_a_killed_worker_is_named(leaves_nothing):
    def sample(i):
        if i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    loader = DataLoader(Call(8, sample), num_workers=2)
    with pytest.raises(
        RuntimeError,
        match=r"worker 1 \(pid \d+\) was killed by SIGKILL before it delivered "
        r"batch 3; .*out of memory",
    ):
        list(loader)


def test_a_crashed_worker_is_named(leaves_nothing):
    def sample(i):
        if i == 2:
            faulthandler.disable()
            os.kill(os.getpid(), signal.SIGSEGV)
        if i == 5:
            os._exit(7)
        return i

    with pytest.raises(RuntimeError, match="worker 0 .* killed by SIGSEGV .* batch 2"):
        list(DataLoader(Call(8, sample), num_workers=2))
    with pytest.raises(
        RuntimeError, match="worker 0 .* exited with status 7 .*batch 5"
    ):
        list(DataLoader(Subset(Call(8, sample), [0, 0, 0, 0, 0, 5]), num_workers=1))


def test_an_idle_worker_that_dies_is_noticed(leaves_nothing):
    loader = DataLoader(Call(100, lambda i: (i, os.getpid())), num_workers=2)
    iterator = iter(loader)
    pids = [int(num(next(iterator)[1])[0]) for _ in range(2)]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"worker 1 \(pid {pids[1]}\) was killed"):
        list(iterator)


def test_a_dead_worker_is_noticed_though_its_own_child_lives(leaves_nothing):
    read, write = os.pipe()

    def sample(i):
        if i == 1:
            if os.fork() == 0:  # holds the worker's socket
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            os._exit(3)
        return i

    with pytest.raises(RuntimeError, match="exited with status 3"):
        list(DataLoader(Call(4, sample), num_workers=1))
    os.close(write)
    os.close(read)


def test_a_late_worker_is_named(leaves_nothing):
    def sample(i):
        if i == 2:
            signal.pause()
        return i

    loader = DataLoader(Call(4, sample), num_workers=2, timeout=3)
    with pytest.raises(
        RuntimeError,
        match=r"worker 0 \(pid \d+\) did not deliver batch 2 within timeout=3 s",
    ):
        list(loader)


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({"batch_size": 4, "batch_sampler": [[0]]}, ValueError, "batch_size=4"),
        ({"shuffle": True, "batch_sampler": [[0]]}, ValueError, "shuffle=True"),
        ({"drop_last": True, "batch_sampler": [[0]]}, ValueError, "drop_last=True"),
        ({"batch_sampler": 3}, TypeError, "batch_sampler must be iterable"),
        ({"batch_size": 0}, ValueError, "batch_size must be an integer of at least 1"),
        ({"batch_size": 2.0}, ValueError, "batch_size"),
        ({"batch_size": None, "drop_last": True}, ValueError, "drop_last needs"),
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"collate_fn": 3}, TypeError, "collate_fn must be callable"),
        ({"workers": 2}, TypeError, "workers"),
    ],
)
def test_wrong_arguments_are_named(kwargs, error, message):
    with pytest.raises(error, match=message):
        DataLoader(Squares(4), **kwargs)


def test_wrong_datasets_are_named():
    with pytest.raises(TypeError, match="is a int"):
        DataLoader(3)
    with pytest.raises(ValueError, match="shuffle=True has no meaning"):
        DataLoader(Count(3), shuffle=True)
    with pytest.raises(ValueError, match="no indices"):
        DataLoader(Count(3), batch_sampler=[[0]])


# DataLoader: nothing is left behind


def test_leaving_the_loop_ends_the_workers(leaves_nothing):
    for x, _ in DataLoader(Images(1000), batch_size=4, num_workers=3):
        break
    assert not children()
    del x


def test_dropping_a_fresh_iterator_ends_the_workers(leaves_nothing):
    iterator = iter(DataLoader(Images(1000), batch_size=4, num_workers=3))
    assert len(children()) == 3
    del iterator
    assert not children()


def test_stubborn_workers_are_ended(leaves_nothing):
    def sample(i):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while i > 0:
            time.sleep(60)
        return i

    iterator = iter(DataLoader(Call(4, sample), num_workers=2))
    next(iterator)
    del iterator
    assert not children()


def test_many_epochs_leave_nothing(leaves_nothing):
    loader = DataLoader(Images(64), batch_size=8, num_workers=2)
    for _ in range(10):
        for x, _ in loader:
            pass
    del x


SCRIPT = """
import os, signal, sys, time
import numpy as np
from paddle.io import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        time.sleep(0.01)
        return np.zeros((64, 1024), "float32"), os.getpid()

loader = DataLoader(Slow(), batch_size=1, num_workers=2)
"""


def run_script(body, after_start=None):
    """Runs SCRIPT + body; `after_start` acts once it printed its workers."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(body)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    workers = [int(pid) for pid in process.stdout.readline().split()]
    if after_start:
        after_start(process)
    out, err = process.communicate(timeout=60)
    return process.returncode, workers, out, err


def await_end(pids):
    """Until the processes are gone, or zombies of a parent that is gone."""
    deadline = time.monotonic() + 30
    while pids and time.monotonic() < deadline:
        pids = [pid for pid in pids if status_of(pid)[0] not in ("", "Z")]
        if pids:
            time.sleep(0.01)
    assert pids == []


LOOP = """
workers = []
for x, pid in loader:
    workers.append(int(pid.numpy()[0]))
    if len(workers) == 2:
        print(*workers, flush=True)
"""


def test_interrupting_the_script_leaves_no_worker():
    code, workers, _, err = run_script(LOOP, lambda p: os.killpg(p.pid, signal.SIGINT))
    assert code == -signal.SIGINT, err
    assert err.count("Traceback") == 1 and "KeyboardInterrupt" in err
    assert len(workers) == 2
    await_end(workers)


def test_killing_the_script_ends_its_workers():
    code, workers, _, _ = run_script(LOOP, lambda p: p.kill())
    assert code == -signal.SIGKILL and len(workers) == 2
    await_end(workers)


def test_killing_a_script_whose_thread_started_them_ends_the_workers():
    body = "import threading\n" + textwrap.dedent(
        """
        found = []
        def start():
            found.append(iter(loader))
        t = threading.Thread(target=start)
        t.start()
        t.join()
        loader = found[0]
        """
    )
    code, workers, _, _ = run_script(body + LOOP, lambda p: p.kill())
    assert code == -signal.SIGKILL and len(workers) == 2
    await_end(workers)


def test_a_script_may_end_amid_an_epoch():
    body = """
    it = iter(loader)
    firsts = [next(it) for _ in range(2)]
    print(*(int(p.numpy()[0]) for _, p in firsts), flush=True)
    """
    code, workers, out, err = run_script(body)
    assert (code, out, err) == (0, "", "")
    assert len(workers) == 2
    await_end(workers)


def test_output_is_neither_lost_nor_doubled():
    body = """
    print("1 2", flush=True)
    sys.stdin.readline()
    sys.stdout.write("before")
    class Loud(Slow):
        def __len__(self):
            return 2
        def __getitem__(self, i):
            print("sample", i)
            return i
    for _ in DataLoader(Loud(), num_workers=1):
        pass
    """
    code, _, out, err = run_script(body)
    assert (code, err) == (0, "")
    assert out.count("before") == 1
    assert out.count("sample 0") == out.count("sample 1") == 1
