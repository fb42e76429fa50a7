# SPDX-License-Identifier: Apache-2.0
"""Programs and the values of their variables in files, in the formats of Paddle.

    save, load                      a program in training: .pdmodel, .pdparams, .pdopt
    save_inference_model, load_…    a program for inference: .pdmodel, .pdiparams
    serialize_…, deserialize_…      the same as bytes
    save_vars, load_vars            values only, one file for each or one for all

What Paddle saved loads here, and the other way round. Every file appears whole or not
at all; a file that is cut off or altered raises DataLossError.
"""

import os
import warnings

import numpy as np

from .. import _core
from .._core import Variable
from ..framework import io as _framework_io
from ..framework import state_file
from ..framework.container import TENSOR_DTYPES
from ..framework.place import device_of
from ..framework.whole_file import open_whole
from .compiled import CompiledProgram
from .executor import Executor, global_scope
from .program import Program, default_main_program

__all__ = [
    "deserialize_persistables",
    "deserialize_program",
    "load",
    "load_from_file",
    "load_inference_model",
    "load_program_state",
    "load_vars",
    "normalize_program",
    "save",
    "save_inference_model",
    "save_to_file",
    "save_vars",
    "serialize_persistables",
    "serialize_program",
    "set_program_state",
]

# ---- arguments


def _path(function, path, argument="path"):
    try:
        return os.fspath(path)
    except TypeError:
        raise TypeError(
            f"{function}: {argument} must be a file name, but got {type(path).__name__}"
        ) from None


def _check_known(function, given, *known):
    for name in given:
        if name not in known:
            raise TypeError(
                f"{function} has no argument '{name}'; more than the ones by position "
                f"are {', '.join(known)}"
            )


def _refuse_whole(function, kwargs):
    if kwargs.get("skip_prune_program"):
        raise NotImplementedError(
            f"{function}: skip_prune_program=True: what fetch_vars do not need is "
            "always left out"
        )


def _prefix(function, path_prefix):
    path = _path(function, path_prefix, "path_prefix")
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    folder, name = os.path.split(path)
    if not name:
        raise ValueError(
            f"{function}: path_prefix should be folder/name, but '{path}' names no file"
        )
    return path


def _program(function, program):
    """The program itself, the default one for None."""
    if program is None:
        return default_main_program()
    if isinstance(program, CompiledProgram):
        return program._program
    if not isinstance(program, Program):
        raise TypeError(
            f"{function}: program must be a Program, but got {type(program).__name__}"
        )
    return program


def _executor(function, executor):
    if not isinstance(executor, Executor):
        raise TypeError(
            f"{function}: executor must be an Executor, but got "
            f"{type(executor).__name__}"
        )
    return device_of(executor.place)


def _variables(function, argument, variables):
    """A list of Variables, of one or of several."""
    if isinstance(variables, Variable):
        return [variables]
    if not isinstance(variables, (list, tuple)):
        raise TypeError(
            f"{function}: {argument} must be a Variable or a list of them, but got "
            f"{type(variables).__name__}"
        )
    for variable in variables:
        if not isinstance(variable, Variable):
            raise TypeError(
                f"{function}: {argument} must be a list of Variables, but one of them "
                f"is a {type(variable).__name__}"
            )
    return list(variables)


def _names(variables):
    return [v if isinstance(v, str) else v.name for v in variables]


def _inference(program, feeds, fetches, old=False):
    pruned = Program()
    _core.to_inference(pruned, program, feeds, fetches, old)
    return pruned


def _endings(function, program, feed_vars, fetch_vars):
    """The program and the names of what it is fed and asked for."""
    feeds = _variables(function, "feed_vars", feed_vars)
    fetches = _variables(function, "fetch_vars", fetch_vars)
    if program is None:
        program = (fetches or feeds or [None])[0]
        program = default_main_program() if program is None else program.block.program
    return _program(function, program), _names(feeds), _names(fetches)


def _is_saved(variable):
    """Whether it lives longer than a step, and is not what programs are fed by."""
    return bool(variable.persistable) and variable.name not in ("feed", "fetch")


# ---- inference


def save_inference_model(path_prefix, feed_vars, fetch_vars, executor, **kwargs):
    """Saves what computes `fetch_vars` from `feed_vars`, for inference:
    PREFIX.pdmodel and PREFIX.pdiparams.

    program: the program of these variables, if it is not the default one.
    """
    function = "save_inference_model"
    # How Paddle writes its files; ours have one form, which it reads.
    form = ("clip_extra", "legacy_format")
    _check_known(function, kwargs, "program", "skip_prune_program", *form)
    _refuse_whole(function, kwargs)
    path = _prefix(function, path_prefix)
    _executor(function, executor)
    program, feeds, fetches = _endings(
        function, kwargs.get("program"), feed_vars, fetch_vars
    )
    _core.save_model(
        _inference(program, feeds, fetches),
        global_scope(),
        os.fsencode(path + ".pdmodel"),
        os.fsencode(path + ".pdiparams"),
        True,
    )


