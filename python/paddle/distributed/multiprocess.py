# SPDX-License-Identifier: Apache-2.0
"""spawn: a function in several processes of one job."""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import secrets
import signal
import socket
import sys
import threading
import traceback
import warnings

from .. import _core
from .point_to_point import run_put_off

__all__ = ["MultiprocessContext", "spawn"]

_OPTIONS = ("start_method", "ips", "gpus", "print_config")
_DEPRECATED = (
    "selected_gpus",
    "started_port",
    "cluster_node_ips",
    "node_ip",
    "use_paddlecloud",
)
_START_METHODS = ("spawn", "fork", "forkserver")
_FIRST_PORT = 6170
_PR_SET_PDEATHSIG = 1
_RULE = "-" * 46
# Seconds: for the process that failed first, behind those that only lost it; and
# between SIGTERM and SIGKILL.
_CAUSE_PATIENCE = 1
_END_PATIENCE = 5
# What a child inherits from a job that its parent is in speaks of the parent.
_OF_THE_PARENT = ("GROUP_RANK", "GROUP_WORLD_SIZE")


def spawn(func, args=(), nprocs=-1, join=True, daemon=False, **options):
    """Runs func(*args) in `nprocs` processes, each one rank of a job.

    nprocs: by default one for each GPU or, without GPUs, CPU_NUM or each core.
    join: waits until all have ended, and raises if one failed. Without it, the
        MultiprocessContext returned does so in its join().
    daemon: the processes are daemons in the sense of multiprocessing. They end with
        this process in any case.
    options: start_method ("spawn", "fork" or "forkserver"), gpus ("0,1"), ips (hosts
        that call spawn alike), print_config.
    """
    _check_options(options)
    nprocs = _num_processes(nprocs, options)
    method = options.get("start_method") or "spawn"
    if method not in _START_METHODS:
        raise ValueError(
            f"`start_method` must be one of {', '.join(_START_METHODS)}, but is "
            f"{method!r}"
        )
    with contextlib.ExitStack() as sockets:
        ranks = _plan(nprocs, options, sockets)
        if options.get("print_config"):
            _print_config(ranks[0].environment)
        context = _start(func, args, ranks, multiprocessing.get_context(method), daemon)
    if not join:
        return context
    while not context.join():
        pass
    return context


