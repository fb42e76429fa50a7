# SPDX-License-Identifier: Apache-2.0
"""Operations that exchange values with the other ranks."""

from ...static.program import default_main_program
from ...utils import unique_name


def _append(kind, x, out, attrs, shape=None):
    block = default_main_program().current_block()
    if out is None:
        out = block.create_var(
            name=unique_name.generate(f"{unique_name.generate(kind)}.tmp"),
            shape=x.shape if shape is None else shape,
            dtype=x.dtype,
        )
    block.append_op(kind, {"X": x}, {"Out": out}, attrs)
    return out


def _c_allreduce(x, out=None, reduce_type="sum", ring_id=0, use_calc_stream=False):
    """x summed up over all ranks, or what `reduce_type` says."""
    if reduce_type not in ("sum", "prod", "max", "min"):
        raise TypeError(
            f"_c_allreduce: reduce_type must be sum, prod, max or min, not {reduce_type}"
        )
    attrs = {"ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append(f"c_allreduce_{reduce_type}", x, out, attrs)


def _c_broadcast(x, root=0, ring_id=0, use_calc_stream=False):
    """The x of rank `root`."""
    attrs = {"root": root, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _append("c_broadcast", x, x, attrs)


def _c_allgather(x, nranks, ring_id=0, use_calc_stream=False):
    """The x of all ranks, one behind the other."""
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    first = x.shape[0]
    shape = [first * nranks if first >= 0 else -1, *x.shape[1:]]
    return _append("c_allgather", x, None, attrs, shape)


def _c_reducescatter(x, nranks, ring_id=0, use_calc_stream=False):
    """This rank's part of the sum over all ranks."""
    if x.shape[0] > 0 and x.shape[0] % nranks != 0:
        raise ValueError(
            f"_c_reducescatter: {x.shape[0]} rows do not split into {nranks} parts"
        )
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    first = x.shape[0]
    shape = [first // nranks if first >= 0 else -1, *x.shape[1:]]
    return _append("c_reducescatter", x, None, attrs, shape)


def _c_sync_calc_stream(x):
    return _append("c_sync_calc_stream", x, x, {})


def _c_sync_comm_stream(x, ring_id):
    return _append("c_sync_comm_stream", x, x, {"ring_id": ring_id})
