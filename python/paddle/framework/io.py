# SPDX-License-Identifier: Apache-2.0
"""paddle.save and paddle.load.

Files are written in the format of container.py, atomically: a crash or a full disk
leaves the old file whole. Files that Paddle 2.x wrote (.pdparams, .pdopt) are read
through pickle_reader.py. Reading executes nothing that a file names.
"""

import os
import re
import stat

import numpy as np

from .. import _core
from .._core import DataLossError
from . import container, pickle_reader, state_file
from .whole_file import open_whole

__all__ = ["save", "load", "DataLossError"]

_NAME_TABLE = "StructuredToParameterName@@"
_SLICE_TABLE = "UnpackBigParamInfor@@"

# What an optimizer's state has in its keys: an accumulator's name behind that of its
# parameter, or one of these words alone.
_ACCUMULATOR = re.compile(
    r"_(moment1?|moment2|beta[12]_pow_acc|velocity|inf_norm|mean_square|mean_grad|"
    r"momentum|_avg_squared_grad|_avg_squared_update|squared|linear)_\d+$"
)
_OPTIMIZER_WORDS = {"LR_Scheduler", "master_weights"}

_TENSOR_ARRAYS = {np.dtype(code) for code in set(container.TENSOR_DTYPES.values())}


# -- save


def save(obj, path, protocol=4, **configs):
    """Saves tensors, arrays and plain containers of them to a file.

    Args:
        obj: a Tensor, a numpy array or number, None, bool, int, float, complex, str,
            bytes, or a dict, list or tuple of such, nested in any way; for instance
            a `state_dict()`.
        path: a file name, whose folders are made when they are missing, or a
            `BytesIO`. What was at the path stays whole until the new file is
            complete.
        protocol: 2, 3 or 4. Accepted as Paddle does; the format does not depend on
            it.
        use_binary_format: one Tensor in the format of Paddle's variables. A Program is
            always written as the message that .pdmodel files hold.

    Raises:
        TypeError: obj holds something else; the message says where.
        OSError: the file cannot be written.
    """
    _check_protocol(protocol, configs)
    if isinstance(obj, _core.Program):
        return _save_bytes(_core.serialize_program(obj), path)
    if configs.get("use_binary_format", False):
        return _save_bytes(_tensor_bytes(obj), path)
    if hasattr(path, "write"):
        chunks = []
        container.write(obj, lambda data: chunks.append(bytes(memoryview(data))))
        path.write(b"".join(chunks))
        return
    name = _file_name(path)
    if not os.path.basename(name):
        raise ValueError(
            f"paddle.save: path should be folder/file, but '{path}' names no file"
        )
    with open_whole(name) as file:
        container.write(obj, file.append)


def _save_bytes(content, path):
    """Writes bytes as they are."""
    if hasattr(path, "write"):
        path.write(content)
        return
    with open_whole(_file_name(path)) as file:
        file.append(content)


def _tensor_bytes(obj):
    """One tensor in Paddle's binary format."""
    if hasattr(obj, "get_tensor"):
        obj = obj.get_tensor()
    if not isinstance(obj, _core.Tensor):
        if not hasattr(obj, "__array__"):
            raise TypeError(
                "paddle.save: use_binary_format is for one Tensor, but got "
                f"{type(obj).__name__}"
            )
        obj = _core.from_object(np.asarray(obj))
    return _core.serialize_tensors(["tensor"], [obj])


def _check_protocol(protocol, configs):
    for key in configs:
        if key not in ("use_binary_format", "pickle_protocol"):
            raise TypeError(f"paddle.save() got an unexpected argument '{key}'")
    if configs.get("pickle_protocol") is not None:
        protocol = configs["pickle_protocol"]
    if type(protocol) is not int:
        raise ValueError(
            f"paddle.save: protocol should be an int, but is a {type(protocol).__name__}"
        )
    if not 2 <= protocol <= 4:
        raise ValueError(
            f"paddle.save: protocol should be 2, 3 or 4, but is {protocol}"
        )


def _file_name(path):
    try:
        return os.fspath(path)
    except TypeError:
        raise TypeError(
            f"a path should be a file name or a BytesIO, but is a {type(path).__name__}"
        ) from None


# -- load


def load(path, **configs):
    """What was saved to `path`.

    Args:
        path: a file name or a `BytesIO` (from its position on), written by
            `paddle.save` of this package or of Paddle 2.x.
        return_numpy: numpy arrays in place of Tensors. False by default.
        keep_name_table: keep the table of parameter names that files of Paddle 2.x
            carry. False by default.

    Returns:
        The object, with Tensors on the current device.

    Raises:
        FileNotFoundError: there is no such file.
        DataLossError: the file is damaged.
        ValueError: the file is of another kind, or asks for objects other than
            tensors, arrays and plain containers.
    """
    for key in configs:
        if key not in (
            "return_numpy",
            "keep_name_table",
            "model_filename",
            "params_filename",
        ):
            raise TypeError(f"paddle.load() got an unexpected argument '{key}'")
    return_numpy = bool(configs.get("return_numpy", False))
    keep_names = bool(configs.get("keep_name_table", False))
    make_tensor = _keep_array if return_numpy else _make_tensor
    if hasattr(path, "read"):
        return _load_buffer(path, make_tensor, keep_names)
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        return _explain(path, lambda: _load_file(file, size, make_tensor, keep_names))


