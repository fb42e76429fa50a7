# SPDX-License-Identifier: Apache-2.0
"""Optimizers in programs: clipping, weight decay and updates as operations, the state
of a rule and the learning rate as persistable variables."""

import dataclasses

from .. import _ops
from .._core import DType, Variable
from ..regularizer import L1Decay
from ..static.backward import append_backward
from ..static.program import OpRole, program_guard, role_guard
from ..utils import unique_name


@dataclasses.dataclass
class State:
    """What a rule remembers of a parameter: an input of its op, and the output of the
    same name with `Out`."""

    slot: str
    name: str  # of the variable: <parameter>_<name>_0
    initial: float = 0.0
    scalar: bool = False
    output: str = ""  # the output slot, <slot>Out by default; None: has none


@dataclasses.dataclass
class Update:
    """The op of a rule."""

    type: str
    states: list
    attrs: dict
    # An op after the update: (type, state slot, attrs), applied to that state.
    after: tuple = None


def persistable(name, shape, value, dtype=DType.float32):
    """A variable of the main program that the startup program fills with `value`."""
    from ..nn.initializer import Constant
    from ..static.program import default_main_program, default_startup_program

    flags = {"persistable": True, "stop_gradient": True}
    block = default_main_program().global_block()
    variable = block._add_variable(name, shape, dtype, flags)
    startup = default_startup_program().global_block()
    if not startup.has_var(name):
        startup._add_variable(name, shape, dtype, flags)
        with role_guard(OpRole.Forward):
            Constant(value)(variable, startup)
    return variable


def _number_dtype(dtypes):
    """The type of numbers that go with parameters: the rate, the powers of betas."""
    return DType.float64 if DType.float64 in dtypes else DType.float32


class ProgramUpdate:
    """What one optimizer has in one program."""

    def __init__(self, optimizer, program, dtypes):
        self._optimizer = optimizer
        self._program = program
        self._by_parameter = {}
        self._rate_dtype = _number_dtype(dtypes)
        self.rate_name = None

    def learning_rate(self):
        """The variable of the learning rate."""
        rate = self._optimizer._learning_rate
        if isinstance(rate, Variable):
            return rate
        if self.rate_name is None:
            self.rate_name = unique_name.generate("learning_rate")
            value = self._optimizer.get_lr()
            persistable(self.rate_name, [1], value, self._rate_dtype)
            if self._optimizer._scheduled:
                self._program._schedulers.append((rate, self.rate_name))
        return self._program.global_block().var(self.rate_name)

    def set_rate(self, value):
        """Sets the rate where the program keeps it."""
        from ..static.executor import global_scope

        if self.rate_name is not None:
            global_scope()._set_number(self.rate_name, value)

    def state_dict(self):
        """What the rule remembers, in the global scope, by the names of variables."""
        from ..static.executor import global_scope

        values = {n: global_scope()._get(n) for n in self._by_parameter.values()}
        return {name: value for name, value in values.items() if value is not None}

    def take_state(self, state):
        """Sets what `state` has for this program; returns the rest."""
        from ..static.executor import global_scope

        rest = dict(state)
        for name in self._by_parameter.values():
            if name in rest:
                global_scope().var(name).get_tensor().set(rest.pop(name))
        return rest

    def rate_of(self, parameter, settings):
        factor = settings.get("learning_rate", 1.0)
        factor *= self._optimizer._learning_rate_factor(parameter)
        rate = self.learning_rate()
        return rate if factor == 1.0 else _ops.scale(rate, float(factor))

    def state(self, parameter, state):
        key = (parameter.name, state.name)
        if key not in self._by_parameter:
            name = unique_name.generate(f"{parameter.name}_{state.name}")
            shape = [1] if state.scalar else parameter.shape
            dtype = parameter.dtype
            if state.scalar:
                dtype = _number_dtype([dtype])
            persistable(name, shape, state.initial, dtype)
            self._by_parameter[key] = name
        return self._program.global_block().var(self._by_parameter[key])

    def append(self, parameter, gradient, settings):
        """Appends the update of one parameter."""
        update = self._optimizer._program_update(parameter, settings)
        inputs = {
            "Param": parameter,
            "Grad": gradient,
            "LearningRate": self.rate_of(parameter, settings),
        }
        outputs = {"ParamOut": parameter}
        for state in update.states:
            variable = self.state(parameter, state)
            inputs[state.slot] = variable
            if state.output is not None:
                outputs[state.output or state.slot + "Out"] = variable
        skip = self._optimizer._skip_update
        if skip is not None:
            inputs["SkipUpdate"] = skip
        block = self._program.current_block()
        made = block.append_op(update.type, inputs, outputs, update.attrs)
        if update.after is not None:
            kind, slot, attrs = update.after
            before = inputs[slot]
            if skip is None:
                block.append_op(kind, {"X": before}, {"Out": before}, attrs)
            else:
                after = _ops.where(skip, before, getattr(_ops, kind)(before, **attrs))
                block.append_op("assign", {"X": after}, {"Out": before})
        return made


def _settings(optimizer, parameter):
    """What the parameter's group sets for itself."""
    for group in optimizer._param_groups:
        if any(member.name == parameter.name for member in group.parameters):
            return group.settings
    return {}


def _decay_of(optimizer, parameter):
    if parameter.regularizer is not None:
        return parameter.regularizer
    settings = _settings(optimizer, parameter)
    if "weight_decay" in settings:
        return optimizer._check_decay(settings["weight_decay"])
    return optimizer.regularization


def _decayed(parameter, gradient, decay):
    """The gradient with the regularizer's share."""
    if decay is None or decay.coeff == 0.0:
        return gradient
    source = _ops.sign(parameter) if isinstance(decay, L1Decay) else parameter
    return _ops.sum([gradient, _ops.scale(source, decay.coeff)])


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
        dtypes = [parameter.dtype for parameter, _ in pairs]
        update = table[id(program)] = ProgramUpdate(optimizer, program, dtypes)
    with program_guard(program, startup_program), role_guard(OpRole.Optimize):
        update.learning_rate()
        clip = optimizer._grad_clip or program.__dict__.get("_grad_clip")
        if clip is not None:
            pairs = clip(pairs)
        if optimizer._rescale_grad != 1.0:
            pairs = [(p, _ops.scale(g, optimizer._rescale_grad)) for p, g in pairs]
        decayed = []
        for parameter, gradient in pairs:
            decay = _decay_of(optimizer, parameter)
            decayed.append((parameter, _decayed(parameter, gradient, decay)))
        return [update.append(p, g, _settings(optimizer, p)) for p, g in decayed]
