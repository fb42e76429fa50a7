# SPDX-License-Identifier: Apache-2.0
"""Running programs, and where what outlives a run is kept."""

import contextlib
import weakref

from .. import _core
from ..framework.place import CPUPlace, cuda_places, device_of, place_of
from .compiled import CompiledProgram
from .program import Program, default_main_program
from .variable import known_value

__all__ = ["Executor", "Scope", "global_scope", "scope_guard"]


class LoDTensor:
    """A value outside of programs: memory of its own, or that of a variable in a scope.

    set: takes values over. np.array(tensor) is a copy of them.
    """

    def __init__(self, scope=None, name=None):
        self._scope = _core.Scope() if scope is None else scope
        self._name = "value" if name is None else name
        self._lod = []

    def _value(self):
        value = self._scope._get(self._name)
        if value is None:
            raise RuntimeError(
                f"{self._name} has no value yet: run the startup program or set it"
            )
        return value

    def _is_initialized(self):
        return bool(self._scope._find(self._name))

    def set(self, data, place=None, zero_copy=False):
        """Takes over the values of an array, a list or a Tensor, in place where shape
        and type stay."""
        value = _core.from_object(known_value(data))
        old = self._scope._get(self._name)
        device = device_of(place) if place is not None else None
        if device is None:
            device = "cpu" if old is None else old._device
        if value._device != device:
            value = value._to(device, True)
        self._scope._set(self._name, value)

    def numpy(self):
        return self._value().numpy()

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def shape(self):
        return self._value().shape

    def _get_dims(self):
        return self._value().shape

    def _dtype(self):
        return self._value().dtype

    def _place(self):
        return place_of(self._value()._device)

    # ---- sequences

    def lod(self):
        """Where sequences begin and end, per level: [[0, 2, 5]]."""
        return [list(level) for level in self._lod]

    def set_lod(self, lod):
        self._lod = [[int(n) for n in level] for level in lod]

    def recursive_sequence_lengths(self):
        """The lengths of sequences, per level: [[2, 3]]."""
        return [[b - a for a, b in zip(level, level[1:])] for level in self._lod]

    def set_recursive_sequence_lengths(self, lengths):
        self._lod = []
        for level in lengths:
            ends = [0]
            for n in level:
                ends.append(ends[-1] + int(n))
            self._lod.append(ends)

    def has_valid_recursive_sequence_lengths(self):
        if not self._lod:
            return True
        rows = self._value().shape[0]
        return self._lod[-1][-1] == rows

    def __repr__(self):
        if not self._is_initialized():
            return "LoDTensor(without a value)"
        return f"LoDTensor(lod={self._lod}, {self._value()})"


class ScopeVariable:
    """A variable of a scope."""

    def __init__(self, scope, name):
        self._scope = scope
        self._variable_name = name

    def name(self):
        return self._variable_name

    def get_tensor(self):
        """Its value, which can be read and set."""
        return LoDTensor(self._scope, self._variable_name)


class Scope(_core.Scope):
    """Values by name that outlive a run: parameters, states of optimizers."""

    def var(self, name):
        """The variable `name`, made if it is not there."""
        if self._find(name) is None:
            self._make(name)
        return ScopeVariable(self, name)

    def find_var(self, name):
        """The variable `name`, or None."""
        return None if self._find(name) is None else ScopeVariable(self, name)

    def local_var_names(self):
        return self._names()

    def erase(self, names):
        for name in names:
            self._erase(name)


# In a job with servers: says what is run for a program (ServedTraining).
_stand_in = None


def set_stand_in(training):
    """Has every executor ask `training.program_to_run(program)`; None: no longer."""
    global _stand_in
    _stand_in = training


_core.Scope.var = Scope.var
_core.Scope.find_var = Scope.find_var
_scope = Scope()


def global_scope():
    """The scope that runs use when none is named."""
    return _scope


@contextlib.contextmanager
def scope_guard(scope):
    """Inside the `with` block `scope` is the global one."""
    global _scope
    if not isinstance(scope, _core.Scope):
        raise TypeError(f"scope_guard takes a Scope, but got {type(scope).__name__}")
    old, _scope = _scope, scope
    try:
        yield
    finally:
        _scope = old


