# SPDX-License-Identifier: Apache-2.0
"""Saving and loading as Paddle 1.x spells it: folders with a file for each variable, or
one file for all, and models with their program in `__model__`."""

import os

from .. import _core
from .._core import Variable
from ..static import io as _static_io
from ..static.compiled import CompiledProgram
from ..static.executor import global_scope
from ..static.io import (
    load,
    load_program_state,
    load_vars,
    save,
    save_vars,
    set_program_state,
)
from ..static.program import Program


def _is_parameter(variable):
    return variable.is_parameter


def is_persistable(variable):
    """Whether it lives longer than a step, and is not what programs are fed by."""
    return _static_io._is_saved(variable)


def save_persistables(executor, dirname, main_program=None, filename=None):
    """Saves all variables that live longer than a step."""
    return save_vars(
        executor, dirname, main_program, predicate=is_persistable, filename=filename
    )


save_persistable = save_persistables


def load_persistables(executor, dirname, main_program=None, filename=None):
    """Loads what save_persistables() saved."""
    load_vars(
        executor, dirname, main_program, predicate=is_persistable, filename=filename
    )


def save_params(executor, dirname, main_program=None, filename=None):
    """Saves the parameters."""
    return save_vars(
        executor, dirname, main_program, predicate=_is_parameter, filename=filename
    )


def load_params(executor, dirname, main_program=None, filename=None):
    """Loads what save_params() saved."""
    load_vars(
        executor, dirname, main_program, predicate=_is_parameter, filename=filename
    )


def get_program_parameter(program):
    """The parameters of a program."""
    return [v for v in program.list_vars() if _is_parameter(v)]


def get_program_persistable_vars(program):
    """The variables of a program that live longer than a step."""
    return [v for v in program.list_vars() if is_persistable(v)]


def save_inference_model(
    dirname,
    feeded_var_names,
    target_vars,
    executor,
    main_program=None,
    model_filename=None,
    params_filename=None,
    export_for_deployment=True,
    program_only=False,
):
    """Saves what computes `target_vars` from what is fed by name, for inference: a
    folder with the program in `__model__` and a file for each parameter, or all of them
    in `params_filename`. Returns the names of the targets.

    export_for_deployment: must be True; a program to train on is saved by fluid.io.save.
    """
    function = "save_inference_model"
    if not export_for_deployment:
        raise NotImplementedError(
            f"{function}: export_for_deployment=False, a program to train on: use "
            "paddle.fluid.io.save"
        )
    _static_io._executor(function, executor)
    program = main_program
    if isinstance(program, CompiledProgram):
        raise TypeError(f"{function}: main_program must be a Program")
    names = feeded_var_names
    names = [names] if isinstance(names, str) else list(names or [])
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{function}: feeded_var_names must be a list of names")
    targets = [target_vars] if isinstance(target_vars, Variable) else target_vars
    fetches = _static_io._variables(function, "target_vars", targets)
    if program is None and fetches:
        program = fetches[0].block.program
    program = _static_io._program(function, program)
    folder = os.fsdecode(_static_io._path(function, dirname, "dirname"))
    pruned = _static_io._inference(program, names, [v.name for v in fetches], True)
    model = os.fsencode(os.path.join(folder, model_filename or "__model__"))
    _core.make_folders(os.fsencode(folder))
    if program_only:
        _core.save_program(pruned, model)
    else:
        params = os.path.join(folder, params_filename) if params_filename else folder
        _core.save_model(
            pruned,
            global_scope(),
            model,
            os.fsencode(params),
            params_filename is not None,
        )
    return [v.name for v in fetches]


def load_inference_model(
    dirname,
    executor,
    model_filename=None,
    params_filename=None,
    pserver_endpoints=None,
):
    """What save_inference_model() saved, also as Paddle wrote it: (program, names to
    feed, variables to fetch).

    pserver_endpoints: must be None; what was saved holds all parameters.
    """
    function = "load_inference_model"
    if pserver_endpoints:
        raise NotImplementedError(
            f"{function}: pserver_endpoints: a model for inference does not ask servers; "
            "save it by fleet.save_inference_model, which takes the rows along"
        )
    device = _static_io._executor(function, executor)
    folder = os.fsdecode(_static_io._path(function, dirname, "dirname"))
    if not os.path.isdir(folder) and os.path.exists(folder + ".pdmodel"):
        return tuple(_static_io.load_inference_model(folder, executor))
    if not os.path.isdir(folder):
        raise ValueError(f"{function}: there is no folder '{folder}'")
    path = os.path.join(folder, model_filename or "__model__")
    program = Program()
    _core.load_program(program, os.fsencode(path))
    params = os.path.join(folder, params_filename) if params_filename else folder
    _static_io._load_into(
        global_scope(), program, params, params_filename is not None, device
    )
    return (program, *_static_io._endings_of(program))