def load_inference_model(path_prefix, executor, **kwargs):
    """What save_inference_model() saved, also as Paddle wrote it.

    path_prefix: of PREFIX.pdmodel and PREFIX.pdiparams; a folder with `__model__`, or
        with the files that `model_filename` and `params_filename` name; None when these
        two are the bytes themselves.
    Returns [program, names of feeds, variables to fetch]; the parameters go to the
    scope that is the global one.
    """
    function = "load_inference_model"
    _check_known(function, kwargs, "model_filename", "params_filename")
    device = _executor(function, executor)
    model = kwargs.get("model_filename")
    params = kwargs.get("params_filename")
    program = Program()
    scope = global_scope()
    if path_prefix is None:
        if not isinstance(model, bytes) or not isinstance(params, (bytes, type(None))):
            raise ValueError(
                f"{function}: without a path, model_filename and params_filename must "
                "be the bytes of program and parameters"
            )
        _core.parse_program(program, model, "model_filename")
        deserialize_persistables(program, params or b"", executor)
    else:
        path = _prefix(function, path_prefix)
        files = _model_files(path, model, params)
        _core.load_program(program, os.fsencode(files[0]))
        _load_into(scope, program, files[1], files[2], device)
    return [program, *_endings_of(program)]


def _model_files(path, model, params):
    """Paths of the program and of the parameters, and whether these are one file."""
    if os.path.isdir(path):
        program = os.path.join(path, model or "__model__")
        if params:
            return program, os.path.join(path, params), True
        return program, path, False
    if model or params:
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        program = path + ".pdmodel" if model is None else os.path.join(folder, model)
        params = path + ".pdiparams" if params is None else os.path.join(folder, params)
        return program, params, True
    if not os.path.exists(path + ".pdmodel"):
        raise ValueError(
            f"load_inference_model: there is no model at '{path}': neither "
            f"{path}.pdmodel nor a folder of that name exists"
        )
    return path + ".pdmodel", path + ".pdiparams", True


def _load_into(scope, program, path, combined, device):
    names = _core.saved_variables(program)
    if names:
        _core.load_variables(scope, program, names, os.fsencode(path), combined, device)


def _endings_of(program):
    block = program.global_block()
    fetches = [block.var(name) for name in _core.fetches_of(program)]
    return _core.feeds_of(program), fetches


def normalize_program(program, feed_vars, fetch_vars, **kwargs):
    """A program of its own that computes `fetch_vars` from `feed_vars`, for inference."""
    function = "normalize_program"
    _check_known(function, kwargs, "skip_prune_program")
    _refuse_whole(function, kwargs)
    program, feeds, fetches = _endings(function, program, feed_vars, fetch_vars)
    return _inference(program, feeds, fetches)


# ---- bytes


def serialize_program(feed_vars, fetch_vars, **kwargs):
    """The bytes of PREFIX.pdmodel."""
    _check_known("serialize_program", kwargs, "program", "legacy_format")
    program, feeds, fetches = _endings(
        "serialize_program", kwargs.get("program"), feed_vars, fetch_vars
    )
    return _core.serialize_program(_inference(program, feeds, fetches))


def serialize_persistables(feed_vars, fetch_vars, executor, **kwargs):
    """The bytes of PREFIX.pdiparams, or None if the program has no parameters."""
    function = "serialize_persistables"
    _check_known(function, kwargs, "program")
    _executor(function, executor)
    program, feeds, fetches = _endings(
        function, kwargs.get("program"), feed_vars, fetch_vars
    )
    names = _core.saved_variables(_inference(program, feeds, fetches))
    if not names:
        return None
    return _core.serialize_variables(global_scope(), names)


def deserialize_program(data):
    """The program in bytes of serialize_program()."""
    program = Program()
    _core.parse_program(program, bytes(data), "deserialize_program")
    return program


def deserialize_persistables(program, data, executor):
    """Sets the parameters of `program` from bytes of serialize_persistables()."""
    function = "deserialize_persistables"
    device = _executor(function, executor)
    program = _program(function, program)
    names = _core.saved_variables(program)
    if not names:
        return
    tensors = _core.parse_tensors(bytes(data), names, function)
    _core.set_variables(global_scope(), program, names, tensors, device)


def save_to_file(path, content):
    """Writes bytes to a file, which appears whole or not at all."""
    if not isinstance(content, bytes):
        raise ValueError(
            f"save_to_file: content must be bytes, but is a {type(content).__name__}"
        )
    with open_whole(_path("save_to_file", path)) as file:
        file.append(content)