def _open(path):
    name = _file_name(path)
    try:
        file = open(name, "rb", buffering=0)
    except FileNotFoundError as error:
        others = [
            name + suffix
            for suffix in (".pdparams", ".pdopt")
            if isinstance(name, str) and os.path.exists(name + suffix)
        ]
        if others:
            error.strerror += f" (there is {' and '.join(others)})"
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"paddle.load: {path} is not a plain file")
    return file


def _explain(path, read):
    """Adds to an error which file it was about."""
    try:
        return read()
    except DataLossError as error:
        raise DataLossError(f"paddle.load: {path} is damaged: {error}") from None
    except ValueError as error:
        raise ValueError(f"paddle.load: cannot read {path}: {error}") from None


def _load_file(file, size, make_tensor, keep_names):
    def read_at(offset, count):
        # As an array and not as bytes: the memory is not cleared first, and a
        # loaded array can be written to.
        data = np.empty(count, dtype=np.uint8)
        view = memoryview(data)
        file.seek(offset)
        done = 0
        while done < count:
            read = file.readinto(view[done:])
            if not read:
                raise DataLossError("it is cut off")
            done += read
        return data

    magic = bytes(read_at(0, min(size, len(container.MAGIC))))
    if magic == container.MAGIC:
        return container.read_file(file, size, make_tensor)
    if magic[:1] in (b"\x00", b"\x0a"):
        return _load_binary(bytes(read_at(0, size)), make_tensor)
    _check_is_pickle(magic)
    data = read_at(0, size)
    state_file.check(data)
    return _load_pickle(data, make_tensor, keep_names)[0]


def _load_binary(data, make_tensor):
    """One tensor in Paddle's binary format, or a program."""
    if data[0] == 0:
        tensor = _core.parse_tensors(data, ["tensor"], "paddle.load")[0]
        return tensor if make_tensor is _make_tensor else tensor.numpy()
    from ..static.program import Program

    return Program.parse_from_string(data)


def _load_buffer(file, make_tensor, keep_names):
    start = file.tell()
    data = file.read()

    def read():
        if data.startswith(container.MAGIC):
            return container.read(data, make_tensor)
        _check_is_pickle(data[: len(container.MAGIC)])
        return _load_pickle(data, make_tensor, keep_names)

    value, size = _explain("the buffer", read)
    file.seek(start + size)
    return value


def _check_is_pickle(magic):
    if len(magic) == 0:
        raise DataLossError("it is empty")
    if magic[0] != 0x80:
        raise ValueError("it was not written by paddle.save")


def _keep_array(array, dtype=None, name=None):
    return array


def _make_tensor(array, dtype=None, name=None):
    # numpy has no bfloat16; Paddle stores its bits as uint16.
    if array.dtype == np.uint16:
        tensor = _core.bfloat16_from_bits(array)
    else:
        tensor = _core.from_object(array)
    if name is not None:
        tensor.name = name
    return tensor


# -- what Paddle 2.x wrote


def _load_pickle(data, make_tensor, keep_names):
    value, size = pickle_reader.read(data)
    seen_tensor = False

    def note_tensor(saved):
        nonlocal seen_tensor
        seen_tensor = True
        return saved

    value = pickle_reader.convert(value, note_tensor, lambda array: array)
    if isinstance(value, dict):
        value = _join_slices(value)
        if _NAME_TABLE in value:
            seen_tensor = True
            value = _name_tensors(value, keep_names)

    def from_saved(saved):
        return make_tensor(saved.array, name=saved.name)

    def from_array(array):
        # Files of 2.0 hold tensors as bare arrays, so without any tensor in the
        # file the arrays are meant.
        if seen_tensor or array.dtype not in _TENSOR_ARRAYS:
            return array
        return make_tensor(array)

    return pickle_reader.convert(value, from_saved, from_array), size


def _join_slices(value):
    """Protocols 2 and 3 hold an array of more than 1 GiB in slices."""
    table = value.pop(_SLICE_TABLE, None)
    if table is None:
        return value
    try:
        for key, entry in table.items():
            parts = [value.pop(name) for name in entry["slices"]]
            value[key] = np.concatenate(parts).reshape(entry["OriginShape"])
    except (AttributeError, KeyError, TypeError, ValueError, np.exceptions.AxisError):
        raise DataLossError("its table of slices makes no sense") from None
    return value


def _name_tensors(value, keep_names):
    """A state dict whose tensors are arrays, beside a table of their names."""
    table = value[_NAME_TABLE] if keep_names else value.pop(_NAME_TABLE)
    if not isinstance(table, dict):
        raise DataLossError("its table of names makes no sense")
    for key, name in table.items():
        array = value.get(key)
        if isinstance(array, np.ndarray) and array.dtype in _TENSOR_ARRAYS:
            name = name if isinstance(name, str) else None
            value[key] = pickle_reader.SavedTensor(array, name)
    return value


# -- paddle.framework.load


def load_state(path, **configs):
    """`paddle.framework.load`: as `paddle.load`, with one old habit.

    For an optimizer's state in a file without suffix it returns the pair
    `(None, state)`, parameters and optimizer, as an early 2.0 did.
    """
    value = load(path, **configs)
    if hasattr(path, "read"):
        return value
    suffix = os.path.splitext(os.fsdecode(_file_name(path)))[1]
    if suffix == "" and _is_optimizer_state(value):
        return None, value
    return value


def _is_optimizer_state(value):
    """A fresh optimizer has an empty state."""
    if not isinstance(value, dict):
        return False
    return not value or any(
        key in _OPTIMIZER_WORDS or _ACCUMULATOR.search(key)
        for key in value
        if isinstance(key, str)
    )
