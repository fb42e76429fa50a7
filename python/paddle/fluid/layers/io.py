# SPDX-License-Identifier: Apache-2.0
"""What programs are fed, and readers that feed them."""

from ... import _names
from ...framework.mode import require_static
from ...io import DataLoader
from ...static import data as _data
from ...utils import unique_name


def data(
    name,
    shape,
    append_batch_size=True,
    dtype="float32",
    lod_level=0,
    type=None,
    stop_gradient=True,
):
    """A variable that a run is fed. `shape` is that of one sample, unless it holds -1
    or None or append_batch_size is False."""
    require_static("paddle.fluid.layers.data")
    shape = [-1 if n is None else int(n) for n in shape]
    if append_batch_size and all(n >= 0 for n in shape):
        shape = [-1, *shape]
    variable = _data(name, shape, dtype, lod_level)
    variable.stop_gradient = stop_gradient
    return variable


def _reader(capacity, feed_list, use_double_buffer):
    return DataLoader.from_generator(
        feed_list=feed_list,
        capacity=capacity,
        use_double_buffer=use_double_buffer,
        iterable=False,
    )


def py_reader(
    capacity, shapes, dtypes, lod_levels=None, name=None, use_double_buffer=True
):
    """A reader that feeds the program itself: give it a generator, start() it, and run
    without feed until EOFException. read_file() gives its variables."""
    require_static("paddle.fluid.layers.py_reader")
    levels = lod_levels or [0] * len(shapes)
    if not len(shapes) == len(dtypes) == len(levels):
        raise ValueError(
            f"py_reader: {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} "
            "lod_levels do not belong together"
        )
    prefix = name or unique_name.generate("create_py_reader")
    variables = [
        _data(f"{prefix}.slot_{i}", list(shape), dtype, level)
        for i, (shape, dtype, level) in enumerate(zip(shapes, dtypes, levels))
    ]
    return _reader(capacity, variables, use_double_buffer)


def create_py_reader_by_data(capacity, feed_list, name=None, use_double_buffer=True):
    """As py_reader, for data variables that are there."""
    require_static("paddle.fluid.layers.create_py_reader_by_data")
    return _reader(capacity, feed_list, use_double_buffer)


def double_buffer(reader, place=None, name=None):
    """The reader itself, which reads ahead anyway."""
    return reader


def read_file(reader):
    """The variables that a reader feeds: a list, or one by itself."""
    variables = reader.feed_list
    return variables[0] if len(variables) == 1 else list(variables)


__all__ = _names.gathered(globals(), hidden="DataLoader require_static")