def load_from_file(path):
    """The bytes of a file."""
    with open(_path("load_from_file", path), "rb") as file:
        return file.read()


# ---- training


def _arrays(scope, variables, what):
    arrays = {}
    for variable in variables:
        value = scope._get(variable.name)
        if value is None:
            raise RuntimeError(
                f"{what}: variable {variable.name} has no value to save: run the "
                "startup program first, in the same scope"
            )
        arrays[variable.name] = _array(value)
    return arrays


def _array(tensor):
    # numpy has no bfloat16; Paddle stores its bits.
    code = TENSOR_DTYPES[tensor.dtype.name]
    return np.asarray(tensor._numpy_view(), dtype=np.dtype(code), order="C")


def save(program, model_path, protocol=4, **configs):
    """Saves a program with its parameters and the state of its optimizer:
    PATH.pdmodel, PATH.pdparams, PATH.pdopt."""
    _framework_io._check_protocol(protocol, configs)
    path = _prefix("save", model_path)
    program = _program("save", program)
    scope = global_scope()
    saved = [v for v in program.list_vars() if _is_saved(v)]
    parameters = [v for v in saved if v.is_parameter]
    others = [v for v in saved if not v.is_parameter]
    # Values first: where the program is, they are.
    state_file.save(_arrays(scope, parameters, "save"), path + ".pdparams")
    state_file.save(_arrays(scope, others, "save"), path + ".pdopt")
    _core.save_program(program, os.fsencode(path + ".pdmodel"))


