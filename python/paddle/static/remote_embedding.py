# SPDX-License-Identifier: Apache-2.0
"""Embeddings whose rows may live on parameter servers.

Without servers they are embeddings like others. In a job with servers fleet.minimize
finds them by the attributes that are set here, and the worker keeps no copy of them.
"""

from .. import _ops
from .layers import _table, begin, mark_remote
from .program import layer_guard

__all__ = ["sparse_embedding"]

_TABLE_CLASSES = (
    "CommonSparseTable",
    "MemorySparseTable",
    "SSDSparseTable",
    "MemorySparseGeoTable",
    "SparseGeoTable",
)


def padding_of(padding_idx, size):
    """The id that reads as zeros; -1 for none. Negative ones count from the end."""
    if padding_idx is None:
        return -1
    return padding_idx if padding_idx >= 0 else size[0] + padding_idx


def look_up(ids, weight, padding_idx, is_sparse):
    """The rows that `ids` names. A last dimension of one, as Paddle 1.x has it, is
    where the row goes."""
    shape = ids.shape
    old = len(shape) > 1 and shape[-1] == 1
    op = _ops.lookup_table if old else _ops.lookup_table_v2
    return op(weight, ids, padding_idx, is_sparse)


def sparse_embedding(
    input,
    size,
    padding_idx=None,
    is_test=False,
    entry=None,
    table_class="MemorySparseTable",
    param_attr=None,
    dtype="float32",
    slot=None,
    time_to_live=None,
):
    """The rows that `input` names, of a table that grows with the keys it meets.

    In a job with servers the table is theirs: keys are any 64-bit numbers, and size[0]
    says nothing. Alone, it is a parameter of that shape.

    Args:
        input: ids, int64; their last dimension may be 1 and is then replaced.
        size: [number of rows, their length].
        padding_idx: gives zeros and gets no gradient.
        is_test: asking for a key makes no row.
        entry: which keys get a row; see paddle.distributed.CountFilterEntry.
        table_class: "SSDSparseTable" keeps what does not fit into memory on the
            servers' disks, in the folder that FLEET_PS_DISK names.
        slot: has no effect: rows of all slots are alike.
        time_to_live: seconds. Servers erase rows that training did not ask for or
            update for so long, while it went on; a key that comes again gets a new
            row. None: rows stay. Without servers it says nothing.
    """
    from ..distributed.entry_attr import EntryAttr  # here: it brings collectives

    if entry is not None and not isinstance(entry, EntryAttr):
        raise ValueError(
            "entry must be instance in [paddle.distributed.ProbabilityEntry, "
            "paddle.distributed.CountFilterEntry, paddle.distributed.ShowClickEntry], "
            f"but is a {type(entry).__name__}"
        )
    if table_class not in _TABLE_CLASSES:
        raise ValueError(
            f"table_class must be in {list(_TABLE_CLASSES)}, but is {table_class!r}"
        )
    attributes = {} if time_to_live is None else _time_to_live(time_to_live)
    layer = begin("sparse_embedding", "sparse_embedding")
    with layer_guard(layer):
        weight = _table(layer, size, param_attr, dtype)
        rows = look_up(input, weight, padding_of(padding_idx, size), True)
    mark_remote(
        is_test=bool(is_test),
        entry="none" if entry is None else entry._to_attr(),
        table_class=table_class,
        **attributes,
    )
    return rows


def _time_to_live(seconds):
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise TypeError(
            "sparse_embedding(): time_to_live must be a whole number of seconds, but is "
            f"{seconds!r}"
        )
    if seconds <= 0:
        raise ValueError(
            f"sparse_embedding(): time_to_live is {seconds}, which should be above 0; "
            "leave it out where rows shall stay"
        )
    return {"time_to_live": seconds}
