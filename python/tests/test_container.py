# SPDX-License-Identifier: Apache-2.0
"""Files of paddle.save as the first writer of the format made them: written again to the
byte, and read again as what was saved."""

import math
import pathlib

import numpy as np
import paddle
import pytest
from container_objects import objects

FILES = pathlib.Path(__file__).parent / "data" / "containers"
OBJECTS = objects()


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_a_file_is_written_as_it_was(tmp_path, name):
    paddle.save(OBJECTS[name], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (FILES / name).read_bytes()


def assert_same(left, right):
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert [repr(key) for key in left] == [repr(key) for key in right]
        for one, other in zip(left.values(), right.values()):
            assert_same(one, other)
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right):
            assert_same(one, other)
    elif isinstance(left, paddle.Tensor):
        assert (left.dtype, left.name) == (right.dtype, right.name)
        assert_same(left.numpy(), right.numpy())
    elif isinstance(left, (np.ndarray, np.generic)):
        assert left.dtype.newbyteorder("<") == right.dtype
        assert left.shape == right.shape
        np.testing.assert_array_equal(left, right)
    elif isinstance(left, str):
        # Two halves of a pair are one character in a file.
        one, other = (text.encode("utf-16", "surrogatepass") for text in (left, right))
        assert one == other
    elif isinstance(left, float) and math.isnan(left):
        assert math.isnan(right)
    else:
        assert left == right


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_a_file_is_read_as_what_was_saved(name):
    assert_same(OBJECTS[name], paddle.load(FILES / name))


def test_what_stood_in_several_places_is_one_again():
    value = paddle.load(FILES / "shared")
    assert value["a"] is value["b"][0] is value["b"][1][0]
    assert value["c"] is value["d"]
