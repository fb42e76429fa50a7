# SPDX-License-Identifier: Apache-2.0
"""What all optimizers share. The arithmetic is fleet/optim's; a step is one call into the
engine, whatever the number of parameters."""

import math
import numbers
import re
import warnings
from collections.abc import Mapping

from .. import _core
from ..nn.clip import ClipGradBase
from ..regularizer import L1Decay, L2Decay, WeightDecayRegularizer
from .lr import LRScheduler

__all__ = ["Optimizer"]


def _check_clip(grad_clip):
    if grad_clip is not None and not isinstance(grad_clip, ClipGradBase):
        raise TypeError(
            "grad_clip must be a ClipGradByValue, ClipGradByNorm or "
            f"ClipGradByGlobalNorm, but got {type(grad_clip).__name__}"
        )


def _regularizer(weight_decay):
    """weight_decay as a regularizer: a number means L2."""
    if weight_decay is None or isinstance(weight_decay, WeightDecayRegularizer):
        return weight_decay
    if isinstance(weight_decay, numbers.Real):
        return L2Decay(weight_decay)
    raise TypeError(
        "weight_decay must be a number, an L1Decay or an L2Decay, but got "
        f"{type(weight_decay).__name__}"
    )


def check_fraction(owner, name, value):
    """A hyper-parameter that lies in [0, 1)."""
    if value is None:
        raise ValueError(f"{owner}: {name} is not set")
    check_number(owner, name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{owner}: {name} must be in [0, 1), but got {value}")


def check_number(owner, name, value):
    if not isinstance(value, numbers.Real):
        raise TypeError(
            f"{owner}: {name} must be a number, but got {type(value).__name__}"
        )


def check_set(owner, **values):
    for name, value in values.items():
        if value is None:
            raise ValueError(f"{owner}: {name} is not set")
        check_number(owner, name, value)


class _Group:
    """Some parameters with settings of their own, and the updater that the engine
    holds for them. Clipping by norm looks at one group at a time."""

    def __init__(self, parameters, settings):
        self.parameters = parameters
        self.settings = settings
        self.updater = None
        self.index = {id(p): i for i, p in enumerate(parameters)}


class Optimizer:
    """Base of all optimizers.

    Args:
        learning_rate: a number, kept as a double, or an LRScheduler.
        parameters: the Tensors to update, or a list of dicts, each with `params` and,
            if it likes, settings of its own: `learning_rate` (a factor on the
            optimizer's), `weight_decay`, `grad_clip` and hyper-parameters of the rule.
            May be left out at first; `step` then says what is missing.
        weight_decay: a number (L2), an L1Decay or an L2Decay. A regularizer in a
            parameter's ParamAttr comes first.
        grad_clip: one of paddle.nn.ClipGradBy*.
        name: kept, for messages.

    The rules also accept multi_precision and use_multi_tensor: eagerly, parameters in
    half precision always have a copy in float32 that is updated, and all parameters of
    a group are always updated in one call.
    """

    # What a parameter group may set beside the settings of every optimizer.
    _hyper_parameters = ()

    def __init__(
        self,
        learning_rate,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
    ):
        if learning_rate is None:
            raise ValueError(f"{type(self).__name__}: learning_rate is not set")
        self._set_learning_rate(learning_rate)
        self._name = name
        _check_clip(grad_clip)
        self._grad_clip = grad_clip
        self._weight_decay = weight_decay
        self.regularization = self._check_decay(weight_decay)
        self._parameter_list = None
        self._param_groups = []
        self._updaters = ()
        self._program_updates = {}  # what it has in programs, by their identity
        self._waiting_state = None
        if parameters is not None:
            self._take_parameters(parameters)

    # ---- what a subclass says -------------------------------------------------------

    def _rule(self, settings):
        """The engine's update rule; `settings` are a group's own."""
        raise NotImplementedError(f"{type(self).__name__} defines no update rule")

    def _decoupled_decay(self, parameter, settings):
        """The coefficient of decay that does not go through the gradient; None for a
        rule without such decay."""
        return None

    def _learning_rate_factor(self, parameter):
        """Multiplies the learning rate of one parameter."""
        attributes = getattr(parameter, "optimize_attr", None) or {}
        return attributes.get("learning_rate", 1.0)

    def _check_decay(self, weight_decay):
        """weight_decay as a regularizer on gradients, or None."""
        return _regularizer(weight_decay)

    _rescale_grad = 1.0

    # In programs, while apply_gradients runs: a variable that says, step by step, whether
    # everything stays as it is.
    _skip_update = None

    # ---- a step ---------------------------------------------------------------------

    def step(self):
        """Updates every parameter that has a gradient."""
        updaters = self._updaters or self._make_updaters()
        rate = self._learning_rate
        if self._scheduled:
            rate = rate()
        for updater in updaters:
            updater.step(rate)

    def clear_grad(self, set_to_zero=False):
        """Releases the gradients of all parameters (`grad` is then None), or, with
        `set_to_zero`, fills them with zeros where they are."""
        if self._builds_programs():
            return
        for updater in self._updaters or self._make_updaters(required=False):
            updater.clear_gradients(set_to_zero)

    clear_gradients = clear_grad

    def minimize(self, loss, startup_program=None, parameters=None, no_grad_set=None):
        """A step from the gradients that `loss.backward()` left. If no parameter has a
        gradient yet, it runs `loss.backward()` itself. If `loss` is a variable of a
        program, the operations of backward and of the updates are appended to it.

        Returns None, or the operations, and the list of (parameter, gradient) pairs
        that were applied.
        """
        if isinstance(loss, _core.Variable):
            pairs = self.backward(loss, startup_program, parameters, no_grad_set)
            return self.apply_gradients(pairs, startup_program), pairs
        if not isinstance(loss, _core.Tensor):
            raise TypeError(
                f"minimize: loss must be a Tensor, but got {type(loss).__name__}"
            )
        params_grads = self.backward(loss, startup_program, parameters, no_grad_set)
        if not params_grads and not loss.stop_gradient:
            loss.backward()
            params_grads = self.backward(loss, startup_program, parameters, no_grad_set)
        self.apply_gradients(params_grads)
        return None, params_grads

    def backward(
        self,
        loss,
        startup_program=None,
        parameters=None,
        no_grad_set=None,
        callbacks=None,
    ):
        """The (parameter, gradient) pairs that `loss.backward()` left; in a program,
        after the operations that compute them have been appended."""
        if isinstance(loss, _core.Variable):
            from ..static.backward import refuse_callbacks
            from . import program_update

            refuse_callbacks("Optimizer.backward", callbacks)
            return program_update.backward(
                self, loss, startup_program, parameters, no_grad_set
            )
        if parameters is None:
            self._require_parameters()
            parameters = self._all_parameters()
        left_out = {id(p) if not isinstance(p, str) else p for p in no_grad_set or ()}
        return [
            (p, p.grad)
            for p in parameters
            if not p.stop_gradient
            and p.grad is not None
            and id(p) not in left_out
            and p.name not in left_out
        ]

    def apply_gradients(self, params_grads, startup_program=None):
        """A step from (parameter, gradient) pairs, which may differ from what the
        parameters hold. Others stay as they are. In a program the operations of the
        step are appended and returned."""
        pairs = list(params_grads)
        if any(isinstance(g, _core.Variable) for _, g in pairs):
            from . import program_update

            return program_update.apply_gradients(self, pairs, startup_program)
        if not self._param_groups:
            self._take_parameters([p for p, _ in pairs])
        updaters = self._updaters or self._make_updaters()
        columns = [[None] * len(group.parameters) for group in self._param_groups]
        for parameter, gradient in pairs:
            where = self._find(parameter)
            if where is None:
                raise ValueError(
                    f"{type(self).__name__}: parameter {parameter.name} does not "
                    "belong to this optimizer"
                )
            columns[where[0]][where[1]] = gradient
        rate = self.get_lr()
        for updater, gradients in zip(updaters, columns):
            updater.step_with(rate, gradients)

    # ---- learning rate --------------------------------------------------------------

    def get_lr(self):
        """The learning rate of the next step."""
        return self._learning_rate() if self._scheduled else self._learning_rate

    def set_lr(self, value):
        """Sets the learning rate. Not where a scheduler does: that would undo it."""
        if self._scheduled:
            raise TypeError(
                f"{type(self).__name__}: the learning rate comes from a "
                f"{type(self._learning_rate).__name__}, so set_lr cannot set it; use "
                "the scheduler, or set_lr_scheduler"
            )
        check_number("set_lr", "value", value)
        self._learning_rate = self._checked_rate(value)
        for update in self._program_updates.values():
            update.set_rate(self._learning_rate)

    def set_lr_scheduler(self, scheduler):
        """Lets a scheduler give the learning rate from now on."""
        if not isinstance(scheduler, LRScheduler):
            raise TypeError(
                "set_lr_scheduler: scheduler must be an LRScheduler, but got "
                f"{type(scheduler).__name__}"
            )
        self._set_learning_rate(scheduler)

    def _checked_rate(self, value):
        value = float(value)
        if not 0 <= value < math.inf:
            raise ValueError(
                f"{type(self).__name__}: the learning rate must be a finite number of "
                f"at least 0, but is {value}"
            )
        return value

    def _set_learning_rate(self, learning_rate):
        self._scheduled = isinstance(learning_rate, LRScheduler)
        if self._scheduled:
            self._learning_rate = learning_rate
        elif isinstance(learning_rate, numbers.Real):
            self._learning_rate = self._checked_rate(learning_rate)
        elif isinstance(learning_rate, _core.Variable):
            self._learning_rate = learning_rate
        else:
            raise TypeError(
                f"{type(self).__name__}: learning_rate must be a number or an "
                f"LRScheduler, but got {type(learning_rate).__name__}"
            )

    # ---- state ----------------------------------------------------------------------

    def state_dict(self):
        """What the rule remembers, by Paddle's names (`linear_0.w_0_moment1_0`), and the
        scheduler's state as `LR_Scheduler`. Parameters that were never updated have
        none. The Tensors are the optimizer's own: copy what must not change."""
        state = {}
        for group in self._param_groups:
            if group.updater is None:
                continue
            for slot, slot_name in enumerate(group.updater.state_names):
                for i, parameter in enumerate(group.parameters):
                    value = group.updater.state(i, slot)
                    if value is not None:
                        value.name = f"{parameter.name}_{slot_name}_0"
                        state[value.name] = value
        for update in self._program_updates.values():
            state.update(update.state_dict())
        if self._waiting_state is not None:
            state.update(self._waiting_state)
        if self._scheduled:
            state["LR_Scheduler"] = self._learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict):
        """Takes over what `state_dict()` gave, as Tensors or arrays. None and an empty
        dict change nothing. ValueError if a shape does not fit."""
        if not state_dict:
            return
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{type(self).__name__}: set_state_dict takes a dict, as state_dict() "
                f"gives it, but got {type(state_dict).__name__}"
            )
        state = dict(state_dict)
        scheduler_state = state.pop("LR_Scheduler", None)
        if scheduler_state is not None and self._scheduled:
            self._learning_rate.set_state_dict(scheduler_state)
        for update in self._program_updates.values():
            state = update.take_state(state)
        if self._program_updates and not state:
            return
        if not self._param_groups or self._builds_programs():
            self._waiting_state = state
            return
        self._make_updaters()
        unknown = self._take_state(state)
        if unknown:
            warnings.warn(
                f"{type(self).__name__}: set_state_dict found no place for "
                f"{len(unknown)} of {len(state)} entries, such as '{unknown[0]}'; this "
                f"optimizer's begin with {self._all_parameters()[0].name}_",
                stacklevel=2,
            )

    set_dict = set_state_dict

    def get_opti_var_name_list(self):
        """The names of state_dict()."""
        return [name for name in self.state_dict() if name != "LR_Scheduler"]

    def _take_state(self, state):
        """Hands the entries to the engine; returns the names that fit nowhere."""
        places = {}
        for group in self._param_groups:
            for slot, slot_name in enumerate(group.updater.state_names):
                for i, parameter in enumerate(group.parameters):
                    places[f"{parameter.name}_{slot_name}"] = (group.updater, i, slot)
        unknown = []
        for name, value in state.items():
            # Paddle numbers the states of several optimizers over one parameter.
            place = places.get(re.sub(r"_\d+$", "", name))
            if place is None:
                unknown.append(name)
            else:
                updater, i, slot = place
                updater.set_state(i, slot, value)
        return [name for name in unknown if name != "master_weights"]

    # ---- parameters -----------------------------------------------------------------

    def _take_parameters(self, parameters):
        wrong = (_core.Tensor, dict, str)
        if isinstance(parameters, wrong) or not hasattr(parameters, "__iter__"):
            raise TypeError(
                f"{type(self).__name__}: parameters must be a list of Tensors, such as "
                f"model.parameters(), but got {type(parameters).__name__}"
            )
        parameters = list(parameters)
        groups = parameters
        if not parameters or not isinstance(parameters[0], dict):
            groups = [{"params": parameters}] if parameters else []
        self._parameter_list = parameters
        taken = set()
        for settings in groups:
            self._add_group(settings, taken)

    def _add_group(self, settings, taken):
        if not isinstance(settings, dict) or "params" not in settings:
            raise TypeError(
                f"{type(self).__name__}: a parameter group is a dict with 'params', but "
                f"got {settings!r}"
            )
        known = {"params", "learning_rate", "weight_decay", "grad_clip"}
        unknown = set(settings) - known - set(self._hyper_parameters)
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: a parameter group cannot set {sorted(unknown)}"
            )
        members = settings["params"]
        members = [members] if isinstance(members, _core.Tensor) else list(members)
        for parameter in members:
            if not isinstance(parameter, _core.Tensor):
                raise TypeError(
                    f"{type(self).__name__}: parameters must be Tensors, but one is of "
                    f"type {type(parameter).__name__}"
                )
            if id(parameter) in taken:
                raise ValueError(
                    f"{type(self).__name__}: parameter {parameter.name} is given twice"
                )
            taken.add(id(parameter))
        _check_clip(settings.get("grad_clip"))
        self._check_decay(settings.get("weight_decay"))
        self._param_groups.append(_Group(members, settings))

    def _all_parameters(self):
        return [p for group in self._param_groups for p in group.parameters]

    def _find(self, parameter):
        for g, group in enumerate(self._param_groups):
            i = group.index.get(id(parameter))
            if i is not None:
                return g, i
        return None

    def _builds_programs(self):
        """Whether the parameters are variables of a program."""
        return any(isinstance(p, _core.Variable) for p in self._all_parameters())

    def _require_parameters(self):
        if not self._param_groups:
            raise ValueError(
                f"{type(self).__name__} has no parameters to update: construct it with "
                "parameters=model.parameters()"
            )

    def _make_updaters(self, required=True):
        """Tells the engine about rule and parameters; done once, at the first use."""
        if self._updaters:
            return self._updaters
        if required:
            self._require_parameters()
        if self._builds_programs():
            raise RuntimeError(
                f"{type(self).__name__}: the parameters belong to a program, which is "
                "changed by minimize() and run by an Executor"
            )
        for group in self._param_groups:
            group.updater = self._make_updater(group)
        self._updaters = tuple(group.updater for group in self._param_groups)
        if self._waiting_state is not None and self._updaters:
            state, self._waiting_state = self._waiting_state, None
            self._take_state(state)
        return self._updaters

    # Tests set it, to run the engine's form for other devices on the CPU.
    _foreach = False

    def _make_updater(self, group):
        settings = group.settings
        clip = settings.get("grad_clip", self._grad_clip)
        updater = _core.optim.Updater(
            self._rule(settings),
            _core.optim.Clip() if clip is None else clip._engine_clip(),
            self._foreach,
        )
        decay = self.regularization
        if "weight_decay" in settings:
            decay = self._check_decay(settings["weight_decay"])
        for parameter in group.parameters:
            own = getattr(parameter, "regularizer", None)
            chosen = decay if own is None else own
            coefficient = 0.0 if chosen is None else chosen._coeff
            updater.add(
                parameter,
                parameter.name,
                settings.get("learning_rate", 1.0)
                * self._learning_rate_factor(parameter),
                l1=coefficient if isinstance(chosen, L1Decay) else 0.0,
                l2=coefficient if isinstance(chosen, L2Decay) else 0.0,
                decoupled=self._decoupled_decay(parameter, settings) or 0.0,
                clipped=getattr(parameter, "need_clip", True),
                rescale=self._rescale_grad,
            )
        return updater

    def __repr__(self):
        return f"{type(self).__name__}(learning_rate={self.get_lr()})"
