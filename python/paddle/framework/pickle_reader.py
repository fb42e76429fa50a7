# SPDX-License-Identifier: Apache-2.0
"""Reads the pickles that Paddle 2.x saves and datasets come in, and nothing else.

A pickle is a program for a small stack machine, and with Python's own machine it can
call any function of the process. This one knows the data opcodes of protocols 2 to
4. Of the functions that a pickle may name it knows the few that arrays and tensors
are saved with; it looks at their arguments and makes the result itself. Nothing that
the file names is imported or called. Objects of any other kind are refused.
"""

import collections
import struct

import numpy as np

from .._core import DataLossError
from .container import MAX_DEPTH, check_shape

# (module, name) as pickles write them -> what we call it.
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    ("collections", "OrderedDict"): "ordered",
    ("builtins", "tuple"): "tuple",
    ("__builtin__", "tuple"): "tuple",
    ("builtins", "bytes"): "bytes",
    ("__builtin__", "bytes"): "bytes",
    ("builtins", "eval"): "eval",
    ("__builtin__", "eval"): "eval",
}

_DTYPES = set("b1 i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split())


class SavedTensor:
    """A tensor in a pickle: its array, and its name if it had one."""

    def __init__(self, array, name=None):
        self.array = array
        self.name = name


class _Name:
    """One of the functions or types in _NAMES."""

    def __init__(self, kind):
        self.kind = kind


class _Unbuilt:
    """What REDUCE made and BUILD has not yet filled. `keys` are its memo places."""

    def __init__(self, kind, code=None):
        self.kind = kind
        self.code = code
        self.keys = []


_MARK = object()


class _Machine:
    def __init__(self, data):
        self._data = memoryview(data)
        self.position = 0
        self._stack = []
        self._memo = {}
        self._array_bytes = 0

    # -- input

    def _take(self, size):
        end = self.position + size
        if end > len(self._data):
            raise DataLossError("it is cut off")
        part = self._data[self.position : end]
        self.position = end
        return part

    def _number(self, form):
        form = _FORMS[form]
        return form.unpack(self._take(form.size))[0]

    def _line(self):
        # Names of modules and functions are short.
        part = bytes(self._data[self.position : self.position + 200])
        end = part.find(b"\n")
        if end < 0:
            raise DataLossError("a name without an end")
        self.position += end + 1
        return part[:end].decode("utf-8")

    def _text(self, size):
        return str(self._take(size), "utf-8", "surrogatepass")

    # -- stack and memo

    def _pop(self):
        value = self._stack.pop()
        if value is _MARK:
            raise DataLossError("a mark where a value should be")
        return value

    def _top(self):
        value = self._stack[-1]
        if value is _MARK:
            raise DataLossError("a mark where a value should be")
        return value

    def _since_mark(self):
        stack = self._stack
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                items = stack[i + 1 :]
                del stack[i:]
                return items
        raise DataLossError("a mark is missing")

    def _remember(self, key):
        value = self._top()
        self._memo[key] = value
        if isinstance(value, _Unbuilt):
            value.keys.append(key)

    def _recall(self, key):
        if key not in self._memo:
            raise DataLossError("a value that was never stored")
        self._stack.append(self._memo[key])

    # -- containers

    def _append(self, items):
        target = self._top()
        if type(target) is not list:
            raise DataLossError("items for something that is no list")
        target.extend(items)

    def _set_items(self, items):
        target = self._top()
        if type(target) not in (dict, collections.OrderedDict) or len(items) % 2:
            raise DataLossError("entries for something that is no dict")
        for key, value in zip(items[::2], items[1::2]):
            _check_key(key, 0)
            target[key] = value

    # -- the functions that a pickle may name

    def _find(self, module, name):
        if type(module) is not str or type(name) is not str:
            raise DataLossError("a name that is no text")
        kind = _NAMES.get((module, name))
        if kind is None:
            raise ValueError(
                f"it asks for {module[:100]}.{name[:100]}; only tensors, arrays and "
                "plain containers are read"
            )
        self._stack.append(_Name(kind))

    def _reduce(self):
        arguments = self._pop()
        function = self._pop()
        if not isinstance(function, _Name) or type(arguments) is not tuple:
            raise DataLossError("a call of something that cannot be called")
        make = getattr(self, "_make_" + function.kind, None)
        if make is None:
            raise DataLossError(f"a call of {function.kind}")
        self._stack.append(make(*arguments))

    def _make_array(self, kind, shape, code):
        if not isinstance(kind, _Name) or kind.kind != "ndarray":
            raise ValueError("it has an array of a class of its own")
        return _Unbuilt("array")

    def _make_dtype(self, code, align=False, copy=False):
        if type(code) is not str or code not in _DTYPES:
            raise ValueError(
                f"it has an array of type {str(code)[:20]!r}; only numbers and bools "
                "are read"
            )
        return _Unbuilt("dtype", code)

    def _make_scalar(self, dtype, data):
        return self._array_of(dtype, (), data)[()]

    def _make_encode(self, text, encoding):
        if type(text) is not str or encoding != "latin1":
            raise DataLossError("bytes that are encoded in an unknown way")
        return text.encode("latin1")

    def _make_bytes(self):
        return b""

    def _make_ordered(self, pairs=()):
        result = collections.OrderedDict()
        for key, value in pairs:
            _check_key(key, 0)
            result[key] = value
        return result

    def _make_tuple(self, pair):
        # Paddle 2.1 and later: a tensor as (name, array).
        name, array = pair
        if type(pair) is not tuple or type(name) is not str:
            raise DataLossError("a tensor without a name")
        if type(array) is not np.ndarray:
            raise DataLossError("a tensor without an array")
        return SavedTensor(array, name)

    def _make_eval(self, text, variables=None):
        # How Paddle saves a LoDTensor. Only this one form; nothing is evaluated.
        if text != "data" or type(variables) is not dict or len(variables) != 1:
            raise ValueError("it asks for Python code to be run")
        array = variables.get("data")
        if type(array) is not np.ndarray:
            raise ValueError("it asks for Python code to be run")
        return SavedTensor(array)

    def _build(self):
        state = self._pop()
        target = self._pop()
        if not isinstance(target, _Unbuilt) or type(state) is not tuple:
            raise DataLossError("a state for something that has none")
        if target.kind == "dtype":
            built = self._build_dtype(target.code, *state)
        else:
            built = self._build_array(*state)
        for key in target.keys:
            self._memo[key] = built
        self._stack.append(built)

    def _build_dtype(self, code, version, order, subtype, names, fields, *rest):
        if order not in ("<", ">", "|", "="):
            raise DataLossError("an unknown byte order")
        if subtype is not None or names is not None or fields is not None:
            raise ValueError("it has an array of records")
        return np.dtype(("" if order == "|" else order) + code)

    def _build_array(self, version, shape, dtype, fortran, data):
        if type(shape) is not tuple:
            raise DataLossError("a shape that is no tuple")
        return self._array_of(dtype, shape, data, "F" if fortran else "C")

    def _array_of(self, dtype, shape, data, order="C"):
        if isinstance(dtype, _Unbuilt) and dtype.kind == "dtype":
            dtype = np.dtype(dtype.code)
        if not isinstance(dtype, np.dtype):
            raise DataLossError("an array without a type")
        if type(data) is str:
            data = data.encode("latin1")
        if type(data) is not bytes:
            raise DataLossError("an array without bytes")
        check_shape(shape, dtype, len(data))
        # Many arrays over the same stored bytes would be a bomb.
        self._array_bytes += len(data)
        if self._array_bytes > len(self._data):
            raise DataLossError("its arrays are larger than the file")
        array = np.frombuffer(data, dtype=dtype).reshape(shape, order=order)
        return array.astype(dtype.newbyteorder("="), order="C")

    # -- the program

    def run(self):
        try:
            return self._run()
        except DataLossError:
            raise
        except (IndexError, KeyError, TypeError, OverflowError, UnicodeError) as error:
            raise DataLossError(f"it makes no sense as a pickle: {error}") from None
        except (RecursionError, MemoryError, struct.error):
            raise DataLossError("it makes no sense as a pickle") from None

    def _run(self):
        if self._take(1) != b"\x80" or not 2 <= self._take(1)[0] <= 4:
            raise ValueError("it is no pickle of protocol 2, 3 or 4")
        while True:
            code = self._take(1)[0]
            if code == 0x2E:  # STOP
                value = self._pop()
                if self._stack:
                    raise DataLossError("values are left over")
                return value
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise ValueError(f"it has the opcode {code:#04x}, which is not read")
            operation(self)

    def _push(self, value):
        self._stack.append(value)

    def _frame(self):
        if self._number("Q") > len(self._data) - self.position:
            raise DataLossError("it is cut off")

    def _tuple(self, size):
        if len(self._stack) < size:
            raise DataLossError("a tuple without items")
        items = tuple(self._pop() for _ in range(size))
        self._push(items[::-1])

    def _set_item(self):
        value = self._pop()
        key = self._pop()
        self._set_items([key, value])

    def _stack_global(self):
        name = self._pop()
        module = self._pop()
        self._find(module, name)

    def _global(self):
        module = self._line()
        name = self._line()
        self._find(module, name)

    def _long(self, size):
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def _dict_since_mark(self):
        items = self._since_mark()
        self._push({})
        self._set_items(items)


_FORMS = {code: struct.Struct("<" + code) for code in "BHiIQ"}
_FORMS["d"] = struct.Struct(">d")

_OPERATIONS = {
    ord("("): lambda m: m._push(_MARK),
    ord("0"): lambda m: m._stack.pop(),
    ord("1"): lambda m: m._since_mark(),
    ord("2"): lambda m: m._push(m._top()),
    ord("N"): lambda m: m._push(None),
    0x88: lambda m: m._push(True),
    0x89: lambda m: m._push(False),
    ord("J"): lambda m: m._push(m._number("i")),
    ord("K"): lambda m: m._push(m._number("B")),
    ord("M"): lambda m: m._push(m._number("H")),
    0x8A: lambda m: m._long(m._number("B")),
    0x8B: lambda m: m._long(m._number("I")),
    ord("G"): lambda m: m._push(m._number("d")),
    ord("X"): lambda m: m._push(m._text(m._number("I"))),
    0x8C: lambda m: m._push(m._text(m._number("B"))),
    0x8D: lambda m: m._push(m._text(m._number("Q"))),
    ord("T"): lambda m: m._push(str(m._take(m._number("I")), "latin1")),
    ord("U"): lambda m: m._push(str(m._take(m._number("B")), "latin1")),
    ord("B"): lambda m: m._push(bytes(m._take(m._number("I")))),
    ord("C"): lambda m: m._push(bytes(m._take(m._number("B")))),
    0x8E: lambda m: m._push(bytes(m._take(m._number("Q")))),
    ord("]"): lambda m: m._push([]),
    ord("}"): lambda m: m._push({}),
    ord(")"): lambda m: m._push(()),
    ord("l"): lambda m: m._push(m._since_mark()),
    ord("t"): lambda m: m._push(tuple(m._since_mark())),
    ord("d"): _Machine._dict_since_mark,
    0x85: lambda m: m._tuple(1),
    0x86: lambda m: m._tuple(2),
    0x87: lambda m: m._tuple(3),
    ord("a"): lambda m: m._append([m._pop()]),
    ord("e"): lambda m: m._append(m._since_mark()),
    ord("s"): _Machine._set_item,
    ord("u"): lambda m: m._set_items(m._since_mark()),
    ord("q"): lambda m: m._remember(m._number("B")),
    ord("r"): lambda m: m._remember(m._number("I")),
    0x94: lambda m: m._remember(len(m._memo)),
    ord("h"): lambda m: m._recall(m._number("B")),
    ord("j"): lambda m: m._recall(m._number("I")),
    0x95: _Machine._frame,
    ord("c"): _Machine._global,
    0x93: _Machine._stack_global,
    ord("R"): _Machine._reduce,
    ord("b"): _Machine._build,
}


def _check_key(key, depth):
    """A key is plain and small: hashing visits all of it, on the C stack."""
    if key is None or type(key) in (bool, int, float, str, bytes):
        return
    if type(key) is tuple and depth < 2 and len(key) <= 64:
        for part in key:
            _check_key(part, depth + 1)
        return
    raise ValueError("it has a dict with a key that is not plain")


class _Converter:
    """Walks the result once: only known types pass, tensors are made."""

    def __init__(self, convert_tensor, convert_array):
        self._tensor = convert_tensor
        self._array = convert_array
        self._done = {}
        self._open = set()

    def convert(self, value, depth=0):
        kind = type(value)
        if value is None or kind in (bool, int, float, str, bytes):
            return value
        if isinstance(value, np.generic):
            return value
        # What appears twice stays one object, and costs its size once.
        if id(value) in self._done:
            return self._done[id(value)][1]
        if id(value) in self._open:
            raise ValueError("it has a container that contains itself")
        if depth >= MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        self._open.add(id(value))
        result = self._convert(value, kind, depth + 1)
        self._open.remove(id(value))
        self._done[id(value)] = (value, result)
        return result

    def _convert(self, value, kind, depth):
        if kind is SavedTensor:
            return self._tensor(value)
        if kind is np.ndarray:
            return self._array(value)
        if kind is list:
            return [self.convert(item, depth) for item in value]
        if kind is tuple:
            return tuple([self.convert(item, depth) for item in value])
        if kind in (dict, collections.OrderedDict):
            return kind((key, self.convert(item, depth)) for key, item in value.items())
        if kind is _Name:
            raise ValueError(
                "it has a function; only tensors, arrays and plain containers are read"
            )
        raise DataLossError("it ends in the middle of a value")


def convert(value, convert_tensor, convert_array):
    """`value` with every tensor and array replaced by what the functions return."""
    return _Converter(convert_tensor, convert_array).convert(value)


def read(data):
    """What the pickle at the beginning of the buffer `data` holds, and its size.

    Tensors are SavedTensor, arrays numpy's own with memory of their own. DataLossError
    where the bytes make no sense, ValueError where they ask for something that is not
    read.
    """
    machine = _Machine(data)
    return machine.run(), machine.position


def read_file(file, name):
    """The arrays and plain values pickled in an open file; strings of Python 2 are
    read as latin1. `name` is what errors call the file. DataLossError and ValueError
    as in read()."""
    try:
        value, _ = read(file.read())
        return convert(value, lambda tensor: tensor.array, lambda array: array)
    except DataLossError as error:
        raise DataLossError(f"{name}: damaged: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
