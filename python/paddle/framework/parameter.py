# SPDX-License-Identifier: Apache-2.0
"""Parameters: tensors that belong to a model and are trained."""

from .._core import EagerTensor, Variable, building
from ..utils import unique_name
from . import dtype as dtypes
from .param_attr import ParamAttr, WeightNormParamAttr


class Parameter(EagerTensor):
    """A Tensor that a Layer owns and an optimizer updates.

    It shares the memory of `value` and never leaves it: training, loading and
    filling again happen in place.
    """

    def __init__(
        self,
        value,
        name=None,
        trainable=True,
        optimize_attr=None,
        regularizer=None,
        do_model_average=None,
        need_clip=True,
        is_distributed=False,
    ):
        super().__init__(value)
        self.name = unique_name.generate("param") if name is None else name
        self.persistable = True
        self.stop_gradient = not trainable
        self.optimize_attr = optimize_attr or {"learning_rate": 1.0}
        self.regularizer = regularizer
        self.do_model_average = do_model_average
        self.need_clip = need_clip
        self.is_distributed = is_distributed

    @property
    def trainable(self):
        return not self.stop_gradient

    @trainable.setter
    def trainable(self, trainable):
        if not isinstance(trainable, bool):
            raise ValueError(
                f"trainable must be True or False, but got {type(trainable).__name__}"
            )
        self.stop_gradient = not trainable

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__

    def __deepcopy__(self, memo):
        copied = Parameter(
            self.detach().clone(),
            self.name + unique_name.generate("_deepcopy"),
            self.trainable,
            dict(self.optimize_attr),
            self.regularizer,
            self.do_model_average,
            self.need_clip,
            self.is_distributed,
        )
        memo[id(self)] = copied
        return copied


def new_parameter(shape, attr, dtype, is_bias, default_initializer, owner):
    """The parameter that `attr` asks for, filled; None when attr is False.

    `owner` begins the name, as in linear_0.w_0, when `attr` has none. Of the
    initializers the first wins: attr's, the global one, the default, Xavier for
    weights and zero for biases.
    """
    from ..nn import initializer as initializers

    attr = ParamAttr._to_attr(attr)
    if attr is False:
        return None
    fill = attr.initializer or initializers.choose(is_bias, default_initializer)
    name = attr.name or unique_name.generate(f"{owner}.{'b' if is_bias else 'w'}")
    for n in shape:
        if not hasattr(n, "__index__"):
            raise TypeError(
                f"parameter {name}: shape {list(shape)} must hold integers, but has a "
                f"{type(n).__name__}"
            )
    shape = [int(n) for n in shape]
    if any(n < 0 for n in shape):
        raise ValueError(f"parameter {name}: shape {shape} has a negative dimension")
    kind = dtypes.convert(dtype)
    if isinstance(attr, WeightNormParamAttr):
        return _weight_norm(name, shape, kind, attr, fill)
    if building.on:
        return _declare(name, shape, kind, attr, fill)
    return Parameter(
        fill._value(shape, kind),
        name,
        attr.trainable,
        {"learning_rate": attr.learning_rate},
        attr.regularizer,
        attr.do_model_average,
        attr.need_clip,
    )


def _weight_norm(name, shape, kind, attr, fill):
    """w = g * v / |v| of the two parameters v and g of a program."""
    from ..tensor.manipulation import reshape

    if not building.on:
        raise NotImplementedError(
            "WeightNormParamAttr is for programs; use paddle.nn.utils.weight_norm on the "
            "layer"
        )
    if attr.dim is not None and not 0 <= attr.dim < len(shape):
        raise ValueError(
            f"WeightNormParamAttr: dim {attr.dim} is no dimension of {shape}"
        )
    direction = _declare(f"{name}.weight_norm_v", shape, kind, attr, fill)
    count = 1 if attr.dim is None else shape[attr.dim]
    start = _Lengths(direction, attr.dim)
    length = _declare(f"{name}.weight_norm_g", [count], kind, attr, start)
    sizes = [1] * len(shape)
    if attr.dim is not None:
        sizes[attr.dim] = count
    scale = reshape(length, sizes) / reshape(_lengths(direction, attr.dim), sizes)
    return direction * scale


def _lengths(v, dim):
    """The lengths of v along all dimensions but `dim`, as a vector."""
    from .. import _ops

    axes = [i for i in range(len(v.shape)) if i != dim]
    squares = _ops.reduce_sum(_ops.square(v), axes)
    return _ops.sqrt(_ops.reshape2(squares, None, [-1]))


class _Lengths:
    """An initializer: the lengths of another parameter."""

    def __init__(self, parameter, dim):
        self._parameter = parameter
        self._dim = dim

    def __call__(self, param, block=None):
        from ..static.program import appending_to

        with appending_to(block.program):
            lengths = _lengths(self._parameter, self._dim)
        block.append_op("assign", {"X": lengths}, {"Out": param})


def _declare(name, shape, kind, attr, fill):
    """A parameter of the main program, which the startup program fills."""
    from ..static.program import default_main_program, default_startup_program

    program = default_main_program()
    block = program.global_block()
    if block.has_var(name):
        found = block.var(name)
        if found.shape != shape or found.dtype != kind:
            raise ValueError(
                f"parameter {name}: the program has it with shape {found.shape} and "
                f"type {found.dtype.name}, so it cannot have shape {shape} and type "
                f"{kind.name}"
            )
        return found
    flags = {
        "persistable": True,
        "is_parameter": True,
        "trainable": attr.trainable,
        "stop_gradient": not attr.trainable,
    }
    parameter = block._add_variable(name, shape, kind, flags)
    program._parameter_info[name] = {
        "optimize_attr": {"learning_rate": attr.learning_rate},
        "regularizer": attr.regularizer,
        "do_model_average": attr.do_model_average,
        "need_clip": attr.need_clip,
        "initializer": fill,
    }
    startup = default_startup_program().global_block()
    if not startup.has_var(name):
        startup._add_variable(name, shape, kind, flags)
        fill(parameter, startup)
    return parameter


def buffer_of(tensor, name):
    """What a layer keeps for a buffer: the tensor, or while a program is built a
    persistable variable that the startup program gives its values."""
    from ..nn.initializer import Assign
    from ..static.program import default_main_program, default_startup_program
    from ..static.variable import known_value

    if not building.on or tensor is None:
        return tensor
    tensor = known_value(tensor)
    if isinstance(tensor, Variable):
        return tensor
    name = unique_name.generate(name)
    flags = {"persistable": True, "stop_gradient": True}
    shape = tensor.shape or [1]
    block = default_main_program().global_block()
    variable = block._add_variable(name, shape, tensor.dtype, flags)
    startup = default_startup_program().global_block()
    startup._add_variable(name, shape, tensor.dtype, flags)
    Assign(tensor)(variable, startup)
    return variable


def create_parameter(
    shape, dtype, name=None, attr=None, is_bias=False, default_initializer=None
):
    """A parameter outside of any layer."""
    attr = ParamAttr._to_attr(attr)
    if name is not None and attr is not False and attr.name is None:
        attr.name = name
    owner = unique_name.generate("create_parameter")
    return new_parameter(shape, attr, dtype, is_bias, default_initializer, owner)
