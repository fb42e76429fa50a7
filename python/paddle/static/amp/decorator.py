# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose programs compute in mixed precision."""

import warnings

from ... import _core, _ops
from ...optimizer import Optimizer
from ..backward import refuse_callbacks
from ..program import OpRole, program_guard, role_guard
from .fp16_lists import AutoMixedPrecisionLists, check_amp_dtype
from .fp16_utils import SCOPE, amp_level, check_level, use_mixed_precision

__all__ = ["OptimizerWithMixedPrecision", "decorate"]


def _check_counts(**counts):
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(
                f"amp: {name} must be a whole number from 1 on, not {value!r}"
            )


class OptimizerWithMixedPrecision:
    """Around an optimizer: minimize puts casts into the program, and scales the loss, so
    that small gradients do not vanish in float16. Parameters stay float32, and so do
    their gradients and updates.

    A step whose gradients have an infinity or a NaN leaves the parameters and the state
    of the optimizer as they are. The scaling grows after `incr_every_n_steps` good steps
    on end, and shrinks after `decr_every_n_nan_or_inf` bad ones.

    What it does not do itself, the optimizer inside does.
    """

    def __init__(
        self,
        optimizer,
        amp_lists,
        level,
        dtype,
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
        use_amp_guard=None,
        use_master_grad=False,
        use_promote=False,
    ):
        if not callable(getattr(optimizer, "apply_gradients", None)):
            raise TypeError(
                "amp: optimizer must be an optimizer, but is a "
                f"{type(optimizer).__name__}"
            )
        self._dtype, self._level = check_amp_dtype(dtype), check_level(level)
        _check_counts(
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
        )
        self._scaling = {
            "init_loss_scaling": init_loss_scaling,
            "dynamic": bool(use_dynamic_loss_scaling),
            "incr_every_n_steps": incr_every_n_steps,
            "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
            "incr_ratio": incr_ratio,
            "decr_ratio": decr_ratio,
        }
        self._optimizer = optimizer
        self._amp_lists = amp_lists or AutoMixedPrecisionLists(dtype=self._dtype)
        self._guard = bool(use_amp_guard) and self._level == "O2"
        self._use_promote = bool(use_promote)
        self._amp = self._make_amp()
        self._scales = self._amp.scales
        self._train_program = None
        self._loss_scaling = None
        self._scaled_loss = None

    def __getattr__(self, name):
        if name == "_optimizer":  # not there yet
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def _make_amp(self):
        return _core.Amp(
            dtype=self._dtype,
            level=amp_level(self._level),
            custom=self._amp_lists._custom(),
            promote=self._use_promote,
            black_variables=self._amp_lists.black_varnames,
            scope=SCOPE if self._guard else "",
            **self._scaling,
        )

    def get_loss_scaling(self):
        """The variable that holds the scaling; fetch it to see its value."""
        if self._train_program is None:
            raise RuntimeError("amp: get_loss_scaling comes after minimize")
        return self._loss_scaling

    def get_scaled_loss(self):
        """The loss times the scaling; None before backward."""
        return self._scaled_loss

    def backward(
        self,
        loss,
        startup_program=None,
        parameter_list=None,
        no_grad_set=None,
        callbacks=None,
    ):
        """Puts in the casts and appends the operations that compute the gradients of the
        scaled loss; returns pairs of parameter and gradient."""
        refuse_callbacks("static.amp", callbacks)
        if not isinstance(loss, _core.Variable):
            raise TypeError(
                "static.amp: loss must be a variable of a program, but is a "
                f"{type(loss).__name__}; eager training has paddle.amp"
            )
        program = loss.block.program
        self._amp = self._make_amp()  # of the lists as they are now
        with program_guard(program, startup_program):
            loss, self._loss_scaling = _core.scale_loss(loss, self._amp)
        self._train_program = program
        self._scaled_loss = loss
        return self._optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set
        )

    def apply_gradients(self, params_grads, startup_program=None):
        """Appends the operations that check the gradients, update the scaling, and, if
        all are finite, the parameters; returns those that update parameters."""
        pairs = [(p, g) for p, g in params_grads if g is not None]
        if not self._scales or not pairs:
            return self._apply(pairs, startup_program)
        program = pairs[0][0].block.program
        with program_guard(program, startup_program), role_guard(OpRole.Optimize):
            found = _core.unscale_gradients_of(pairs, self._loss_scaling, self._amp)
            plain = _plain_optimizer(self._optimizer)
            if plain is not None:
                plain._skip_update = found
                try:
                    return self._apply(pairs, startup_program)
                finally:
                    plain._skip_update = None
            # Whatever it keeps is kept inside, and stays as it is in a bad step.
            return _core.append_if(
                _ops.logical_not(found), lambda: self._apply(pairs, startup_program)
            )

    def _apply(self, pairs, startup_program):
        return self._optimizer.apply_gradients(pairs, startup_program)

    def apply_optimize(self, loss, startup_program, params_grads):
        """apply_gradients, for the program of `loss`."""
        return self.apply_gradients(params_grads, startup_program)

    def minimize(
        self, loss, startup_program=None, parameter_list=None, no_grad_set=None
    ):
        """backward and apply_gradients. Returns the operations that update, and pairs of
        parameter and gradient."""
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def amp_init(
        self,
        place,
        scope=None,
        test_program=None,
        use_fp16_test=False,
        rewrite_master_weight=False,
    ):
        """After the startup program ran. Parameters are float32 here at any level, so
        that their values stay as they are; a program for evaluation gets the casts of
        the one for training at level O2, and at others with `use_fp16_test`."""
        if self._train_program is None:
            raise RuntimeError("amp: amp_init comes after minimize")
        if test_program is not None and (self._level == "O2" or use_fp16_test):
            use_mixed_precision(
                test_program,
                self._amp_lists,
                self._dtype,
                self._level,
                self._guard,
                self._use_promote,
            )


