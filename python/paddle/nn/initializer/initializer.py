# SPDX-License-Identifier: Apache-2.0
"""What initializers share, and which one is used when none is named."""

from ... import _core


class Initializer:
    """Fills parameters. A derived class writes `_value`."""

    def __call__(self, param, block=None):
        """Fills `param` in place and returns it. If it is a variable of a program, the
        operation that fills it is appended to `block`, by default to the startup
        program's."""
        if isinstance(param, _core.Variable):
            self._append(param, block)
            return param
        param.set_value(self._value(param.shape, param.dtype))
        return param

    def _append(self, variable, block):
        from ...static.program import (
            appending_to,
            default_startup_program,
            eager_guard,
        )

        program = default_startup_program() if block is None else block.program
        if self._computed:
            with eager_guard():
                value = self._value(variable.shape, variable.dtype)
        with appending_to(program, [variable.name]):
            if self._computed:
                _core.as_variable(value)
            else:
                self._value(variable.shape, variable.dtype)

    # Whether values are worked out here, rather than by an op.
    _computed = False
    # One that draws, draws the same numbers every time if this is not 0 (fluid's
    # `seed`).
    _seed = 0

    def _value(self, shape, dtype):
        """A new tensor with the values for a parameter of this shape and type."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to fill")


_global_weight = None
_global_bias = None


def set_global_initializer(weight_init, bias_init=None):
    """Fills with these from now on wherever a ParamAttr names no initializer.

    None, None goes back to the layers' own choice.
    """
    global _global_weight, _global_bias
    for value in (weight_init, bias_init):
        if value is not None and not isinstance(value, Initializer):
            raise TypeError(
                "set_global_initializer takes initializers or None, but got "
                f"{type(value).__name__}"
            )
    _global_weight, _global_bias = weight_init, bias_init


def choose(is_bias, default=None):
    """The initializer of a parameter whose ParamAttr names none."""
    from .fixed import Constant
    from .random import XavierUniform

    if is_bias:
        return _global_bias or default or Constant(0.0)
    return _global_weight or default or XavierUniform()