def load(program, model_path, executor=None, var_list=None):
    """Sets the parameters and the optimizer's state of `program` from what save(),
    save_vars() or Paddle saved.

    var_list: for a single file of values, the variables that are in it.
    """
    function = "load"
    program = _program(function, program)
    device = "cpu" if executor is None else _executor(function, executor)
    path = os.fsdecode(_path(function, model_path))
    for suffix in (".pdparams", ".pdopt", ".pdmodel"):
        path = path.removesuffix(suffix)
    saved = [v for v in program.list_vars() if _is_saved(v)]
    if not os.path.exists(path + ".pdparams"):
        return _load_values(program, path, saved, var_list, device)
    arrays = _state_arrays(path + ".pdparams")
    wanted = [v for v in saved if v.is_parameter]
    others = [v for v in saved if not v.is_parameter]
    if others and os.path.exists(path + ".pdopt"):
        arrays = {**arrays, **_state_arrays(path + ".pdopt")}
        wanted += others
    elif others:
        raise FileNotFoundError(
            f"load: the program has an optimizer, but {path}.pdopt does not exist"
        )
    missing = [v.name for v in wanted if v.name not in arrays]
    if missing:
        raise ValueError(
            f"load: {path} has no values for {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        )
    _set_arrays(program, {v.name: arrays[v.name] for v in wanted}, device)


def _state_arrays(path):
    arrays = state_file.load(path)
    table = arrays.pop(_framework_io._NAME_TABLE, None)
    arrays = _framework_io._join_slices(arrays)
    if isinstance(table, dict):
        # The state of a layer, by the names of its attributes.
        arrays = {table.get(key, key): value for key, value in arrays.items()}
    return {
        key: value for key, value in arrays.items() if isinstance(value, np.ndarray)
    }


def _load_values(program, path, saved, var_list, device):
    """A folder with a file for each variable, or a file with all of `var_list`."""
    if os.path.isdir(path):
        chosen = saved if var_list is None else var_list
        names = [v.name for v in chosen if os.path.exists(_file(path, v.name))]
        if not names:
            raise ValueError(f"load: the folder {path} has none of the variables")
        combined = False
    elif os.path.isfile(path):
        if var_list is None:
            raise ValueError(
                f"load: {path} is one file of several variables: say which by var_list"
            )
        names, combined = sorted(_names(var_list)), True
    else:
        raise FileNotFoundError(f"load: neither {path}.pdparams nor {path} exists")
    _core.load_variables(
        global_scope(), program, names, os.fsencode(path), combined, device
    )


def _set_arrays(program, arrays, device):
    tensors = [_framework_io._make_tensor(array) for array in arrays.values()]
    _core.set_variables(global_scope(), program, list(arrays), tensors, device)


def load_program_state(model_path, var_list=None):
    """The arrays that save(), save_vars() or Paddle saved, by name."""
    path = os.fsdecode(_path("load_program_state", model_path))
    for suffix in (".pdparams", ".pdopt", ".pdmodel"):
        path = path.removesuffix(suffix)
    if os.path.exists(path + ".pdparams"):
        arrays = _state_arrays(path + ".pdparams")
        if os.path.exists(path + ".pdopt"):
            arrays.update(_state_arrays(path + ".pdopt"))
        if var_list is not None:
            chosen = set(_names(var_list))
            arrays = {k: v for k, v in arrays.items() if k in chosen}
        return arrays
    if os.path.isdir(path):
        names = _names(var_list) if var_list is not None else _files_of(path)
        values = [_core.load_tensors(_file(path, name), [name])[0] for name in names]
    elif os.path.isfile(path) and var_list is not None:
        names = sorted(_names(var_list))
        values = _core.load_tensors(os.fsencode(path), names)
    elif os.path.isfile(path):
        raise ValueError(
            f"load_program_state: {path} is one file of several variables: say which "
            "by var_list"
        )
    else:
        raise FileNotFoundError(
            f"load_program_state: neither {path}.pdparams nor {path} exists"
        )
    return {name: _array(value) for name, value in zip(names, values)}


def _file(folder, name):
    return _core.file_of_variable(os.fsencode(folder), name)


def _files_of(folder):
    """Names of the variables in a folder: every file but the program."""
    names = []
    for where, _, files in os.walk(folder):
        for name in files:
            if name != "__model__" and not name.endswith((".pdmodel", ".tmp")):
                file = os.path.relpath(os.path.join(where, name), folder)
                names.append(_core.name_of_file(file))
    return sorted(names)


def set_program_state(program, state_dict):
    """Sets values of a program's variables by name; names that it does not have are
    left, with a warning."""
    program = _program("set_program_state", program)
    if not isinstance(state_dict, dict):
        raise TypeError(
            "set_program_state: state_dict must be a dict, but is a "
            f"{type(state_dict).__name__}"
        )
    left = dict(state_dict)
    arrays = {}
    for variable in program.list_vars():
        if _is_saved(variable) and variable.name in left:
            arrays[variable.name] = np.asarray(left.pop(variable.name))
    scope = global_scope()
    for name in arrays:
        if not scope._find(name):
            raise RuntimeError(
                f"set_program_state: {name} has no value yet: run the startup program "
                "first"
            )
    device = scope._get(next(iter(arrays)))._device if arrays else "cpu"
    _set_arrays(program, arrays, device)
    if left:
        warnings.warn(
            "set_program_state: the program does not have " + ", ".join(sorted(left)),
            stacklevel=2,
        )


# ---- values


def _chosen(function, program, variables, predicate, default):
    """Names of the variables that are meant."""
    if variables is not None:
        chosen = []
        for variable in variables:
            if isinstance(variable, str):
                chosen.append(variable)
            elif isinstance(variable, Variable):
                chosen.append(variable.name)
            else:
                raise TypeError(
                    f"{function}: vars must be Variables, but one of them is a "
                    f"{type(variable).__name__}"
                )
        return chosen
    predicate = predicate or default
    return [v.name for v in program.list_vars() if predicate(v)]


def _where(function, dirname, filename):
    """The path for values, and whether it is one file."""
    if filename is None:
        if dirname is None:
            raise ValueError(f"{function}: dirname or filename must say where")
        return os.fsencode(_path(function, dirname, "dirname")), False
    folder = "" if dirname is None else os.fsdecode(_path(function, dirname, "dirname"))
    name = os.fsdecode(_path(function, filename, "filename"))
    return os.fsencode(os.path.join(folder, name)), True


def save_vars(
    executor, dirname, main_program=None, vars=None, predicate=None, filename=None
):
    """Saves values of variables: each to a file of its name in `dirname`, or all to
    `filename` there. With neither dirname nor filename it returns the bytes of one
    file.

    vars: which; else those of the program for which `predicate` holds, by default all
        that live longer than a step.
    """
    function = "save_vars"
    _executor(function, executor)
    program = _program(function, main_program)
    names = sorted(set(_chosen(function, program, vars, predicate, _is_saved)))
    if dirname is None and filename is None:
        return _core.serialize_variables(global_scope(), names)
    path, combined = _where(function, dirname, filename)
    if not combined:
        _core.make_folders(path)
    if names:
        _core.save_variables(global_scope(), names, path, combined)
    return None


def load_vars(
    executor, dirname, main_program=None, vars=None, predicate=None, filename=None
):
    """Loads what save_vars() saved, with the same arguments."""
    function = "load_vars"
    device = _executor(function, executor)
    program = _program(function, main_program)
    chosen = _chosen(function, program, vars, predicate, _is_saved)
    names = sorted(set(chosen))
    if not names:
        return
    if vars is not None and main_program is None:
        owners = [v.block.program for v in vars if isinstance(v, Variable)]
        program = owners[0] if owners else program
    path, combined = _where(function, dirname, filename)
    _core.load_variables(global_scope(), program, names, path, combined, device)