def _as_list(fetch_list):
    if fetch_list is None:
        return ()
    if isinstance(fetch_list, (list, tuple)):
        if any(isinstance(item, (list, tuple)) for item in fetch_list):
            flat = []
            for item in fetch_list:
                flat += item if isinstance(item, (list, tuple)) else [item]
            return flat
        return fetch_list
    return [fetch_list]


def _one_feed(feed):
    """Several dicts are batches for several devices, of which there is one."""
    if not isinstance(feed, (list, tuple)):
        raise TypeError(
            f"Executor.run: feed must be a dict, but got {type(feed).__name__}"
        )
    if len(feed) == 0:
        return None
    if len(feed) == 1:
        return feed[0]
    import numpy as np

    return {
        name: np.concatenate([np.asarray(part[name]) for part in feed])
        for name in feed[0]
    }


def _sequence(value, offsets):
    """A LoDTensor of rows and of where their sequences begin."""
    made = LoDTensor()
    made._scope._set(made._name, value)
    made.set_lod([offsets.numpy().tolist()])
    return made


def _with_offsets(program, feed):
    """`feed` with LoDTensors as their values and, where the variable is a sequence,
    where its parts begin."""
    import numpy as np

    fed = {}
    block = program.global_block()
    for key, value in feed.items():
        name = key if isinstance(key, str) else key.name
        if type(value) is not LoDTensor:
            fed[name] = value
            continue
        fed[name] = value._value()
        if not block.has_var(f"{name}@LOD"):
            continue
        lod = value.lod()
        if len(lod) != 1:
            raise ValueError(
                f"Executor.run: {name} is a sequence of lod_level 1, but what is fed has "
                f"{len(lod)} levels"
            )
        if not value.has_valid_recursive_sequence_lengths():
            raise ValueError(
                f"Executor.run: the sequences of {name} end at {lod[-1][-1]}, but it has "
                f"{fed[name].shape[0]} rows"
            )
        fed[f"{name}@LOD"] = np.array(lod[0], "int64")
    return fed