class MultiprocessContext:
    """The processes that spawn started."""

    def __init__(self, processes, error_readers, return_queues):
        self.processes = processes
        self.return_queues = return_queues
        self._errors = error_readers
        self._left = dict(enumerate(processes))

    def pids(self):
        return [process.pid for process in self.processes]

    def join(self, timeout=None):
        """Waits until a process ends, or for `timeout` seconds. True when all have
        ended well. If one failed, ends the others and raises with its traceback."""
        failed = self._collect(timeout)
        if not failed:
            return not self._left
        texts = {index: self._describe(index) for index in failed}
        if all(lost_peer for lost_peer, _ in texts.values()) and self._left:
            # These only saw that another one is gone. That one tells more.
            for index in self._collect(_CAUSE_PATIENCE):
                texts[index] = self._describe(index)
        self._end_others()
        _, text = min(texts.values())
        raise Exception(text)

    def _collect(self, timeout):
        """Takes in what ends and what is returned; the indices of those that failed."""
        if not self._left:
            return []
        sentinels = {self._left[i].sentinel: i for i in self._left}
        unread = [q for q in self.return_queues if q.is_unread()]
        failed = []
        for item in multiprocessing.connection.wait([*sentinels, *unread], timeout):
            if item not in sentinels:
                item.receive()
                continue
            index = sentinels[item]
            process = self._left.pop(index)
            process.join()
            self.return_queues[index].receive_rest()
            if process.exitcode != 0:
                failed.append(index)
        return failed

    def _end_others(self):
        for process in self._left.values():
            process.terminate()
        for process in self._left.values():
            process.join(_END_PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
        self._left = {}

    def _describe(self, index):
        """Whether a process ended because another one had, and what to raise."""
        with contextlib.suppress(EOFError, OSError):
            if self._errors[index].poll():
                lost_peer, text = self._errors[index].recv()
                return lost_peer, (
                    f"\n\n{_RULE}\nProcess {index} terminated with the following "
                    f"error:\n{_RULE}\n\n{text}"
                )
        code = self.processes[index].exitcode
        if code >= 0:
            return False, f"Process {index} terminated with exit code {code}."
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"{-code}"
        return False, f"Process {index} terminated with signal {name}."


class _ReturnQueue:
    """What one process returned. Read while we wait for its end, because it waits
    until somebody has read a large value."""

    def __init__(self, reader):
        self._reader = reader
        self._values = []
        self._ended = False

    def fileno(self):
        return self._reader.fileno()

    def is_unread(self):
        return not self._ended and not self._values

    def receive(self):
        try:
            self._values.append(self._reader.recv())
        except (EOFError, OSError):
            self._ended = True

    def receive_rest(self):
        if self.is_unread():
            self.receive()

    def empty(self):
        return not self._values

    def get(self):
        """The value; EOFError if the process ended without one."""
        self.receive_rest()
        if not self._values:
            raise EOFError("the process ended without returning")
        return self._values.pop()


class _Rank:
    """One process to be: its environment, and the socket where it listens."""

    def __init__(self, environment, listener):
        self.environment = environment
        self.listener = listener


def _check_options(options):
    for key in options:
        if key in _DEPRECATED:
            warnings.warn(
                f"The config option `{key}` of `paddle.distributed.spawn` is "
                "deprecated; use `ips` and `gpus`.",
                stacklevel=3,
            )
        elif key not in _OPTIONS:
            raise ValueError(
                f"The config option ({key}) of `paddle.distributed.spawn` is not "
                "supported."
            )


def _gpus(options):
    text = options.get("gpus") or options.get("selected_gpus")
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"`gpus` must be a string such as '0,1', but is {text!r}")
    return [part.strip() for part in text.split(",")]


def _num_processes(nprocs, options):
    gpus = _gpus(options)
    if nprocs == -1:
        if gpus is not None:
            return len(gpus)
        cores = len(os.sched_getaffinity(0))
        return _core.num_cuda_devices() or int(os.environ.get("CPU_NUM", cores))
    if not isinstance(nprocs, int) or isinstance(nprocs, bool) or nprocs < 1:
        raise ValueError(
            f"`nprocs` must be -1 or a positive number of processes, but is {nprocs!r}"
        )
    if gpus is not None and len(gpus) != nprocs:
        raise ValueError(
            f"The number of selected gpus({len(gpus)}) is not equal to the number of "
            f"spawn processes({nprocs}), please ensure that the correct `nprocs` and "
            "`gpus` arguments are passed."
        )
    return nprocs


def _plan(nprocs, options, sockets):
    """The ranks of this host; their listeners are bound here, so that no other
    process can take a port in between."""
    hosts = (
        options.get("ips") or options.get("cluster_node_ips") or "127.0.0.1"
    ).split(",")
    gpus = _gpus(options)
    listeners, node = [], 0
    if len(hosts) == 1:
        for _ in range(nprocs):
            listeners.append(sockets.enter_context(_listen(hosts[0], 0)))
        endpoints = [f"{hosts[0]}:{s.getsockname()[1]}" for s in listeners]
    else:
        first = int(options.get("started_port") or _FIRST_PORT)
        ports = range(first, first + nprocs)
        endpoints = [f"{host}:{port}" for host in hosts for port in ports]
        node = _own_place(hosts, options.get("node_ip"))
        for port in ports:
            listeners.append(sockets.enter_context(_listen(hosts[node], port)))
    secret = None
    if len(hosts) == 1 and not os.environ.keys() & {
        "FLEET_SECRET",
        "FLEET_SECRET_FILE",
    }:
        secret = _secret_file()
    ranks = []
    for local_rank, listener in enumerate(listeners):
        rank = node * nprocs + local_rank
        environment = _environment(rank, local_rank, nprocs, endpoints)
        if secret is not None:
            environment["FLEET_SECRET_FILE"] = secret
        if gpus is not None:
            environment["FLAGS_selected_gpus"] = gpus[local_rank]
        ranks.append(_Rank(environment, listener))
    return ranks


