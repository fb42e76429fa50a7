# SPDX-License-Identifier: Apache-2.0
"""The scaling of a loss, so that small gradients do not vanish in float16."""

import numbers

from .. import _core, _ops
from ..tensor.creation import computed_tensor

__all__ = ["AmpScaler", "GradScaler"]


def _check(name, value, fits, wanted):
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real)
        or not fits(value)
    ):
        raise ValueError(f"GradScaler: {name} must be {wanted}, but is {value!r}")
    return value


class GradScaler:
    """Multiplies a loss, divides gradients by the same number, and leaves out a step
    whose gradients have an infinity or a NaN.

    Args:
        enable: False makes all of it do nothing.
        init_loss_scaling: the number to begin with.
        incr_ratio, incr_every_n_steps: it grows by this factor after so many good steps
            on end.
        decr_ratio, decr_every_n_nan_or_inf: it shrinks by this factor, but not below 1,
            after so many bad steps on end.
        use_dynamic_loss_scaling: False keeps it as it is.
    """

    def __init__(
        self,
        enable=True,
        init_loss_scaling=2.0**16,
        incr_ratio=2.0,
        decr_ratio=0.5,
        incr_every_n_steps=2000,
        decr_every_n_nan_or_inf=1,
        use_dynamic_loss_scaling=True,
    ):
        self._enable = bool(enable)
        self._dynamic = self._enable and bool(use_dynamic_loss_scaling)
        self.set_init_loss_scaling(init_loss_scaling)
        self.set_incr_ratio(incr_ratio)
        self.set_decr_ratio(decr_ratio)
        self.set_incr_every_n_steps(incr_every_n_steps)
        self.set_decr_every_n_nan_or_inf(decr_every_n_nan_or_inf)
        self._good_steps, self._bad_steps = 0, 0
        self._found_inf = False
        # Optimizers, since the last update.
        self._unscaled, self._stepped = set(), set()
        self._reduce_found = None  # of all workers: fleet.distributed_scaler

    def scale(self, var):
        """The loss times the scaling, as float32."""
        if not isinstance(var, _core.Tensor):
            raise TypeError(
                f"GradScaler.scale: the loss must be a Tensor, but is a {type(var).__name__}"
            )
        if not self._enable:
            return var
        return _ops.scale(var.astype("float32"), self._scale)

    def unscale_(self, optimizer):
        """Divides the gradients of the optimizer's parameters by the scaling, so that
        they may be looked at or clipped before `step`."""
        if not self._enable:
            return
        optimizer = _plain(optimizer)
        if id(optimizer) in self._unscaled:
            raise RuntimeError(
                "GradScaler: unscale_ was called for this optimizer since the last update"
            )
        if id(optimizer) in self._stepped:
            raise RuntimeError("GradScaler: unscale_ comes before step")
        parameters = optimizer._all_parameters()
        found = not _core.optim.unscale_gradients(parameters, self._scale)
        if self._reduce_found is not None:
            found = self._reduce_found(found)
        self._found_inf = self._found_inf or found
        self._unscaled.add(id(optimizer))

    def step(self, optimizer):
        """A step of the optimizer, unless its gradients have an infinity or a NaN."""
        if not self._enable:
            optimizer.step()
            return
        plain = _plain(optimizer)
        if id(plain) in self._stepped:
            raise RuntimeError("GradScaler: step was called since the last update")
        if id(plain) not in self._unscaled:
            self.unscale_(plain)
        if not self._found_inf:
            optimizer.step()
        self._stepped.add(id(plain))

    def update(self):
        """The scaling for the next step; once in a step, behind `step`."""
        if not self._enable:
            return
        if self._dynamic:
            self._update()
        self._found_inf = False
        self._unscaled.clear()
        self._stepped.clear()

    def _update(self):
        if self._found_inf:
            self._good_steps, self._bad_steps = 0, self._bad_steps + 1
            if self._bad_steps >= self._decr_every_n_nan_or_inf:
                self._scale = max(1.0, self._scale * self._decr_ratio)
                self._bad_steps = 0
            return
        self._good_steps, self._bad_steps = self._good_steps + 1, 0
        if self._good_steps >= self._incr_every_n_steps:
            larger = self._scale * self._incr_ratio
            if larger < 3.4e38:  # finite as a float
                self._scale = larger
            self._good_steps = 0

    def minimize(self, optimizer, *args, **kwargs):
        """`step` and `update`, from the gradients that `scaled.backward()` left; without
        gradients it runs that itself. Returns what optimizer.minimize does."""
        if not self._enable:
            return optimizer.minimize(*args, **kwargs)
        plain = _plain(optimizer)
        loss = args[0] if args else kwargs["loss"]
        if all(p.grad is None for p in plain._all_parameters()):
            loss.backward()
        if id(plain) not in self._unscaled:
            self.unscale_(plain)
        result = None, []
        if not self._found_inf:
            result = optimizer.minimize(*args, **kwargs)
        self._stepped.add(id(plain))
        self.update()
        return result

    # ---- settings

    def is_enable(self):
        return self._enable

    def is_use_dynamic_loss_scaling(self):
        return self._dynamic

    def get_init_loss_scaling(self):
        return self._init_loss_scaling

    def set_init_loss_scaling(self, new_init_loss_scaling):
        """Also makes it the present one."""
        value = _check(
            "init_loss_scaling", new_init_loss_scaling, lambda v: v > 0, "positive"
        )
        self._init_loss_scaling = self._scale = float(value)

    def get_incr_ratio(self):
        return self._incr_ratio

    def set_incr_ratio(self, new_incr_ratio):
        self._incr_ratio = _check(
            "incr_ratio", new_incr_ratio, lambda v: v > 1, "above 1"
        )

    def get_decr_ratio(self):
        return self._decr_ratio

    def set_decr_ratio(self, new_decr_ratio):
        self._decr_ratio = _check(
            "decr_ratio", new_decr_ratio, lambda v: 0 < v < 1, "between 0 and 1"
        )

    def get_incr_every_n_steps(self):
        return self._incr_every_n_steps

    def set_incr_every_n_steps(self, new_incr_every_n_steps):
        self._incr_every_n_steps = _check_count(
            "incr_every_n_steps", new_incr_every_n_steps
        )

    def get_decr_every_n_nan_or_inf(self):
        return self._decr_every_n_nan_or_inf

    def set_decr_every_n_nan_or_inf(self, new_decr_every_n_nan_or_inf):
        self._decr_every_n_nan_or_inf = _check_count(
            "decr_every_n_nan_or_inf", new_decr_every_n_nan_or_inf
        )

    # ---- files

    def state_dict(self):
        """All that a training needs to go on; {} when it is not enabled."""
        if not self._enable:
            return {}
        return {
            "scale": computed_tensor([self._scale], "float32").numpy(),
            "incr_ratio": self._incr_ratio,
            "decr_ratio": self._decr_ratio,
            "incr_every_n_steps": self._incr_every_n_steps,
            "decr_every_n_nan_or_inf": self._decr_every_n_nan_or_inf,
            "incr_count": self._good_steps,
            "decr_count": self._bad_steps,
            "use_dynamic_loss_scaling": self._dynamic,
        }

    def load_state_dict(self, state_dict):
        """Takes over what state_dict gave."""
        if not self._enable:
            return
        if not state_dict:
            raise RuntimeError(
                "GradScaler.load_state_dict: the state is empty, perhaps that of a scaler "
                "that was not enabled"
            )
        missing = sorted(set(self.state_dict()) - set(state_dict))
        if missing:
            raise ValueError(
                f"GradScaler.load_state_dict: {', '.join(missing)} is missing"
            )
        init = self._init_loss_scaling
        self.set_init_loss_scaling(float(state_dict["scale"][0]))
        self._init_loss_scaling = init
        self.set_incr_ratio(state_dict["incr_ratio"])
        self.set_decr_ratio(state_dict["decr_ratio"])
        self.set_incr_every_n_steps(state_dict["incr_every_n_steps"])
        self.set_decr_every_n_nan_or_inf(state_dict["decr_every_n_nan_or_inf"])
        self._good_steps = int(state_dict["incr_count"])
        self._bad_steps = int(state_dict["decr_count"])
        self._dynamic = bool(state_dict["use_dynamic_loss_scaling"])

    set_state_dict = load_state_dict


AmpScaler = GradScaler


def _check_count(name, value):
    fits = isinstance(value, numbers.Integral) and value >= 1
    return _check(name, value, lambda _: fits, "a whole number from 1 on")


def _plain(optimizer):
    """The optimizer itself, where a fleet stands for it."""
    return getattr(optimizer, "user_defined_optimizer", optimizer)
