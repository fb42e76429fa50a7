# SPDX-License-Identifier: Apache-2.0
"""Programs, and values of parameters, in a short type."""

import contextlib

from ... import _core
from ..executor import global_scope
from ..program import _setting, name_scope
from .fp16_lists import AutoMixedPrecisionLists, check_amp_dtype

__all__ = ["cast_model_to_fp16", "cast_parameters_to_fp16", "fp16_guard"]

SCOPE = "__use_fp16__"
_LEVELS = ("O0", "OD", "O1", "O2")


@contextlib.contextmanager
def fp16_guard():
    """What is made inside may compute in a short type; with `use_fp16_guard`, what is
    made outside may not."""
    with name_scope(SCOPE):
        yield


def amp_level(level):
    """The engine's value of a level."""
    return getattr(_core.AmpLevel, check_level(level))


def check_level(level):
    name = level.upper() if isinstance(level, str) else level
    if name not in _LEVELS:
        raise ValueError(f"amp: level must be O0, OD, O1 or O2, but is {level!r}")
    return name


def use_mixed_precision(
    program, amp_lists, dtype, level, guard, use_promote=False, short_parameters=False
):
    """Puts the casts into `program`; returns the names of parameters that became
    short."""
    _, names = _core.use_mixed_precision(
        program,
        check_amp_dtype(dtype),
        amp_level(level),
        amp_lists._custom(),
        bool(use_promote),
        amp_lists.black_varnames,
        SCOPE if guard else "",
        short_parameters,
    )
    return names


def cast_model_to_fp16(
    program,
    amp_lists=None,
    use_fp16_guard=True,
    dest_type="float16",
    level="O2",
    use_promote=False,
):
    """Rewrites a program without backward to compute in a short type, and its parameters
    to be of it; what normalisations keep stays float32.

    Args:
        use_fp16_guard: only what was made in `with fp16_guard():`.
        dest_type: 'float16' or 'bfloat16'.
        level: 'O2' for all operations but those of the black lists; 'O1' by the lists,
            with parameters that stay float32.

    Returns the names of the parameters that are short now; their values are still to be
    cast, by cast_parameters_to_fp16.
    """
    dtype, level = check_amp_dtype(dest_type), check_level(level)
    if amp_lists is None:
        amp_lists = AutoMixedPrecisionLists(dtype=dtype)
    return use_mixed_precision(
        program,
        amp_lists,
        dtype,
        level,
        guard=use_fp16_guard and level == "O2",
        use_promote=use_promote,
        short_parameters=level == "O2",
    )


def cast_parameters_to_fp16(
    place, program, scope=None, to_fp16_var_names=None, dest_type="float16"
):
    """Casts the values of parameters in `scope`: those of `to_fp16_var_names`, what
    cast_model_to_fp16 returned, or all that the program has as `dest_type`."""
    dtype = check_amp_dtype(dest_type)
    scope = global_scope() if scope is None else scope
    for parameter in program.all_parameters():
        if to_fp16_var_names is None:
            wanted = parameter.dtype == dtype
        else:
            wanted = parameter.name in to_fp16_var_names
        if not wanted:
            continue
        value = scope._get(parameter.name)
        if value is None:
            raise RuntimeError(
                f"amp: the parameter {parameter.name} has no value yet: run the startup "
                "program, or load a model, first"
            )
        with _setting(on=False):  # at once, and not in a program
            scope._set(parameter.name, value.astype(dtype))
