# SPDX-License-Identifier: Apache-2.0
"""Models of a job with servers in files.

A folder holds the tables as the servers write them (docs/table_format.md), optimizer
state included, and beside them, on the host of the worker that saves, a file for each
dense parameter and each other variable that lives longer than a step, as Paddle has it.
fleet.init_server(folder) goes on from there, with any number of servers.
"""

import os
import warnings

from .... import _core
from ....static import io as _static_io
from ....static.executor import Scope, global_scope
from ....static.program import default_main_program

__all__ = []

# Paddle's numbers: all, base, delta.
_DELTA = 2
_MODES = (0, 1, _DELTA)

# How often a save is tried while servers are killed.
_ATTEMPTS = 3

# Rows of a table that are asked for at a time: 64 MB with rows of 16.
_ROWS = 1 << 20


def _folder(function, dirname):
    name = _static_io._path(function, dirname, "dirname")
    folder = os.path.abspath(os.fsdecode(name))
    _core.make_folders(os.fsencode(folder))
    return folder


def _check_mode(function, mode):
    if mode not in _MODES:
        raise ValueError(
            f"{function}: mode must be 0 (all), 1 (base) or 2 (what changed since the "
            f"last save), but is {mode!r}"
        )


def _save_tensor(folder, name, tensor):
    path = _core.file_of_variable(os.fsencode(folder), name)
    _core.make_folders(os.path.dirname(path))
    _core.save_tensors(path, [name], [tensor])


def _kept_variables(training, program):
    """The names of what lives longer than a step and is here or dense."""
    sparse = {table.parameter for table in training.sparse_tables()}
    return [
        variable.name
        for variable in program.list_vars()
        if _static_io._is_saved(variable) and variable.name not in sparse
    ]


def save_persistables(training, executor, dirname, program, mode=0, text=False):
    """Tables on the servers' hosts, the rest on this one: copied while the turns of
    others wait, and written when they go on and the tables are saved."""
    function = "save_persistables"
    _static_io._executor(function, executor)
    _check_mode(function, mode)
    program = program or default_main_program()
    folder = _folder(function, dirname)
    kept = _kept_variables(training, training.origin_of(program))

    def save():
        with training.cut():
            training.worker.save(folder, mode == _DELTA, bool(text))
            return _values(training, global_scope(), kept)

    _write(folder, _past_restarts(training, function, save))


def save_dense(training, folder, scope, program, names=None):
    """A file for each variable that is in no sparse table; of those in `names`."""
    kept = _kept_variables(training, training.origin_of(program))
    unknown = sorted(set(names or ()) - set(kept))
    if unknown:
        raise ValueError(
            f"save_dense_params: the program keeps no {', '.join(unknown)} outside of "
            "sparse tables"
        )
    with training.cut():
        values = _values(training, scope, kept if names is None else names)
    _write(folder, values)


def _past_restarts(training, function, save):
    """What `save` returns, a cut with a save in it; made anew where a server was
    started again meanwhile, which knows nothing of the save then."""
    for left in range(_ATTEMPTS - 1, -1, -1):
        before = training.stats().get("server_restarts")
        try:
            return save()
        except RuntimeError as error:
            if not left or training.stats().get("server_restarts") == before:
                raise
            warnings.warn(f"fleet.{function} saves again: {error}", stacklevel=4)


def _values(training, scope, names):
    """What the servers hold of each, else the scope; not those that nobody has."""
    dense = {table.parameter for table in training.dense_tables()}
    values = {
        name: training.worker.pull_dense(name) if name in dense else scope._get(name)
        for name in names
    }
    return {name: value for name, value in values.items() if value is not None}


def _write(folder, values):
    for name, value in values.items():
        _save_tensor(folder, name, value)


def _fits(table):
    """Whether a worker can have all of it."""
    return table.bounded or not table.sparse


def _rows(training, table):
    """All rows of a bounded table, as the parameter that it was."""
    from .... import concat

    count = table.shape[0]
    parts = [
        training.worker.pull_rows(table.parameter, begin, min(begin + _ROWS, count))
        for begin in range(0, count, _ROWS)
    ]
    return parts[0] if len(parts) == 1 else concat(parts)


def save_inference_model(
    training, executor, dirname, feeds, target_vars, program=None, mode=0
):
    """What computes the targets, with `__model__` and a file for each parameter. Runs
    without servers where all tables are bounded; tables of sparse_embedding stay
    tables, for paddle.distributed.fleet.utils.ps_util.DistributedInfer."""
    from ....static.program import eager_guard

    function = "save_inference_model"
    _static_io._executor(function, executor)
    _check_mode(function, mode)
    names = [feeds] if isinstance(feeds, str) else list(feeds or [])
    targets = _static_io._variables(function, "target_vars", target_vars)
    if program is None and targets:
        program = targets[0].block.program
    origin = training.origin_of(_static_io._program(function, program))
    fetches = [target.name for target in targets]
    pruned = _static_io._inference(origin, names, fetches, True)
    folder = _folder(function, dirname)
    scope, tables = Scope(), {table.parameter: table for table in training.tables}
    names = _core.saved_variables(pruned)
    remote = [n for n in names if n in tables and not _fits(tables[n])]
    training_scope = global_scope()
    model = os.fsencode(os.path.join(folder, "__model__"))

    def save():
        with training.cut():
            for name in names:
                table = tables.get(name)
                if name in remote:
                    continue
                if table is None:
                    value = training_scope._get(name)
                elif table.sparse:
                    with eager_guard():
                        value = _rows(training, table)
                else:
                    value = training.worker.pull_dense(name)
                if value is not None:
                    scope._set(name, value)
            if remote:
                training.worker.save(folder, mode == _DELTA, False)

    _past_restarts(training, function, save)
    if not remote:
        _core.save_model(pruned, scope, model, os.fsencode(folder), False)
        return fetches
    for name in scope._names():
        _save_tensor(folder, name, scope._get(name))
    _core.save_program(pruned, model)
    warnings.warn(
        f"{function}: the tables {', '.join(remote)} have no bound, so {dirname} holds "
        "them as tables: the model needs servers, through "
        "paddle.distributed.fleet.utils.ps_util.DistributedInfer",
        stacklevel=3,
    )
    return fetches


def load_model(training, path):
    """Has the servers take over a folder, and this worker their dense parameters."""
    folder = os.path.abspath(os.fsdecode(_static_io._path("load_model", path)))
    training.worker.load(folder)
    scope = global_scope()
    for table in training.dense_tables():
        scope._set(table.parameter, training.worker.pull_dense(table.parameter))


def load_others(training, executor, dirname, program):
    """Variables that live longer than a step and are in no table, from files of
    save_persistables; those without a file keep their values."""
    device = _static_io._executor("load_persistables", executor)
    tables = {table.parameter for table in training.tables}
    names = [
        name
        for name in _kept_variables(training, program)
        if name not in tables and os.path.exists(_static_io._file(dirname, name))
    ]
    if names:
        folder = os.fsencode(dirname)
        _core.load_variables(global_scope(), program, names, folder, False, device)
