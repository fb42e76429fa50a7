# SPDX-License-Identifier: Apache-2.0
"""A worker's part of a job with servers: its programs, its connection, its end.

Before the first run of a program that needs servers the engine connects; a process that
ends with status 0 flushes and says good-bye (fleet/job.h). So init_worker and stop_worker
are for scripts that want to say when.
"""

import contextlib
import weakref

from .... import _core
from ....static import executor as _executor
from .server_mode import Mode, disk_of_servers, learning_rate_of

__all__ = ["ServedTraining"]

_WORKER = 1  # cluster::RoleKind

# How far an async worker may run ahead where the script does not say. With gradients
# that are d updates old, SGD needs rate * curvature below about pi / (2 d + 1): of two
# workers four steps each are 8 updates, which leaves 0.18. Longer queues are for rates
# that are known to bear them.
_QUEUE = {"max_merge": 2, "queue_size": 2}


class ServedTraining:
    """What one process has of a job with servers. On a server only `serve` is called,
    and nothing connects."""

    def __init__(self, role, mode=None, **queue):
        self.role = role
        self.mode = mode or Mode("async")
        self._queue = queue
        self.ends_with_executor = False
        self._stopped = False
        self._worker = None
        self._tables = []
        # By the name of the rate: a scheduler that workers follow, and its last rate
        # that servers were told.
        self._told = {}
        # Rewritten programs and, by them, what they were before.
        self._origins = weakref.WeakKeyDictionary()
        self._startups = weakref.WeakKeyDictionary()
        # By a program that asks servers for nothing else than rows: (its version, the
        # program that is run in its place).
        self._test_programs = weakref.WeakKeyDictionary()

    # ---- programs

    def serve(self, main, startup, extras=None, drop_nonfinite=False, lr_steps=10):
        """Rewrites the programs in place: parameters are on servers from now on.
        Returns the names of the passes."""
        origin = main.clone()
        schedules = {}
        if self.mode.name != "geo":  # there, the rate is the worker's own
            for scheduler, name in main._schedulers:
                schedules[name] = self._rate(scheduler, name, lr_steps)
        plan = _core.serve_parameters(
            main,
            startup,
            self.role,
            self.mode.name,
            main.random_seed or startup.random_seed or 0,
            self._tables,
            schedules,
            _extras_of(origin, extras),
            drop_nonfinite,
        )
        if self.mode.name != "geo":
            main._schedulers = []
        self._origins[main] = origin
        self._startups[startup] = True
        self._tables = [*self._tables, *plan.tables]
        if self._worker is not None:
            self._worker.serve(plan.tables)
        elif self.role.kind == _WORKER:
            self._make_worker()
        _executor.set_stand_in(self)
        return plan.passes

    def _rate(self, scheduler, name, lr_steps):
        rate = learning_rate_of(scheduler, lr_steps)
        if rate is None:
            self._told[name] = scheduler, scheduler()
            rate = _core.LearningRate.told(name, scheduler())
        return rate

    def _tell_rates(self):
        """Servers take over what the schedulers say that they cannot work out. Those of
        the first worker count."""
        if self.role.index != 0:
            return
        for name, (scheduler, before) in self._told.items():
            rate = scheduler()
            if rate != before:
                self.worker.set_rate(name, rate)
                self._told[name] = scheduler, rate

    @property
    def tables(self):
        return list(self._tables)

    def sparse_tables(self):
        return [table for table in self._tables if table.sparse]

    def dense_tables(self):
        return [table for table in self._tables if not table.sparse]

    def origin_of(self, program):
        """`program` as the user wrote it."""
        return self._origins.get(program, program)

    def program_to_run(self, program):
        """What an executor runs for `program`: itself, or a copy that asks servers for
        the rows of tables that this worker does not have."""
        if program in self._origins or program in self._startups:
            if self._stopped:
                raise RuntimeError(
                    f"{self.role} has stopped, and can train no more: stop_worker() is "
                    "the end"
                )
            if self._told and program in self._origins:
                self._tell_rates()
            return program
        known = self._test_programs.get(program)
        if known is not None and known[0] == program._version:
            return known[1] or program
        copy = program.clone()
        changed = _core.serve_lookups(copy, self.sparse_tables(), True)
        self._test_programs[program] = (program._version, copy if changed else None)
        return copy if changed else program

    # ---- life

    @property
    def worker(self):
        """The worker's end of the connection, which is made when it is first needed."""
        if self._worker is None:
            if self.role.kind != _WORKER:
                raise RuntimeError(f"this process is {self.role}, and no worker")
            self._make_worker()
        return self._worker

    def _make_worker(self):
        options = {**_QUEUE, **self._queue}
        if self.mode.name == "geo":
            options["geo_steps"] = self.mode.geo_steps
        self._worker = _core.Job.with_servers(self.role, self.mode.name, **options)
        self._worker.serve(self._tables)

    def connect(self):
        """Waits for the servers; they have the tables then."""
        self.worker.connect()

    def stop(self):
        """Everything that this worker computed is on the servers; it is done."""
        self.worker.finish()
        self._stopped = True

    @contextlib.contextmanager
    def cut(self):
        """What is saved and pulled inside is one state of all tables on all servers;
        the updates of other workers wait meanwhile."""
        self.worker.begin_cut()
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong first says more
                self.worker.end_cut()
            raise
        self.worker.end_cut()

    def forget(self):
        """Executors no longer ask this object what to run."""
        if _executor._stand_in is self:
            _executor.set_stand_in(None)

    def executor_closed(self):
        """An executor will not be used any more."""
        if self.ends_with_executor and self._worker is not None:
            if self._worker.connected:
                self.stop()

    def stats(self):
        """What the worker counted; {} before it has connected."""
        if self._worker is None or not self._worker.connected:
            return {}
        return self._worker.stats()


def _extras_of(program, extras):
    """By parameter: rows of tables that grow know when they were last asked for, so
    that fleet.shrink can drop them, those of SSDSparseTables may go to disk, and some
    have a time to live.

    Raises:
        ValueError: two look-ups of one table say different times.
    """
    found = dict(extras or {})
    everybody = found.get("")
    times = {}
    for operation in program.global_block().ops:
        if not operation.type.startswith("lookup_table"):
            continue
        if not _attribute(operation, "is_distributed"):
            continue
        name = operation.input("W")[0]
        on_disk = _attribute(operation, "table_class") == "SSDSparseTable"
        seconds = _attribute(operation, "time_to_live")
        if everybody is not None and not on_disk and seconds is None:
            continue
        if name not in found:
            found[name] = _core.SparseExtras()
            found[name].count_unseen_days = True
            if everybody is not None:
                found[name].show_click = everybody.show_click
        if on_disk:
            found[name].set_disk(*disk_of_servers())
        if seconds is None:
            continue
        if times.setdefault(name, seconds) != seconds:
            raise ValueError(
                f"table {name!r}: one look-up says time_to_live={times[name]}, another "
                f"{seconds}; a table has one"
            )
        found[name].time_to_live = seconds
    return found


def _attribute(operation, name):
    return operation.attr(name) if operation.has_attr(name) else None
