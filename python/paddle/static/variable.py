# SPDX-License-Identifier: Apache-2.0
"""What a Variable does otherwise than a Tensor: it has no value, and what changes it in
place appends an operation that writes it."""

from .. import _core, _ops
from .._core import StaticParameter, Variable, building
from .indexing import get_item, set_item

__all__ = []


def _refuse(what):
    def member(self, *args, **kwargs):
        raise TypeError(
            f"{what}: the variable {self.name} of a program has no value before an "
            "Executor runs it; name it in fetch_list to get its value"
        )

    return member


def _detach(self):
    """The same values, where no gradient flows through."""
    out = _ops.assign(self)
    out.stop_gradient = True
    return out


def _to_string(self, throw_on_error=True, with_details=False):
    """As it stands in a printed program."""
    return self._text()


def _hash(self):
    return id(self)


def _len(self):
    if self.ndim == 0 or self.shape[0] < 0:
        raise TypeError(
            f"the length of the variable {self.name} is not known before the program runs"
        )
    return self.shape[0]


def _iter(self):
    return (self[i] for i in range(len(self)))


def _assign_in_place(self, value):
    """Appends an operation that writes `value`, a Variable or Tensor, to it."""
    if value.shape != self.shape and not self.persistable:
        self._set_type(value.shape, value.dtype)
    source = _core.as_variable(value)
    source.block.program.current_block().append_op(
        "assign", {"X": source}, {"Out": self}
    )


def known_value(value):
    """The Tensor that to_tensor() made a Variable of, if nothing else writes to this;
    anything else is given back as it is."""
    tensor = getattr(value, "_constant", None) if isinstance(value, Variable) else None
    if tensor is None:
        return value
    writers = [op for op in value.block.ops if value.name in op.output_arg_names]
    return tensor if len(writers) == 1 else value


def _set_value(self, value, scope=None):
    """Sets the value that the variable has in `scope`, the global one by default."""
    from .executor import global_scope

    value = known_value(value)
    if isinstance(value, Variable):
        raise TypeError(
            f"set_value: {value.name} is a variable of a program and has no value that "
            f"{self.name} could take. To begin training with values that are drawn or "
            "computed, give the parameter an initializer (weight_attr=paddle.ParamAttr("
            "initializer=...)), or call paddle.assign under program_guard of the "
            "startup program; to change it in every run, call paddle.assign"
        )
    scope = global_scope() if scope is None else scope
    found = scope.find_var(self.name)
    if found is None:
        raise ValueError(
            f"set_value: {self.name} has no value yet: run the startup program first"
        )
    found.get_tensor().set(value)


def _get_value(self, scope=None):
    """The value in `scope`, the global one by default."""
    from .executor import global_scope

    scope = global_scope() if scope is None else scope
    found = scope.find_var(self.name)
    if found is None:
        raise ValueError(f"get_value: {self.name} has no value in the scope")
    return found.get_tensor()


def _astype(self, dtype):
    from ..tensor.manipulation import cast

    return cast(self, dtype)


def _op(self):
    """The operation that wrote it last, or None."""
    for op in reversed(self.block.ops):
        if self.name in op.output_arg_names:
            return op
    return None


_INFO = {
    "optimize_attr": {"learning_rate": 1.0},
    "regularizer": None,
    "do_model_average": None,
    "need_clip": True,
    "is_distributed": False,
    "initializer": None,
}


def _info(name):
    def read(self):
        info = self._program._parameter_info.get(self.name, {})
        return info.get(name, _INFO[name])

    def write(self, value):
        self._program._parameter_info.setdefault(self.name, {})[name] = value

    return property(read, write)


def _deepcopy(self, memo):
    raise TypeError(f"the variable {self.name} cannot be copied: a program has it once")


def _copy_parameter(self, memo):
    """A parameter of its own, which starts from the same values."""
    from ..framework.param_attr import ParamAttr
    from ..framework.parameter import new_parameter
    from ..utils import unique_name

    attr = ParamAttr(
        self.name + unique_name.generate("_deepcopy"),
        _SameAs(self),
        self.optimize_attr["learning_rate"],
        self.regularizer,
        self.trainable,
        need_clip=self.need_clip,
    )
    twin = new_parameter(self.shape, attr, self.dtype, False, None, "")
    memo[id(self)] = twin
    return twin


class _SameAs:
    """An initializer: the values of another parameter."""

    def __init__(self, parameter):
        self._source = parameter.name

    def __call__(self, param, block=None):
        block.append_op("assign", {"X": self._source}, {"Out": param})


def _attach():
    for name in (
        "numpy",
        "item",
        "tolist",
        "_item",
        "_numpy_view",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__complex__",
        "__index__",
        "__dlpack__",
        "__reduce_ex__",
        "backward",
        "gradient",
        "register_hook",
        "retain_grads",
        "__contains__",
    ):
        setattr(Variable, name, _refuse(name))
    members = {
        "detach": _detach,
        "to_string": _to_string,
        "__str__": lambda self: self._text(),
        "__repr__": lambda self: self._text(),
        "__format__": lambda self, spec: self._text(),
        "__hash__": _hash,
        "__len__": _len,
        "__iter__": _iter,
        "set_value": _set_value,
        "_assign_in_place": _assign_in_place,
        "__getitem__": get_item,
        "__setitem__": set_item,
        "get_value": _get_value,
        "astype": _astype,
        "op": property(_op),
        "grad": None,
        "is_leaf": property(lambda self: self._op() is None),
        "_op": _op,
        "__deepcopy__": _deepcopy,
        "cpu": lambda self: self,
        "cuda": lambda self, *args: self,
        "pin_memory": lambda self: self,
    }
    for name, member in members.items():
        setattr(Variable, name, member)
    StaticParameter.__deepcopy__ = _copy_parameter
    for name in _INFO:
        setattr(StaticParameter, name, _info(name))
    # The folder of the package: lines outside of it are the user's.
    folder = __file__.rsplit("/", 2)[0]
    building.package = folder + "/"


_attach()
