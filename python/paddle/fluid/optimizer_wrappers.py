# SPDX-License-Identifier: Apache-2.0
"""Optimizers of programs that do something around another one."""

import paddle

from .. import _core, _ops
from .._core import Variable
from ..optimizer import SGD
from ..optimizer.program_update import persistable
from ..regularizer import L1Decay, L2Decay, WeightDecayRegularizer
from ..static.backward import recompute
from ..static.program import OpRole, program_guard, role_guard
from ..utils import unique_name

__all__ = ["DecayedAdagradOptimizer", "GradientMergeOptimizer", "RecomputeOptimizer"]


class _Wrapper:
    """What it does not do itself, the optimizer inside does."""

    # Whether what apply_gradients appends keeps nothing from step to step beside what
    # the optimizer inside keeps.
    _without_state = False

    def __init__(self, optimizer):
        self.inner_optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self.__dict__["inner_optimizer"], name)

    def backward(
        self,
        loss,
        startup_program=None,
        parameter_list=None,
        no_grad_set=None,
        callbacks=None,
    ):
        return self.inner_optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads, startup_program=None):
        return self.inner_optimizer.apply_gradients(params_grads, startup_program)

    def apply_optimize(self, loss, startup_program, params_grads):
        return self.apply_gradients(params_grads, startup_program)

    def minimize(
        self, loss, startup_program=None, parameter_list=None, no_grad_set=None
    ):
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_gradients(pairs, startup_program), pairs


class RecomputeOptimizer(_Wrapper):
    """Takes checkpoints: what lies between them is computed again in backward instead of
    kept. Results are the same."""

    _without_state = True

    def __init__(self, optimizer):
        super().__init__(optimizer)
        self._checkpoints = None

    def _set_checkpoints(self, checkpoints):
        if not isinstance(checkpoints, list):
            raise TypeError(
                "RecomputeOptimizer: checkpoints must be a list of Variables or names, "
                f"but got {type(checkpoints).__name__}"
            )
        self._checkpoints = checkpoints

    def backward(
        self,
        loss,
        startup_program=None,
        parameter_list=None,
        no_grad_set=None,
        callbacks=None,
    ):
        pairs = super().backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        if isinstance(loss, Variable):
            recompute(loss.block.program, self._checkpoints)
        return pairs


class GradientMergeOptimizer(_Wrapper):
    """Adds up gradients and updates parameters in every `k_steps`th run only, by the
    mean of the gradients, or with avg=False by their sum."""

    def __init__(self, inner_optimizer, k_steps=1, avg=True):
        if not isinstance(k_steps, int) or k_steps < 1:
            raise ValueError(
                f"GradientMergeOptimizer: k_steps must be 1 or more, not {k_steps!r}"
            )
        super().__init__(inner_optimizer)
        self.k_steps = k_steps
        self.avg = avg

    def _set_k_steps(self, k_steps):
        self.k_steps = k_steps

    def _set_avg(self, avg):
        self.avg = avg

    def apply_gradients(self, params_grads, startup_program=None):
        pairs = [(p, g) for p, g in params_grads if g is not None]
        if self.k_steps == 1 or not pairs:
            return self.inner_optimizer.apply_gradients(pairs, startup_program)
        with program_guard(pairs[0][0].block.program, startup_program):
            return _core.merge_gradients(
                pairs,
                self.k_steps,
                bool(self.avg),
                lambda merged: self.inner_optimizer.apply_gradients(
                    merged, startup_program
                ),
            )


def _decayed(parameter, gradient, decay):
    """The gradient with the regularizer's share."""
    if decay is None or decay.coeff == 0.0:
        return gradient
    source = _ops.sign(parameter) if isinstance(decay, L1Decay) else parameter
    return _ops.sum([gradient, _ops.scale(source, decay.coeff)])


class DecayedAdagradOptimizer(_Wrapper):
    """The step of SGD by the gradient over the root of a mean of its squares, in which
    each step counts `decay` times what the next one does:

        m = decay m + (1 - decay) g^2;  p -= learning_rate g / (sqrt(m) + epsilon)
    """

    def __init__(
        self,
        learning_rate,
        decay=0.95,
        epsilon=1.0e-6,
        parameter_list=None,
        regularization=None,
        grad_clip=None,
        name=None,
    ):
        super().__init__(SGD(learning_rate, parameter_list, name=name))
        if regularization is not None and not isinstance(
            regularization, WeightDecayRegularizer
        ):
            regularization = L2Decay(float(regularization))
        self._decay = float(decay)
        self._epsilon = float(epsilon)
        self._regularization = regularization
        self._clip = grad_clip
        self._moments = {}  # in eager mode, by name

    def minimize(
        self, loss, startup_program=None, parameter_list=None, no_grad_set=None
    ):
        arguments = (startup_program, parameter_list, no_grad_set)
        pairs = self.backward(loss, *arguments)
        if not pairs and not isinstance(loss, Variable):
            loss.backward()
            pairs = self.backward(loss, *arguments)
        return self.apply_gradients(pairs, startup_program), pairs

    def apply_gradients(self, params_grads, startup_program=None):
        pairs = [(p, g) for p, g in params_grads if g is not None]
        if not pairs:
            return []
        if isinstance(pairs[0][1], Variable):
            program = pairs[0][0].block.program
            with program_guard(program, startup_program), role_guard(OpRole.Optimize):
                pairs = self._scaled(pairs, self._program_moment)
        else:
            with paddle.no_grad():
                pairs = self._scaled(pairs, self._eager_moment)
        return self.inner_optimizer.apply_gradients(pairs, startup_program)

    def _scaled(self, pairs, moment_of):
        if self._clip is not None:
            pairs = self._clip(pairs)
        scaled = []
        for parameter, gradient in pairs:
            decay = parameter.regularizer or self._regularization
            gradient = _decayed(parameter, gradient, decay)
            square = _ops.scale(_ops.square(gradient), 1.0 - self._decay)
            moment = moment_of(parameter, square)
            root = _ops.scale(_ops.sqrt(moment), 1.0, self._epsilon)
            scaled.append((parameter, _ops.elementwise_div(gradient, root)))
        return scaled

    def _program_moment(self, parameter, square):
        name = unique_name.generate(f"{parameter.name}_moment")
        kept = persistable(name, parameter.shape, 0.0, parameter.dtype)
        moved = _ops.elementwise_add(_ops.scale(kept, self._decay), square)
        block = parameter.block.program.current_block()
        block.append_op("assign", {"X": moved}, {"Out": kept})
        return moved

    def _eager_moment(self, parameter, square):
        before = self._moments.get(parameter.name)
        if before is not None:
            square = _ops.elementwise_add(_ops.scale(before, self._decay), square)
        self._moments[parameter.name] = square
        return square
