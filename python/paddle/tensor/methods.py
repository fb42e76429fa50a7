# SPDX-License-Identifier: Apache-2.0
"""Members of Tensor that are no functions of the package: reading values, moving
between devices, gradients, and Python's protocols."""

import copy
import weakref

from .. import _core
from .._core import DType, EagerTensor, Tensor
from ..autograd.backward_mode import backward as _backward
from ..framework import dtype as _dtype
from ..framework.place import Place, device_of, place_of
from .attribute import is_complex, is_floating_point
from .creation import clone
from .manipulation import cast, transpose
from .to_string import tensor_to_string

# ---- values


def item(self, *args):
    """The one element as a Python number, or the element at a position."""
    if not args:
        if self.size != 1:
            raise ValueError(
                f"item(): the tensor has {self.size} elements (shape {self.shape}); "
                "say which one is meant"
            )
        return self._item()
    if len(args) == 1 and not isinstance(args[0], (tuple, list)):
        position = _unravel(args[0], self.shape)
    else:
        position = tuple(args[0]) if len(args) == 1 else args
    if len(position) != self.ndim:
        raise ValueError(
            f"item(): {len(position)} indices for a tensor of {self.ndim} dimensions"
        )
    return self[tuple(int(i) for i in position)]._item()


def _unravel(index, shape):
    """The position of element `index` counted through all of them."""
    size = 1
    for d in shape:
        size *= d
    if not -size <= index < size:
        raise IndexError(f"item(): {index} is outside of a tensor of {size} elements")
    index %= size
    position = []
    for d in reversed(shape):
        index, rest = divmod(index, d)
        position.append(rest)
    return position[::-1]


def tolist(self):
    """The values as nested lists of Python numbers."""
    return self._numpy_view().tolist()


def _array(self, dtype=None, copy=None):
    if copy is False:
        if not self.place.is_cpu_place():
            raise ValueError("the tensor is not in host memory: a copy is needed")
        data = self._numpy_view()
        if dtype is not None and data.dtype != dtype:
            raise ValueError(f"{data.dtype} cannot become {dtype} without a copy")
        return data
    data = self.numpy()
    return data if dtype is None else data.astype(dtype, copy=False)


def _one(self, what):
    if self.size != 1:
        raise ValueError(
            f"{what}: the tensor has {self.size} elements (shape {self.shape}), but "
            "only one can be converted"
        )
    return self._item()


def _index(self):
    if is_floating_point(self) or is_complex(self):
        raise TypeError(f"a {self.dtype.name} tensor cannot be used as an index")
    return int(_one(self, "index"))


def _format(self, spec):
    if not spec:
        return str(self)
    return format(_one(self, "format"), spec)


def _len(self):
    if self.ndim == 0:
        raise TypeError("a tensor without dimensions has no len()")
    return self.shape[0]


def _iter(self):
    if self.ndim == 0:
        raise TypeError("a tensor without dimensions cannot be iterated")
    return (self[i] for i in range(self.shape[0]))


def _contains(self, value):
    return bool((self == value).numpy().any())


# ---- copies and places


def astype(self, dtype):
    """A tensor of the same values with another element type."""
    return cast(self, dtype)


def _moved(self, device, blocking=True):
    return self if self._device == device else self._to(device, blocking)


def cpu(self):
    """The tensor in host memory."""
    return _moved(self, "cpu")


def cuda(self, device_id=None, blocking=True):
    """The tensor on a GPU: `device_id`, or the current one."""
    if device_id is None:
        current = _core.get_device()
        device_id = int(current.split(":")[1]) if ":" in current else 0
    return _moved(self, device_of(f"gpu:{device_id}"), blocking)


def pin_memory(self):
    """The tensor in host memory."""
    return _moved(self, "cpu")


def to(self, *args, **kwargs):
    """The tensor on another device or with another type: `to('gpu')`,
    `to('float64')`, `to(device, dtype)`, `to(other)`."""
    device = kwargs.pop("device", None)
    dtype = kwargs.pop("dtype", None)
    blocking = kwargs.pop("blocking", True)
    if kwargs:
        raise TypeError(f"to(): unknown argument '{next(iter(kwargs))}'")
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = place_of(arg._device), arg.dtype
        elif isinstance(arg, bool):
            blocking = arg
        elif isinstance(arg, str) and arg.split(":")[0] in _DEVICES:
            device = arg
        elif isinstance(arg, Place):
            device = arg
        elif isinstance(arg, str) and not _dtype.is_known(arg):
            raise ValueError(f"to(): '{arg}' is neither a device nor an element type")
        elif arg is not None:
            dtype = arg
    x = self if device is None else _moved(self, device_of(device), blocking)
    if dtype is None or _dtype.convert(dtype) is x.dtype:
        return x
    return astype(x, dtype)


_DEVICES = ("cpu", "gpu", "cuda", "xpu")


def _deepcopy(self, memo):
    if not self.is_leaf:
        raise RuntimeError(
            "only leaf Tensors can be deep-copied; use clone() or detach() first"
        )
    twin = type(self).__new__(type(self))
    EagerTensor.__init__(twin, _fresh(self))
    memo[id(self)] = twin
    twin.stop_gradient = self.stop_gradient
    twin.persistable = self.persistable
    twin.name = self.name + "_deepcopy"
    for key, value in self.__dict__.items():
        setattr(twin, key, copy.deepcopy(value, memo))
    return twin


