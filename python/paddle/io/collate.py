# SPDX-License-Identifier: Apache-2.0
"""How the samples of a batch become the batch."""

import numbers
from collections.abc import Mapping, Sequence

import numpy as np

from . import _tensors


def default_collate_fn(batch):
    """Stacks a list of samples field by field.

    Arrays, tensors and numbers are stacked along a new first axis; strings and
    bytes stay lists; the fields of lists, tuples and mappings are collated one
    by one. Python ints become int64, Python floats the default dtype. Raises
    ValueError naming the field where samples differ in shape or in fields.
    """
    return collate(batch, np.empty)


def default_convert_fn(batch):
    """A sample that is a batch already: containers rebuilt, nothing stacked."""
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return {key: default_convert_fn(value) for key, value in batch.items()}
    if isinstance(batch, Sequence):
        return [default_convert_fn(value) for value in batch]
    return batch


def collate(batch, empty, field=""):
    """`default_collate_fn` into memory that `empty(shape, dtype)` provides.

    `field` is the path of `batch` within the sample, for messages.
    """
    sample = batch[0]
    if isinstance(sample, np.ndarray):
        return _stack(batch, empty, field)
    if isinstance(sample, numbers.Number):
        return _stack_numbers(batch, field)
    if isinstance(sample, (str, bytes)):
        return list(batch)
    if _tensors.is_tensor(sample):
        arrays = [_tensors.to_numpy(value) for value in batch]
        return _tensors.adopt(_stack(arrays, empty, field))
    if isinstance(sample, Mapping):
        return {
            key: collate(_values(batch, key, field), empty, f"{field}[{key!r}]")
            for key in sample
        }
    if isinstance(sample, Sequence):
        lengths = [len(value) for value in batch]
        if len(set(lengths)) != 1:
            other = next(i for i, n in enumerate(lengths) if n != lengths[0])
            raise ValueError(
                f"default_collate_fn: {_where(field)} has {lengths[0]} fields in "
                f"sample 0 of the batch and {lengths[other]} in sample {other}"
            )
        return [
            collate(values, empty, f"{field}[{i}]")
            for i, values in enumerate(zip(*batch))
        ]
    raise TypeError(
        f"default_collate_fn: {_where(field)} is a {type(sample).__name__}; a "
        "sample holds arrays, tensors, numbers, strings, lists, tuples and dicts. "
        "Give the DataLoader a collate_fn for anything else"
    )


def _stack(batch, empty, field):
    first = batch[0]
    shape, dtype = first.shape, first.dtype
    same_dtype = True
    for i, array in enumerate(batch):
        if not isinstance(array, np.ndarray):
            raise TypeError(
                f"default_collate_fn: {_where(field)} is an array in sample 0 of "
                f"the batch and a {type(array).__name__} in sample {i}"
            )
        if array.shape != shape:
            raise ValueError(
                f"default_collate_fn: {_where(field)} has shape {list(shape)} in "
                f"sample 0 of the batch and {list(array.shape)} in sample {i}; "
                "bring the samples to one shape, or give the DataLoader a "
                "collate_fn"
            )
        same_dtype = same_dtype and array.dtype == dtype
    if not same_dtype:
        dtype = np.result_type(*batch)
    if dtype.kind not in _tensors.NUMERIC_KINDS:
        return np.stack(batch)
    out = empty((len(batch), *shape), dtype.newbyteorder("="))
    for i, array in enumerate(batch):
        out[i] = array
    return out


def _stack_numbers(batch, field):
    out = np.array(batch)
    if out.shape != (len(batch),) or out.dtype.kind not in _tensors.NUMERIC_KINDS:
        raise TypeError(
            f"default_collate_fn: {_where(field)} is a number in sample 0 of the "
            f"batch, but the {len(batch)} samples together are "
            f"{out.dtype}{list(out.shape)}"
        )
    if out.dtype == np.float64 and all(type(v) in (float, int) for v in batch):
        return out.astype(_tensors.default_float())
    return out


def _values(batch, key, field):
    try:
        return [sample[key] for sample in batch]
    except KeyError:
        other = next(i for i, sample in enumerate(batch) if key not in sample)
        raise ValueError(
            f"default_collate_fn: {_where(field)} has the key {key!r} in sample 0 "
            f"of the batch, but not in sample {other}"
        ) from None


def _where(field):
    return f"field {field}" if field else "the sample"
