# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping, given to an optimizer as `grad_clip`.

The optimizer clips while it updates, in the engine, and leaves the gradients as they
are. A clip can also be called on its own, with a list of (parameter, gradient) pairs;
it returns such a list with clipped gradients. Parameters with `need_clip=False` are
left out.
"""

from .. import _core, _names


def _takes_part(pair):
    parameter, gradient = pair
    return gradient is not None and getattr(parameter, "need_clip", True)


def _norm(owner, clip_norm):
    if isinstance(clip_norm, str) or not hasattr(clip_norm, "__float__"):
        raise TypeError(
            f"{owner}: clip_norm must be a number, but got {type(clip_norm).__name__}"
        )
    if not float(clip_norm) >= 0:
        raise ValueError(f"{owner}: clip_norm must not be negative, but is {clip_norm}")
    return float(clip_norm)


class ClipGradBase:
    """A way of clipping. `_engine_clip` says it to the engine."""

    def _engine_clip(self):
        raise NotImplementedError(
            f"{type(self).__name__} cannot be used by an optimizer: derive it from "
            "one of ClipGradByValue, ClipGradByNorm and ClipGradByGlobalNorm"
        )

    def __call__(self, params_grads):
        pairs = list(params_grads)
        chosen = [i for i, pair in enumerate(pairs) if _takes_part(pair)]
        gradients = [pairs[i][1] for i in chosen]
        if any(isinstance(gradient, _core.Variable) for gradient in gradients):
            clipped = _core.clip_in_program(self._engine_clip(), gradients)
        else:
            clipped = _core.optim.clip_gradients(self._engine_clip(), gradients)
        for i, gradient in zip(chosen, clipped):
            pairs[i] = (pairs[i][0], gradient)
        return pairs


class ClipGradByValue(ClipGradBase):
    """Cuts every element to [min, max]; min is -max where it is not given."""

    def __init__(self, max, min=None):
        if min is None:
            if max <= 0.0:
                raise ValueError(
                    f"ClipGradByValue: max must be above 0 if min is None, got {max}"
                )
            min = -max
        self.max = float(max)
        self.min = float(min)
        if self.min > self.max:
            raise ValueError(
                f"ClipGradByValue: min {self.min} is larger than max {self.max}"
            )

    def _engine_clip(self):
        return _core.optim.Clip.by_value(self.min, self.max)

    def __str__(self):
        return f"Clip Gradient By Value, min = {self.min:f}, max={self.max:f}"


class ClipGradByNorm(ClipGradBase):
    """Scales each gradient whose norm is above `clip_norm` down to it."""

    def __init__(self, clip_norm):
        self.clip_norm = _norm("ClipGradByNorm", clip_norm)

    def _engine_clip(self):
        return _core.optim.Clip.by_norm(self.clip_norm)

    def __str__(self):
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"


class ClipGradByGlobalNorm(ClipGradBase):
    """Scales all gradients by one factor so that the norm over all of them together
    is at most `clip_norm`."""

    def __init__(self, clip_norm, group_name="default_group", auto_skip_clip=False):
        self.clip_norm = _norm("ClipGradByGlobalNorm", clip_norm)
        self.group_name = group_name
        self.auto_skip_clip = auto_skip_clip

    def _engine_clip(self):
        return _core.optim.Clip.by_global_norm(self.clip_norm)

    def __str__(self):
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"


GradientClipBase = ClipGradBase


__all__ = _names.own(globals())
