# SPDX-License-Identifier: Apache-2.0
"""Rows that belong to sequences of different lengths."""

import numpy as np

from ..static.executor import LoDTensor


def create_lod_tensor(data, recursive_seq_lens, place):
    """A LoDTensor of `data`, cut into sequences of these lengths: [[2, 3]].

    data: an array whose rows are in order, another LoDTensor, or a list with a list of
        numbers for each sequence, which gives rows of one number.
    """
    if isinstance(data, LoDTensor):
        return create_lod_tensor(np.array(data), recursive_seq_lens, place)
    if isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if recursive_seq_lens and [lengths] != [list(recursive_seq_lens[-1])]:
            raise ValueError(
                f"create_lod_tensor: the lists have lengths {lengths}, but "
                f"recursive_seq_lens says {recursive_seq_lens[-1]}"
            )
        rows = [row for sequence in data for row in sequence]
        data = np.array(rows).reshape(len(rows), -1)
        if data.dtype == np.float64:
            data = data.astype("float32")
    if not isinstance(data, np.ndarray):
        raise TypeError(
            "create_lod_tensor: data must be an array, a LoDTensor or a list, but is a "
            f"{type(data).__name__}"
        )
    tensor = LoDTensor()
    tensor.set(data, place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    if not tensor.has_valid_recursive_sequence_lengths():
        raise ValueError(
            f"create_lod_tensor: lengths {recursive_seq_lens} do not add up to "
            f"{len(data)} rows"
        )
    return tensor


def create_random_int_lodtensor(recursive_seq_lens, base_shape, place, low, high):
    """Random rows of shape `base_shape` of integers from low to high, both possible."""
    rows = sum(recursive_seq_lens[-1])
    data = np.random.randint(low, high + 1, [rows, *base_shape]).astype("int64")
    return create_lod_tensor(data, recursive_seq_lens, place)