class Executor:
    """Runs programs on `place`; without one on the GPU if there is one.

    What it compiles of a program it keeps, so that the next run only computes.
    """

    def __init__(self, place=None):
        if place is None:
            places = cuda_places()
            place = places[0] if places else CPUPlace()
        self.place = place
        self._engine = _core.Executor(device_of(place))
        self._trainer = None  # of train_from_dataset
        self._parts = weakref.WeakKeyDictionary()  # of programs, for use_prune
        self._closed = False

    def run(
        self,
        program=None,
        feed=None,
        fetch_list=None,
        feed_var_name="feed",
        fetch_var_name="fetch",
        scope=None,
        return_numpy=True,
        use_program_cache=False,
        return_merged=True,
        use_prune=False,
    ):
        """Runs `program` once, the default main program if None is named.

        feed: arrays, Tensors or lists by the name of a data variable.
        fetch_list: Variables or names whose values are wanted.
        use_prune: runs only what computes the values of `fetch_list`, so parameters stay
            as they are; by default the whole program.
        feed_var_name, fetch_var_name, use_program_cache, return_merged: accepted; what
            was compiled is always kept, and one process has one device.
        Returns them in that order, as arrays; without return_numpy as Tensors, and
        as LoDTensors where they are sequences.
        """
        if program is None:
            program = default_main_program()
        elif type(program) is not Program:
            program = self._program_of(program)
            if program._run_instead is not None:  # a server's
                return program._run_instead()
        if program._compiled is not None:
            program = program._compiled._program
        if _stand_in is not None:
            program = _stand_in.program_to_run(program)
        if feed is not None and type(feed) is not dict:
            feed = dict(feed) if hasattr(feed, "keys") else _one_feed(feed)
        if type(fetch_list) is not list or list in map(type, fetch_list):
            fetch_list = _as_list(fetch_list)
        if scope is None:
            scope = _scope
        for reader in program._readers:
            feed = reader._add_to(feed)
        if feed is not None and LoDTensor in map(type, feed.values()):
            feed = _with_offsets(program, feed)
        for scheduler, name in program._schedulers:
            scope._set_number(name, scheduler())
        if self._closed:
            raise RuntimeError("the executor is closed: make a new one")
        if use_prune:
            program = self._pruned(program, feed, fetch_list)
        if return_numpy:
            return self._engine.run(program, feed, fetch_list, scope, True)
        return self._run_to_tensors(program, feed, fetch_list, scope)

    def _run_to_tensors(self, program, feed, fetch_list, scope):
        """Values as Tensors, those of sequences as LoDTensors."""
        block = program.global_block()
        names = [v if isinstance(v, str) else v.name for v in fetch_list or ()]
        offsets = {}
        for name in names:
            found = block._find_var_recursive(name)
            if found is not None and found._lod:
                offsets[name] = found._lod
        wanted = [*names, *offsets.values()]
        values = self._engine.run(program, feed, wanted, scope, False)
        lods = dict(zip(offsets, values[len(names) :]))
        return [
            _sequence(value, lods[name]) if name in lods else value
            for name, value in zip(names, values)
        ]

    def _pruned(self, program, feed, fetch_list):
        """The part that computes `fetch_list`; made once for each version of a program."""
        feeds = sorted(feed or ())
        names = [v if isinstance(v, str) else v.name for v in fetch_list]
        key = (program._version, tuple(feeds), tuple(names))
        parts = self._parts.setdefault(program, {})
        if key not in parts:
            parts[key] = Program()
            _core.prune(parts[key], program, feeds, names)
        return parts[key]

    def _program_of(self, program):
        if isinstance(program, CompiledProgram):
            return program._program
        if isinstance(program, Program):
            return program
        raise TypeError(
            "Executor.run: program must be a Program or a CompiledProgram, but got "
            f"{type(program).__name__}"
        )

    def train_from_dataset(
        self,
        program=None,
        dataset=None,
        scope=None,
        thread=0,
        debug=False,
        fetch_list=None,
        fetch_info=None,
        print_period=100,
        fetch_handler=None,
    ):
        """Runs `program` once for every batch of `dataset`.

        thread: how many threads run it, each with the next batch; they share the
            parameters and do not wait for each other. 0: as the dataset's thread_num
            says, else the environment's CPU_NUM, else 1. With 1 it is a loop over run().
        debug: a line for each thread at the end: batches, time to wait and to run.
        fetch_list: Variables or names whose values are shown with every
            `print_period`-th batch on stderr, with the number of samples per second;
            under the names in `fetch_info`, if given.
        fetch_handler: a FetchHandler, whose handler is called about every period_secs
            with values of its variables.
        """
        self._run_from_dataset(
            "train_from_dataset",
            program,
            dataset,
            scope,
            thread,
            debug,
            (fetch_list, fetch_info, print_period, fetch_handler),
        )

    def infer_from_dataset(
        self,
        program=None,
        dataset=None,
        scope=None,
        thread=0,
        debug=False,
        fetch_list=None,
        fetch_info=None,
        print_period=100,
        fetch_handler=None,
    ):
        """As train_from_dataset, without backward and updates if the program has any:
        parameters stay as they are."""
        self._run_from_dataset(
            "infer_from_dataset",
            program,
            dataset,
            scope,
            thread,
            debug,
            (fetch_list, fetch_info, print_period, fetch_handler),
        )

    def _run_from_dataset(self, name, program, dataset, scope, thread, debug, shown):
        from . import dataset_training as training

        if dataset is None:
            raise RuntimeError(f"{name}: dataset is need and should be initialized")
        if self._closed:
            raise RuntimeError("the executor is closed: make a new one")
        program = (
            default_main_program() if program is None else self._program_of(program)
        )
        if program._compiled is not None:
            program = program._compiled._program
        if name == "infer_from_dataset":
            if _stand_in is not None:
                program = _stand_in.origin_of(program)
            program = training.for_inference(program)
        if _stand_in is not None:
            program = _stand_in.program_to_run(program)
        if scope is None:
            scope = _scope
        fetch_list, fetch_info, print_period, fetch_handler = shown
        names, titles = training.names_and_titles(_as_list(fetch_list), fetch_info)
        watched, period, look = training.watched(fetch_handler)
        for scheduler, rate in program._schedulers:
            scope._set_number(rate, scheduler())
        if self._trainer is None:
            self._trainer = _core.Trainer(device_of(self.place))
        self._trainer.run(
            program,
            scope,
            dataset._begin_pass(),
            name,
            training.thread_count(thread, dataset, program),
            names,
            titles,
            print_period,
            debug,
            watched,
            period,
            look,
        )

    def close(self):
        """Forgets what was compiled; the executor cannot be used any more. With
        fluid.DistributeTranspiler the trainer has ended."""
        self._closed = True
        if _stand_in is not None:
            _stand_in.executor_closed()