def _plain_optimizer(optimizer):
    """The optimizer whose updates are operations that can be skipped; None if something
    around it keeps a state of its own."""
    while hasattr(optimizer, "_without_state") and optimizer._without_state:
        optimizer = optimizer.inner_optimizer
    return optimizer if isinstance(optimizer, Optimizer) else None


_BY_LEVEL = {"level", "dtype", "master_weight", "master_grad", "use_amp_guard"}


def decorate(optimizer, amp_lists=None, *args, **kwargs):
    """An optimizer that trains programs in mixed precision.

    Two forms, of which the second is meant when one of its own arguments is given:

        decorate(optimizer, amp_lists=None, init_loss_scaling=2**15,
                 incr_every_n_steps=1000, decr_every_n_nan_or_inf=2, incr_ratio=2.0,
                 decr_ratio=0.8, use_dynamic_loss_scaling=True, use_pure_fp16=False,
                 use_fp16_guard=None, use_bf16=False, use_promote=False)
        decorate(optimizer, amp_lists=None, level='O1', dtype='float16',
                 master_weight=None, master_grad=False, init_loss_scaling=2**16,
                 incr_every_n_steps=2000, decr_every_n_nan_or_inf=1, incr_ratio=2.0,
                 decr_ratio=0.5, use_dynamic_loss_scaling=None, use_amp_guard=False,
                 use_promote=False)

    Args:
        amp_lists: an AutoMixedPrecisionLists.
        use_pure_fp16, level 'O2': all operations compute in the short type, but those of
            the caller's black list; level 'O1' goes by the lists, 'OD' by the white list
            alone, and 'O0' changes nothing.
        use_fp16_guard, use_amp_guard: at level O2, only what was made in
            `with fp16_guard():`; the first is on unless it is said.
        use_bf16, dtype: bfloat16 needs no scaling of the loss, and has none.
        master_weight, master_grad: parameters and their gradients are float32 always;
            False is accepted with a warning for the former.
    """
    by_level = bool(args and isinstance(args[0], str)) or bool(_BY_LEVEL & set(kwargs))
    form = _decorate_by_level if by_level else _decorate
    return form(optimizer, amp_lists, *args, **kwargs)


def _decorate(
    optimizer,
    amp_lists=None,
    init_loss_scaling=2**15,
    incr_every_n_steps=1000,
    decr_every_n_nan_or_inf=2,
    incr_ratio=2.0,
    decr_ratio=0.8,
    use_dynamic_loss_scaling=True,
    use_pure_fp16=False,
    use_fp16_guard=None,
    use_bf16=False,
    use_promote=False,
):
    return OptimizerWithMixedPrecision(
        optimizer,
        amp_lists,
        "O2" if use_pure_fp16 else "O1",
        "bfloat16" if use_bf16 else "float16",
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
        use_pure_fp16 if use_fp16_guard is None else use_fp16_guard,
        use_promote=use_promote,
    )


def _decorate_by_level(
    optimizer,
    amp_lists=None,
    level="O1",
    dtype="float16",
    master_weight=None,
    master_grad=False,
    init_loss_scaling=2**16,
    incr_every_n_steps=2000,
    decr_every_n_nan_or_inf=1,
    incr_ratio=2.0,
    decr_ratio=0.5,
    use_dynamic_loss_scaling=None,
    use_amp_guard=False,
    use_promote=False,
):
    if master_weight is False:
        warnings.warn(
            "amp: parameters are float32 here, also with master_weight=False",
            stacklevel=3,
        )
    return OptimizerWithMixedPrecision(
        optimizer,
        amp_lists,
        level,
        dtype,
        init_loss_scaling,
        True if use_dynamic_loss_scaling is None else use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
        use_amp_guard,
        use_master_grad=master_grad,
        use_promote=use_promote,
    )