def _fresh(self):
    """The same values in memory of their own, outside of any graph."""
    with_memory = _core.from_object(self.detach())
    return _moved(with_memory, self._device)


def _rebuild(kind, data, dtype, name, stop_gradient, persistable, attributes):
    if dtype == "bfloat16":
        value = _core.bfloat16_from_bits(data)
    else:
        value = _core.from_object(data)
    x = kind.__new__(kind)
    EagerTensor.__init__(x, value)
    x.stop_gradient = stop_gradient
    x.persistable = persistable
    x.name = name
    for key, attribute in attributes.items():
        setattr(x, key, attribute)
    return x


def _reduce(self, protocol=None):
    state = (self.dtype.name, self.name, self.stop_gradient, self.persistable)
    return _rebuild, (type(self), self.numpy(), *state, dict(self.__dict__))


# ---- gradients


class TensorHook:
    """What register_hook() returns; remove() takes the hook away again."""

    def __init__(self, tensor, number):
        self._tensor = weakref.ref(tensor)
        self._number = number

    def remove(self):
        """Takes the hook away; False if it was gone already."""
        tensor, number, self._number = self._tensor(), self._number, None
        if tensor is None or number is None:
            return False
        _core.remove_hook(tensor, number)
        return True


def backward(self, grad_tensor=None, retain_graph=False):
    """Adds the gradient of this tensor, weighted by `grad_tensor` (ones by default),
    to `.grad` of every leaf it came from."""
    if grad_tensor is None and not self.stop_gradient:
        _core.backward([self], [None], retain_graph)
    else:
        _backward(self, grad_tensor, retain_graph)


def gradient(self):
    """The gradient as a numpy array, or None."""
    grad = self.grad
    return None if grad is None else grad.numpy()


def clear_gradient(self, set_to_zero=True):
    """Sets the gradient to zero, or removes it."""
    self._zero_grad(set_to_zero)


def clear_grad(self, set_to_zero=True):
    """Sets the gradient to zero, or removes it."""
    self._zero_grad(set_to_zero)


def register_hook(self, hook):
    """Calls `hook(grad)` when the gradient of this tensor is known; what it returns,
    unless None, takes the gradient's place."""
    if not callable(hook):
        raise TypeError(f"register_hook() takes a function, not {type(hook).__name__}")
    if self.stop_gradient:
        raise RuntimeError(
            "register_hook(): the tensor has stop_gradient=True and gets no gradient"
        )
    return TensorHook(self, _core.register_hook(self, hook))


def retain_grads(self):
    """Keeps `.grad` of this tensor also where it is no leaf."""
    if self.stop_gradient:
        raise RuntimeError(
            "retain_grads(): the tensor has stop_gradient=True and gets no gradient"
        )
    if not self.is_leaf:
        _core.retain_grad(self)


# ---- shape and type


_ELEMENT_SIZE = {
    DType.bool: 1,
    DType.uint8: 1,
    DType.int8: 1,
    DType.int16: 2,
    DType.int32: 4,
    DType.int64: 8,
    DType.float16: 2,
    DType.bfloat16: 2,
    DType.float32: 4,
    DType.float64: 8,
    DType.complex64: 8,
    DType.complex128: 16,
}


def element_size(self):
    """Bytes of one element."""
    return _ELEMENT_SIZE[self.dtype]


def dim(self):
    """The number of dimensions."""
    return self.ndim


def _trainable(self):
    return not self.stop_gradient


def _set_trainable(self, on):
    self.stop_gradient = not on


def _transposed(self):
    return transpose(self, list(range(self.ndim))[::-1])


MEMBERS = {
    "item": item,
    "tolist": tolist,
    "astype": astype,
    "clone": clone,
    "cpu": cpu,
    "cuda": cuda,
    "pin_memory": pin_memory,
    "to": to,
    "backward": backward,
    "gradient": gradient,
    "clear_gradient": clear_gradient,
    "clear_grad": clear_grad,
    "zero_grad": clear_grad,
    "register_hook": register_hook,
    "retain_grads": retain_grads,
    "element_size": element_size,
    "dim": dim,
    "ndimension": dim,
    "place": property(lambda self: place_of(self._device)),
    "trainable": property(_trainable, _set_trainable),
    "T": property(_transposed),
    "__array__": _array,
    "__array_priority__": 100,  # numpy leaves `array + tensor` to the tensor
    "__len__": _len,
    "__iter__": _iter,
    "__contains__": _contains,
    "__bool__": lambda self: bool(_one(self, "bool")),
    "__int__": lambda self: int(_one(self, "int")),
    "__float__": lambda self: float(_one(self, "float")),
    "__complex__": lambda self: complex(_one(self, "complex")),
    "__index__": _index,
    "__hash__": object.__hash__,
    "__repr__": tensor_to_string,
    "__str__": tensor_to_string,
    "__format__": _format,
    "__deepcopy__": _deepcopy,
    "__reduce_ex__": _reduce,
}
