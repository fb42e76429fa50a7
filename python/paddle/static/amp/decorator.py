# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose programs compute in mixed precision."""

import warnings

from ... import _core, _ops
from ..._core import DType
from ...optimizer import Optimizer
from ...optimizer.program_update import persistable
from ...utils import unique_name
from ..backward import refuse_callbacks
from ..control_flow import append_conditional, new_body
from ..program import OpRole, program_guard, role_guard
from .fp16_lists import AutoMixedPrecisionLists, check_amp_dtype
from .fp16_utils import check_level, use_mixed_precision

__all__ = ["OptimizerWithMixedPrecision", "decorate"]


def _check_scaling(settings):
    for name in ("incr_every_n_steps", "decr_every_n_nan_or_inf"):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"amp: {name} must be a whole number from 1 on, not {value!r}"
            )
    if not settings["init_loss_scaling"] > 0:
        raise ValueError(
            "amp: init_loss_scaling must be positive, not "
            f"{settings['init_loss_scaling']!r}"
        )
    if not settings["incr_ratio"] > 1:
        raise ValueError(
            f"amp: incr_ratio must be above 1, not {settings['incr_ratio']!r}"
        )
    if not 0 < settings["decr_ratio"] < 1:
        raise ValueError(
            f"amp: decr_ratio must lie between 0 and 1, not {settings['decr_ratio']!r}"
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
        self._settings = {
            "init_loss_scaling": init_loss_scaling,
            "incr_every_n_steps": incr_every_n_steps,
            "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
            "incr_ratio": incr_ratio,
            "decr_ratio": decr_ratio,
        }
        _check_scaling(self._settings)
        self._optimizer = optimizer
        self._amp_lists = amp_lists or AutoMixedPrecisionLists(dtype=self._dtype)
        self._guard = bool(use_amp_guard) and self._level == "O2"
        self._use_promote = use_promote
        # bfloat16 has the range of float32, and no level no short type.
        needed = self._dtype == DType.float16 and self._level != "O0"
        self._dynamic = bool(use_dynamic_loss_scaling) and needed
        self._scales = needed and (self._dynamic or init_loss_scaling != 1.0)
        self._train_program = None
        self._loss_scaling = None
        self._scaled_loss = None

    def __getattr__(self, name):
        if name == "_optimizer":  # not there yet
            raise AttributeError(name)
        return getattr(self._optimizer, name)

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
        use_mixed_precision(
            program,
            self._amp_lists,
            self._dtype,
            self._level,
            self._guard,
            self._use_promote,
        )
        self._train_program = program
        with program_guard(program, startup_program):
            initial = self._settings["init_loss_scaling"] if self._scales else 1.0
            name = unique_name.generate("loss_scaling")
            self._loss_scaling = persistable(name, [1], float(initial))
            if loss.dtype in (DType.float16, DType.bfloat16):
                loss = _ops.cast(loss, loss.dtype, DType.float32)
            if self._scales:
                loss = _ops.elementwise_mul(loss, self._loss_scaling)
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
            gradients = [gradient for _, gradient in pairs]
            found = self._check(gradients)
            if self._dynamic:
                self._update_scaling(gradients, found)
            plain = _plain_optimizer(self._optimizer)
            if plain is not None:
                plain._skip_update = found
                try:
                    return self._apply(pairs, startup_program)
                finally:
                    plain._skip_update = None
            # Whatever it keeps is kept inside, and stays as it is in a bad step.
            good = _ops.logical_not(found)
            with new_body() as inside:
                made = self._apply(pairs, startup_program)
            append_conditional(good, inside)
            return made

    def _apply(self, pairs, startup_program):
        return self._optimizer.apply_gradients(pairs, startup_program)

    def _check(self, gradients):
        block = self._train_program.current_block()
        name = unique_name.generate("found_infinite")
        found = block.create_var(name=name, shape=[1], dtype="bool")
        found.stop_gradient = True
        block.append_op(
            "check_finite_and_unscale",
            {"X": gradients, "Scale": self._loss_scaling},
            {"Out": gradients, "FoundInfinite": found},
        )
        return found

    def _update_scaling(self, gradients, found):
        counts = {}
        for kind in ("good", "bad"):
            name = unique_name.generate(f"num_{kind}_steps")
            counts[kind] = persistable(name, [1], 0, DType.int32)
        attrs = dict(self._settings)
        del attrs["init_loss_scaling"]
        self._train_program.current_block().append_op(
            "update_loss_scaling",
            {
                "X": gradients,
                "FoundInfinite": found,
                "PrevLossScaling": self._loss_scaling,
                "InGoodSteps": counts["good"],
                "InBadSteps": counts["bad"],
            },
            {
                "Out": gradients,
                "LossScaling": self._loss_scaling,
                "OutGoodSteps": counts["good"],
                "OutBadSteps": counts["bad"],
            },
            attrs,
        )

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
