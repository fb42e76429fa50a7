# SPDX-License-Identifier: Apache-2.0
"""Layer: what every part of a model is made of."""

import copy
import re
import warnings
from collections import OrderedDict
from collections.abc import Mapping

from ... import _core, _ops
from ..._core import StaticParameter, Tensor
from ...framework import dtype as dtypes
from ...framework.parameter import Parameter, buffer_of, new_parameter
from ...framework.place import device_of
from ...utils import unique_name

_FORGOTTEN = "super().__init__() must be called before anything else in {}.__init__()"


def _snake_case(name):
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def _indent(text):
    return text.replace("\n", "\n  ")


class HookRemoveHelper:
    """Returned when a hook is registered; `remove()` takes the hook away."""

    def __init__(self, hooks, key):
        self._hooks = hooks
        self._key = key

    def remove(self):
        self._hooks.pop(self._key, None)


class _Members(dict):
    """The parameters, layers or buffers of one layer, by name.

    Every entry is also an attribute in the layer's __dict__: a look-up there is many
    times faster than one through __getattr__, and a step does several.
    """

    def __init__(self, attributes):
        super().__init__()
        self._attributes = attributes

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        self._attributes[name] = value

    def __delitem__(self, name):
        super().__delitem__(name)
        self._attributes.pop(name, None)

    def pop(self, name, *default):
        if name in self:
            self._attributes.pop(name, None)
        return super().pop(name, *default)

    def popitem(self):
        name, value = super().popitem()
        self._attributes.pop(name, None)
        return name, value

    def clear(self):
        for name in list(self):
            del self[name]

    def update(self, *others, **named):
        for name, value in dict(*others, **named).items():
            self[name] = value

    def setdefault(self, name, value=None):
        if name not in self:
            self[name] = value
        return self[name]


