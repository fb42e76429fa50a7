# SPDX-License-Identifier: Apache-2.0
"""Gradients as further operations of a program."""

from .. import _core
from .._core import Variable
from .program import OpRole, role_guard

__all__ = ["append_backward", "gradients"]


def _names(variables):
    """Names of variables that are given as such, or by name."""
    return {v if isinstance(v, str) else v.name for v in variables or ()}


def _as_list(value):
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def refuse_callbacks(function, callbacks):
    """Functions that Paddle calls for each operation of backward."""
    if callbacks:
        raise NotImplementedError(
            f"{function}: callbacks, which would be called for each operation of "
            "backward, are not supported; look at the program's operations afterwards"
        )


def append_backward(
    loss,
    parameter_list=None,
    no_grad_set=None,
    callbacks=None,
    checkpoints=None,
    distop_context=None,
):
    """Appends the operations that compute the gradients of `loss` by the parameters.

    parameter_list: parameters or their names; all trainable ones by default.
    no_grad_set: variables that have no gradient.
    checkpoints: variables, or their names, that are kept for backward. What lies between
    them is computed again when backward needs it, which saves its memory.
    callbacks: not supported; look at the program's operations afterwards.
    Returns pairs of parameter and gradient.
    """
    refuse_callbacks("append_backward", callbacks)
    if not isinstance(loss, Variable):
        raise TypeError(
            f"append_backward: loss must be a Variable, but got {type(loss).__name__}"
        )
    if loss.size != 1:
        raise ValueError(
            f"append_backward: the loss {loss.name} must have one element, but its "
            f"shape is {loss.shape}; take its mean first"
        )
    program = loss.block.program
    made = loss.op
    if made is not None:
        made._set_attr("op_role", OpRole.Forward | OpRole.Loss)
    with role_guard(OpRole.Backward):
        gradients = _core.append_backward(
            program, [(loss.name, "")], _names(_as_list(no_grad_set))
        )
    recompute(program, checkpoints)
    block = program.global_block()
    if parameter_list is None:
        chosen = [p for p in program.all_parameters() if p.trainable]
    else:
        chosen = [block.var(name) for name in _ordered(parameter_list)]
    return [(p, block.var(gradients[p.name])) for p in chosen if p.name in gradients]


def recompute(program, checkpoints):
    """For a program that ends with its backward: what lies between `checkpoints`,
    variables or their names, is computed again instead of kept."""
    if checkpoints:
        _core.recompute(program, sorted(_names(_as_list(checkpoints))))


def _ordered(parameters):
    return [p if isinstance(p, str) else p.name for p in _as_list(parameters)]


def gradients(targets, inputs, target_gradients=None, no_grad_set=None):
    """Appends the operations that compute the gradients of the sum of `targets` by
    each of `inputs`, and returns these; None where a target does not depend on it.

    target_gradients: what to start from; None for ones.
    """
    targets, inputs = _as_list(targets), _as_list(inputs)
    starts = _as_list(target_gradients) or [None] * len(targets)
    if len(starts) != len(targets):
        raise ValueError(
            f"gradients: there are {len(targets)} targets, but {len(starts)} gradients "
            "to start from"
        )
    if not targets:
        raise ValueError("gradients: targets is empty")
    program = targets[0].block.program
    stopped = [v for v in inputs if v.stop_gradient]
    for variable in stopped:
        variable.stop_gradient = False
    try:
        with role_guard(OpRole.Backward):
            found = _core.append_backward(
                program,
                [
                    (t.name, "" if g is None else g.name)
                    for t, g in zip(targets, starts)
                ],
                _names(_as_list(no_grad_set)),
            )
    finally:
        for variable in stopped:
            variable.stop_gradient = True
    block = program.global_block()
    return [block.var(found[v.name]) if v.name in found else None for v in inputs]
