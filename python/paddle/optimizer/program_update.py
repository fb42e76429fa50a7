# SPDX-License-Identifier: Apache-2.0
"""Optimizers in programs: what fleet/plan is told of one, and the names of the variables
that it makes for the state of a rule and the learning rate."""

from .. import _core
from .._core import DType, Variable
from ..nn.clip import ClipGradBase
from ..regularizer import L1Decay
from ..static.backward import append_backward
from ..static.program import OpRole, prepare, program_guard, role_guard


def persistable(name, shape, value, dtype=DType.float32):
    """A variable of the main program that the startup program fills with `value`."""
    prepare()
    return _core.new_persistable(name, list(shape), float(value), dtype)


class ProgramUpdate:
    """What one optimizer has in one program."""

    def __init__(self, optimizer, program):
        self._optimizer = optimizer
        self._program = program
        self._made = _core.OptimizerVariables()

    def set_rate(self, value):
        """Sets the rate where the program keeps it."""
        from ..static.executor import global_scope

        if self._made.learning_rate:
            global_scope()._set_number(self._made.learning_rate, value)

    def state_dict(self):
        """What the rule remembers, in the global scope, by the names of variables."""
        from ..static.executor import global_scope

        values = {name: global_scope()._get(name) for name in self._made.states}
        return {name: value for name, value in values.items() if value is not None}

    def take_state(self, state):
        """Sets what `state` has for this program; returns the rest."""
        from ..static.executor import global_scope

        rest = dict(state)
        for name in self._made.states:
            if name in rest:
                global_scope().var(name).get_tensor().set(rest.pop(name))
        return rest

    def append(self, pairs, clip):
        """Appends clipping, decay and updates; returns the operations that update."""
        optimizer = self._optimizer
        rate = optimizer._learning_rate
        known = bool(self._made.learning_rate)
        updates = _core.apply_gradients(
            pairs,
            rate if isinstance(rate, Variable) else float(optimizer.get_lr()),
            clip,
            optimizer._rescale_grad,
            {p.name: _settings_of(optimizer, p) for p, _ in pairs},
            optimizer._skip_update,
            self._made,
        )
        if optimizer._scheduled and not known:
            self._program._schedulers.append((rate, self._made.learning_rate))
        return updates


def _settings_of(optimizer, parameter):
    """What the optimizer does with a parameter, which its group may say."""
    settings = {}
    for group in optimizer._param_groups:
        if any(member.name == parameter.name for member in group.parameters):
            settings = group.settings
            break
    decay = optimizer.regularization
    if parameter.regularizer is not None:
        decay = parameter.regularizer
    elif "weight_decay" in settings:
        decay = optimizer._check_decay(settings["weight_decay"])
    coefficient = 0.0 if decay is None else decay.coeff
    is_l1 = isinstance(decay, L1Decay)
    factor = settings.get("learning_rate", 1.0)
    return _core.ParameterSettings(
        rule=optimizer._rule(settings),
        decoupled_decay=optimizer._decoupled_decay(parameter, settings),
        learning_rate=float(factor * optimizer._learning_rate_factor(parameter)),
        l1=coefficient if is_l1 else 0.0,
        l2=0.0 if is_l1 else coefficient,
        need_clip=getattr(parameter, "need_clip", True),
    )


def backward(optimizer, loss, startup_program, parameters, no_grad_set):
    """The pairs of parameter and gradient variable, after the operations that compute
    the gradients have been appended."""
    program = loss.block.program
    with program_guard(program, startup_program):
        chosen = parameters or optimizer._all_parameters() or None
        return append_backward(loss, chosen, no_grad_set)


def apply_gradients(optimizer, params_grads, startup_program=None):
    """Appends clipping, weight decay and updates; returns the operations that update."""
    pairs = [(p, g) for p, g in params_grads if g is not None]
    if not pairs:
        return []
    program = pairs[0][0].block.program
    table = optimizer._program_updates
    update = table.get(id(program))
    if update is None:
        update = table[id(program)] = ProgramUpdate(optimizer, program)
    with program_guard(program, startup_program), role_guard(OpRole.Optimize):
        clip = optimizer._grad_clip or program.__dict__.get("_grad_clip")
        if clip is not None and type(clip).__call__ is not ClipGradBase.__call__:
            pairs, clip = clip(pairs), None  # a class of the user's
        return update.append(
            pairs, _core.optim.Clip() if clip is None else clip._engine_clip()
        )