class Layer:
    """A part of a model: it owns parameters, buffers and other layers.

    Derive from it, call `super().__init__()`, assign parameters and layers to
    attributes, and write `forward`. Buffers are tensors that belong to the model but
    are not trained.
    """

    def __init__(self, name_scope=None, dtype=None):
        # Written past __setattr__, which needs them.
        set_plain = super().__setattr__
        set_plain("training", True)
        for kind, _, _ in _KINDS:
            set_plain(kind, _Members(self.__dict__))
        set_plain("_non_persistable_buffer_names_set", set())
        set_plain("_forward_pre_hooks", OrderedDict())
        set_plain("_forward_post_hooks", OrderedDict())
        set_plain("_state_dict_hooks", OrderedDict())
        set_plain("_hook_count", 0)
        if name_scope is None:
            name_scope = _snake_case(type(self).__name__)
        set_plain("_full_name", unique_name.generate(name_scope))
        if dtype is None:
            dtype = _core.get_default_dtype()
        set_plain("_dtype", dtypes.convert(dtype))

    def forward(self, *inputs, **kwargs):
        """What the layer computes; every layer writes its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *inputs, **kwargs):
        if self._forward_pre_hooks or self._forward_post_hooks:
            return self._call_with_hooks(inputs, kwargs)
        return self.forward(*inputs, **kwargs)

    def _call_with_hooks(self, inputs, kwargs):
        for hook in list(self._forward_pre_hooks.values()):
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        outputs = self.forward(*inputs, **kwargs)
        for hook in list(self._forward_post_hooks.values()):
            changed = hook(self, inputs, outputs)
            if changed is not None:
                outputs = changed
        return outputs

    # ---- modes and names

    def full_name(self):
        """The layer's name in this process, such as linear_0."""
        return self._full_name

    def train(self):
        """Puts this layer and all below into training mode."""
        for layer in self.sublayers(include_self=True):
            layer.training = True
        return self

    def eval(self):
        """Puts this layer and all below into evaluation mode."""
        for layer in self.sublayers(include_self=True):
            layer.training = False
        return self

    def apply(self, fn):
        """Calls `fn` on every layer below, then on this one."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    # ---- parameters

    def create_parameter(
        self, shape, attr=None, dtype=None, is_bias=False, default_initializer=None
    ):
        """A new parameter, filled as `attr` says; None where attr is False.

        It belongs to the layer once it is assigned to an attribute.
        """
        if dtype is None:
            dtype = self._dtype
        return new_parameter(
            shape, attr, dtype, is_bias, default_initializer, self._full_name
        )

    def add_parameter(self, name, parameter):
        """Makes `parameter` (or None) the attribute `name` of this layer."""
        self._check_new_name("add_parameter", name, self._parameters)
        if parameter is not None and not isinstance(
            parameter, (Parameter, StaticParameter)
        ):
            raise TypeError(
                f"add_parameter: '{name}' must be a Parameter or None, but got "
                f"{type(parameter).__name__}"
            )
        self._forget(name)
        self._parameters[name] = parameter
        return parameter

    def parameters(self, include_sublayers=True):
        """All parameters, each once."""
        return [p for _, p in self.named_parameters("", include_sublayers)]

    def named_parameters(self, prefix="", include_sublayers=True):
        """Pairs of structured name and parameter, each parameter once."""
        return self._named_members("_parameters", prefix, include_sublayers)

    def clear_gradients(self, set_to_zero=True):
        """Forgets the gradients of all parameters."""
        for parameter in self.parameters():
            parameter._zero_grad(set_to_zero)

    # ---- buffers

    def register_buffer(self, name, tensor, persistable=True):
        """Makes `tensor` (or None) a buffer with this name.

        A persistable buffer is part of state_dict(), others are not.
        """
        self._check_new_name("register_buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"register_buffer: '{name}' must be a Tensor or None, but got "
                f"{type(tensor).__name__}"
            )
        self._forget(name)
        self._buffers[name] = buffer_of(tensor, f"{self._full_name}.{name}")
        if not persistable:
            self._non_persistable_buffer_names_set.add(name)

    def buffers(self, include_sublayers=True):
        """All buffers, each once."""
        return [b for _, b in self.named_buffers("", include_sublayers)]

    def named_buffers(self, prefix="", include_sublayers=True):
        """Pairs of structured name and buffer, each buffer once."""
        return self._named_members("_buffers", prefix, include_sublayers)

    def create_tensor(self, name=None, persistable=None, dtype=None):
        """An empty tensor with a name that says whose it is."""
        kind = self._dtype if dtype is None else dtypes.convert(dtype)
        tensor = _ops.fill_constant(shape=[0], value=0.0, dtype=kind)
        if name is None:
            name = unique_name.generate(f"{self._full_name}._generated_var")
        else:
            name = f"{self._full_name}.{name}"
        tensor.name = name
        tensor.persistable = bool(persistable)
        return tensor

    create_variable = create_tensor

    # ---- layers below

    def add_sublayer(self, name, sublayer):
        """Makes `sublayer` (or None) the attribute `name` of this layer."""
        self._check_new_name("add_sublayer", name, self._sub_layers)
        if sublayer is not None and not isinstance(sublayer, Layer):
            raise TypeError(
                f"add_sublayer: '{name}' must be a Layer or None, but got "
                f"{type(sublayer).__name__}"
            )
        self._forget(name)
        self._sub_layers[name] = sublayer
        return sublayer

    def children(self):
        """The layers directly below, each once."""
        for _, layer in self.named_children():
            yield layer

    def named_children(self):
        """Pairs of name and layer directly below, each layer once."""
        seen = set()
        for name, layer in self._sub_layers.items():
            if layer is not None and id(layer) not in seen:
                seen.add(id(layer))
                yield name, layer

    def sublayers(self, include_self=False):
        """All layers below, each once, a layer before those in it."""
        return [layer for _, layer in self.named_sublayers("", include_self)]

    def named_sublayers(self, prefix="", include_self=False, layers_set=None):
        """Pairs of structured name and layer; see sublayers()."""
        if layers_set is None:
            layers_set = set()
        if include_self and self not in layers_set:
            layers_set.add(self)
            yield prefix, self
        for key, layer in self._sub_layers.items():
            if layer is not None:
                path = f"{prefix}.{key}" if prefix else key
                yield from layer.named_sublayers(path, True, layers_set)

    # ---- hooks

    def register_forward_pre_hook(self, hook):
        """Calls `hook(layer, inputs)` before forward; what it returns, unless None,
        takes the place of the inputs. The handle returned can remove it."""
        return self._add_hook(self._forward_pre_hooks, hook)

    def register_forward_post_hook(self, hook):
        """Calls `hook(layer, inputs, outputs)` after forward; what it returns, unless
        None, takes the place of the outputs. The handle returned can remove it."""
        return self._add_hook(self._forward_post_hooks, hook)

    def register_state_dict_hook(self, hook):
        """Calls `hook(state)` on what state_dict() is about to return."""
        return self._add_hook(self._state_dict_hooks, hook)

    # ---- state

    def state_dict(
        self,
        destination=None,
        include_sublayers=True,
        structured_name_prefix="",
        use_hook=True,
    ):
        """Parameters and persistable buffers by structured name.

        The values are the tensors themselves, not copies.
        """
        state = OrderedDict() if destination is None else destination
        for name, parameter in self._parameters.items():
            if parameter is not None:
                state[structured_name_prefix + name] = parameter
        for name, buffer in self._buffers.items():
            if buffer is None or name in self._non_persistable_buffer_names_set:
                continue
            state[structured_name_prefix + name] = buffer
        if include_sublayers:
            for name, layer in self._sub_layers.items():
                if layer is not None:
                    prefix = f"{structured_name_prefix}{name}."
                    layer.state_dict(state, True, prefix, use_hook)
        if use_hook:
            for hook in list(self._state_dict_hooks.values()):
                changed = hook(state)
                if changed is not None:
                    state = changed
        return state

    def to_static_state_dict(
        self,
        destination=None,
        include_sublayers=True,
        structured_name_prefix="",
        use_hook=True,
    ):
        """As state_dict(), with the buffers that are not persistable too."""
        state = self.state_dict(
            destination, include_sublayers, structured_name_prefix, use_hook
        )
        for name, buffer in self.named_buffers("", include_sublayers):
            state.setdefault(structured_name_prefix + name, buffer)
        return state

    def set_state_dict(self, state_dict, use_structured_name=True):
        """Copies values into this layer's parameters and buffers, in place.

        state_dict: tensors or arrays by structured name, or by the parameters' own
        names with use_structured_name=False. A value that is absent or has another
        shape is left out with a warning.

        Returns the names that were not filled, and those nobody asked for.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{type(self).__name__}: set_state_dict takes a dict, as state_dict() "
                f"gives it, but got {type(state_dict).__name__}"
            )
        missing, used = [], set()
        for key, target in self.state_dict(use_hook=False).items():
            name = key if use_structured_name else target.name
            problem = _mismatch(name, target, state_dict)
            if problem is None:
                used.add(name)
                target.set_value(state_dict[name])
            else:
                missing.append(name)
                warnings.warn(f"Skip loading for {key}. {problem}", stacklevel=2)
        unexpected = [k for k in state_dict if k not in used and k not in missing]
        if "StructuredToParameterName@@" in unexpected:
            unexpected.remove("StructuredToParameterName@@")
        return missing, unexpected

    set_dict = set_state_dict
    load_dict = set_state_dict

    # ---- device and element type

    def to(self, device=None, dtype=None, blocking=None):
        """Moves all parameters and buffers to `device` and, where they are floating
        point, to `dtype`. Returns the layer itself."""
        kind = None if dtype is None else dtypes.convert(dtype)
        for layer in self.sublayers(include_self=True):
            if kind is not None and dtypes.is_floating(kind):
                layer._dtype = kind
            for members in (layer._parameters, layer._buffers):
                for tensor in members.values():
                    if tensor is not None:
                        _move(tensor, device, kind)
        return self

    def astype(self, dtype=None):
        """Casts floating-point parameters and buffers. Returns the layer itself."""
        return self.to(dtype=dtype)

    def float(self):
        """Casts floating-point parameters and buffers to float32."""
        return self.to(dtype="float32")

    def double(self):
        """Casts floating-point parameters and buffers to float64."""
        return self.to(dtype="float64")

    def half(self):
        """Casts floating-point parameters and buffers to float16."""
        return self.to(dtype="float16")

    # ---- attributes

    def __setattr__(self, name, value):
        members = self.__dict__
        if isinstance(value, (Parameter, StaticParameter)):
            kind = "_parameters"
        elif isinstance(value, Layer):
            kind = "_sub_layers"
        elif isinstance(value, Tensor):
            kind = "_buffers"
            value = buffer_of(value, f"{self.__dict__.get('_full_name')}.{name}")
        else:
            self._set_plain(name, value)
            return
        if kind not in members:
            raise ValueError(_FORGOTTEN.format(type(self).__name__))
        holder = members[kind]
        if name not in holder:
            if kind == "_buffers" and name in members["_parameters"]:
                self._refuse(name, "parameter", "Parameter", value)
            self._forget(name)
            if kind == "_buffers":
                self._non_persistable_buffer_names_set.add(name)
        holder[name] = value

    def _set_plain(self, name, value):
        """Assigns what is neither Parameter nor Layer nor Tensor."""
        members = self.__dict__
        for kind, what, wanted in _KINDS:
            if name in members.get(kind, ()):
                if value is not None:
                    self._refuse(name, what, wanted, value)
                members[kind][name] = None
                return
        object.__setattr__(self, name, value)

    def _refuse(self, name, what, wanted, value):
        raise TypeError(
            f"{what} '{name}' of {type(self).__name__} can only be set to a {wanted} "
            f"or None, but got {type(value).__name__}"
        )

    def __getattr__(self, name):
        # Reached only for what is not there.
        if "_parameters" not in self.__dict__:
            raise AttributeError(_FORGOTTEN.format(type(self).__name__))
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def __delattr__(self, name):
        for kind, _, _ in _KINDS:
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                self._non_persistable_buffer_names_set.discard(name)
                return
        object.__delattr__(self, name)

    def __deepcopy__(self, memo):
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        attributes = twin.__dict__
        kinds = [kind for kind, _, _ in _KINDS]
        for kind in kinds:
            attributes[kind] = _Members(attributes)
            for name, value in self.__dict__[kind].items():
                attributes[kind][name] = copy.deepcopy(value, memo)
        for name, value in self.__dict__.items():
            if name not in attributes:
                attributes[name] = copy.deepcopy(value, memo)
        return twin

    # ---- printing

    def extra_repr(self):
        """What stands between the brackets when the layer is printed."""
        return ""

    def __repr__(self):
        lines = [line for line in self.extra_repr().split("\n") if line]
        below = [f"({k}): {_indent(repr(v))}" for k, v in self._sub_layers.items()]
        if below or len(lines) > 1:
            inside = "\n  " + "\n  ".join(lines + below) + "\n"
        else:
            inside = "".join(lines)
        return f"{type(self).__name__}({inside})"

    # ---- inside

    def _named_members(self, kind, prefix, include_sublayers):
        seen = set()
        layers = (
            self.named_sublayers(prefix, include_self=True)
            if include_sublayers
            else [(prefix, self)]
        )
        for path, layer in layers:
            for key, tensor in getattr(layer, kind).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{path}.{key}" if path else key), tensor

    def _check_new_name(self, method, name, holder):
        if not isinstance(name, str):
            raise TypeError(
                f"{method}: the name must be a string, but got {type(name).__name__}"
            )
        if name == "" or "." in name:
            raise KeyError(
                f"{method}: the name '{name}' must not be empty or have a dot"
            )
        if name not in holder and hasattr(self, name):
            raise KeyError(f"{method}: there is already an attribute '{name}'")

    def _forget(self, name):
        """Removes `name` wherever it is, so that it can become something else."""
        members = self.__dict__
        for kind, _, _ in _KINDS:
            members[kind].pop(name, None)
        members.pop(name, None)
        self._non_persistable_buffer_names_set.discard(name)

    def _add_hook(self, hooks, hook):
        if not callable(hook):
            raise TypeError(f"a hook is a function, not {type(hook).__name__}")
        self._hook_count += 1
        hooks[self._hook_count] = hook
        return HookRemoveHelper(hooks, self._hook_count)


_KINDS = (
    ("_parameters", "parameter", "Parameter"),
    ("_sub_layers", "sublayer", "Layer"),
    ("_buffers", "buffer", "Tensor"),
)


def _mismatch(name, target, state):
    """Why state[name] cannot go into `target`, or None."""
    value = state.get(name)
    if value is None:
        return f"{name} is not found in the provided dict."
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"{name} is a {type(value).__name__}, neither a Tensor nor an array."
    if list(shape) != target.shape:
        return (
            f"{name} receives a shape {list(shape)}, but the expected shape is "
            f"{target.shape}."
        )
    return None


def _move(tensor, device, dtype):
    where = tensor._device if device is None else device_of(device)
    if dtype is None or not dtypes.is_floating(tensor.dtype):
        dtype = tensor.dtype
    if where == tensor._device and dtype == tensor.dtype:
        return
    gradient = tensor.grad
    tensor.grad = None
    tensor._move(where, dtype)
    if gradient is not None:
        gradient._move(where, dtype)
        tensor.grad = gradient
