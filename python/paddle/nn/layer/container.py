# SPDX-License-Identifier: Apache-2.0
"""Layers that hold other layers or parameters in order or by name."""

from collections import OrderedDict
from collections.abc import Mapping

from ... import _names
from ...framework.parameter import Parameter
from .layers import Layer


def _position(index, length, what):
    """The index counted from the front; IndexError when it is outside."""
    if not hasattr(index, "__index__"):
        raise TypeError(f"{what}: an index is an integer, not {type(index).__name__}")
    position = index.__index__()
    if not -length <= position < length:
        raise IndexError(f"{what}: index {position} is out of range of {length}")
    return position % length


class Sequential(Layer):
    """Calls layers one after the other: `Sequential(Linear(2, 3), ReLU())`.

    Pairs of name and layer give the layers names: `Sequential(('fc', Linear(2, 3)))`.
    """

    def __init__(self, *layers):
        super().__init__()
        if len(layers) == 1 and isinstance(layers[0], OrderedDict):
            layers = layers[0].items()
        for i, layer in enumerate(layers):
            if isinstance(layer, (tuple, list)):
                if len(layer) != 2:
                    raise ValueError(
                        "Sequential: a named layer is a pair (name, layer), not "
                        f"{len(layer)} items"
                    )
                self.add_sublayer(layer[0], layer[1])
            else:
                self.add_sublayer(str(i), layer)

    def _name_of(self, key):
        if isinstance(key, str):
            return key
        names = list(self._sub_layers)
        return names[_position(key, len(names), "Sequential")]

    def __getitem__(self, key):
        if isinstance(key, slice):
            return type(self)(*list(self._sub_layers.items())[key])
        return self._sub_layers[self._name_of(key)]

    def __setitem__(self, key, layer):
        if isinstance(key, int) and key >= len(self):
            key = str(key)
        setattr(self, self._name_of(key), layer)

    def __delitem__(self, key):
        del self._sub_layers[self._name_of(key)]

    def __len__(self):
        return len(self._sub_layers)

    def __iter__(self):
        return iter(list(self._sub_layers.values()))

    def forward(self, input):
        for layer in self._sub_layers.values():
            input = layer(input)
        return input


class LayerList(Layer):
    """A list of layers, whose parameters it owns."""

    def __init__(self, sublayers=None):
        super().__init__()
        if sublayers is not None:
            self.extend(sublayers)

    def __getitem__(self, key):
        if isinstance(key, slice):
            return type(self)(list(self._sub_layers.values())[key])
        return self._sub_layers[str(_position(key, len(self), "LayerList"))]

    def __setitem__(self, key, layer):
        setattr(self, str(_position(key, len(self), "LayerList")), layer)

    def __delitem__(self, key):
        layers = list(self._sub_layers.values())
        if not isinstance(key, slice):
            key = _position(key, len(layers), "LayerList")
        del layers[key]
        self._renumber(layers)

    def __len__(self):
        return len(self._sub_layers)

    def __iter__(self):
        return iter(list(self._sub_layers.values()))

    def append(self, sublayer):
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index, sublayer):
        if not -len(self) <= index <= len(self):
            raise IndexError(f"LayerList: index {index} is out of range of {len(self)}")
        if not isinstance(sublayer, Layer):
            raise TypeError(
                f"LayerList.insert takes a Layer, not {type(sublayer).__name__}"
            )
        layers = list(self._sub_layers.values())
        layers.insert(index, sublayer)
        self._renumber(layers)

    def extend(self, sublayers):
        for layer in list(sublayers):
            self.append(layer)
        return self

    def _renumber(self, layers):
        self._sub_layers.clear()
        for i, layer in enumerate(layers):
            self._sub_layers[str(i)] = layer


class LayerDict(Layer):
    """Layers by name, whose parameters it owns."""

    def __init__(self, sublayers=None):
        super().__init__()
        if sublayers is not None:
            self.update(sublayers)

    def __getitem__(self, key):
        return self._sub_layers[key]

    def __setitem__(self, key, layer):
        self.add_sublayer(key, layer)

    def __delitem__(self, key):
        del self._sub_layers[key]

    def __len__(self):
        return len(self._sub_layers)

    def __iter__(self):
        return iter(list(self._sub_layers))

    def __contains__(self, key):
        return key in self._sub_layers

    def clear(self):
        self._sub_layers.clear()

    def pop(self, key):
        return self._sub_layers.pop(key)

    def keys(self):
        return self._sub_layers.keys()

    def values(self):
        return self._sub_layers.values()

    def items(self):
        return self._sub_layers.items()

    def update(self, sublayers):
        if isinstance(sublayers, (Mapping, LayerDict)):
            sublayers = sublayers.items()
        for name, layer in list(sublayers):
            self[name] = layer


class ParameterList(Layer):
    """A list of parameters that belongs to a layer."""

    def __init__(self, parameters=None):
        super().__init__()
        for parameter in parameters or ():
            self.append(parameter)

    def __getitem__(self, key):
        if isinstance(key, slice):
            return list(self._parameters.values())[key]
        return self._parameters[str(_position(key, len(self), "ParameterList"))]

    def __setitem__(self, key, parameter):
        if not isinstance(parameter, Parameter):
            raise TypeError(
                f"ParameterList takes Parameters, not {type(parameter).__name__}"
            )
        setattr(self, str(_position(key, len(self), "ParameterList")), parameter)

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(list(self._parameters.values()))

    def append(self, parameter):
        self.add_parameter(str(len(self)), parameter)
        return self


__all__ = _names.own(globals())