_secrets = {}


def _secret_file():
    """The path of a secret in memory of this process, which others of its user can read
    while it lives; the same one for all that it spawns."""
    own = os.getpid()
    if own not in _secrets:
        memory = _secrets[own] = os.memfd_create("fleet-secret")
        os.fchmod(memory, 0o400)
        os.write(memory, secrets.token_hex(32).encode())
    return f"/proc/{own}/fd/{_secrets[own]}"


def _listen(host, port):
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # Two sockets that allow reuse and ask for any port may get the same one.
        if port != 0:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"spawn: cannot listen at {host}:{port}: {error.strerror}"
        ) from None
    return listener


def _own_place(hosts, own):
    """Which of the hosts this is: the one whose address can be bound here."""
    if own is not None:
        return hosts.index(own)
    for place, host in enumerate(hosts):
        with contextlib.suppress(OSError), _listen(host, 0):
            return place
    raise ValueError(f"spawn: none of the addresses in ips={','.join(hosts)} is here")


def _environment(rank, local_rank, local_size, endpoints):
    host, _, port = endpoints[0].rpartition(":")
    environment = {
        "PADDLE_TRAINER_ID": rank,
        "PADDLE_TRAINERS_NUM": len(endpoints),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_RANK_IN_NODE": local_rank,
        "RANK": rank,
        "WORLD_SIZE": len(endpoints),
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
    if "OMP_NUM_THREADS" not in os.environ:
        cores = len(os.sched_getaffinity(0))
        environment["OMP_NUM_THREADS"] = max(1, cores // local_size)
    return {name: str(value) for name, value in environment.items()}


def _print_config(environment):
    print("-----------  Configuration Arguments -----------")
    for name in sorted(environment):
        print(f"{name}: {environment[name]}")
    print("------------------------------------------------", flush=True)


def _start(func, args, ranks, mp, daemon):
    # The kernel ends a child with the thread that forked it, and only the main
    # thread is sure to last as long as the process.
    by_kernel = (
        mp.get_start_method() != "forkserver"
        and threading.current_thread() is threading.main_thread()
    )
    # A fork copies all listeners; the others' must end with their owners.
    forks = mp.get_start_method() == "fork"
    copied = {rank.listener.fileno() for rank in ranks} if forks else set()
    processes, errors, queues = [], [], []
    try:
        for rank in ranks:
            error_reader, error_writer = mp.Pipe(duplex=False)
            value_reader, value_writer = mp.Pipe(duplex=False)
            process = mp.Process(
                target=_run,
                args=(
                    func,
                    args,
                    rank.environment,
                    rank.listener,
                    copied - {rank.listener.fileno()},
                    error_writer,
                    value_writer,
                    os.getpid() if by_kernel else None,
                ),
                daemon=daemon,
            )
            process.start()
            error_writer.close()
            value_writer.close()
            processes.append(process)
            errors.append(error_reader)
            queues.append(_ReturnQueue(value_reader))
    except BaseException:
        for process in processes:
            process.kill()
        raise
    return MultiprocessContext(processes, errors, queues)


def _run(func, args, environment, listener, not_ours, errors, values, parent_pid):
    """The life of a rank."""
    _die_with_parent(parent_pid)
    for fd in not_ours:
        os.close(fd)
    for name in _OF_THE_PARENT:
        os.environ.pop(name, None)
    os.environ.update(environment)
    os.environ["FLEET_LISTEN_FD"] = str(listener.detach())
    _core.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    _core.forget_parallel()  # the parent's, which a fork copied
    try:
        values.send(func(*args))
        run_put_off()
        # A forked process skips what runs at exit.
        _core.leave_parallel()
    except SystemExit as stop:
        if not stop.code:
            _core.leave_parallel()
        raise
    except KeyboardInterrupt:
        sys.exit(1)
    except Exception as error:
        errors.send((isinstance(error, ConnectionError), traceback.format_exc()))
        sys.exit(1)


def _die_with_parent(parent_pid):
    if parent_pid is None:
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def _exit_with_parent():
    parent = multiprocessing.parent_process()
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
