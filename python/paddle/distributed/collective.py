# SPDX-License-Identifier: Apache-2.0
"""Collectives: every rank of a group makes the same calls in the same order.

A group is None or 0 for all ranks, or what new_group returned; ranks outside of it
return at once. Ranks in arguments (src, dst) are those of the whole job. With
sync_op=False, or use_calc_stream=False as older versions spell it, a call returns a
task at once, and its wait() returns when the tensors may be used. In a job of one
process, and outside of jobs, all of these are identities.
"""

import datetime

from .. import _core, _names
from .._core import Group, Tensor, Variable
from ..tensor.creation import empty_like, zeros
from ..tensor.manipulation import concat
from . import in_programs
from .point_to_point import put_off, run_put_off


class ReduceOp:
    """How the tensors of all ranks are combined."""

    SUM = 0
    MAX = 1
    MIN = 2
    PROD = 3
    AVG = 4


# ---- groups

_LONGEST_TIMEOUT = 10**8  # three years


def new_group(ranks=None, backend=None, timeout=None):
    """A group of some ranks of the job, by default of all.

    Every rank of the job calls it with the same list; a rank's position in the list
    is its rank in the group. A call on the group that waits for late ranks longer than
    `timeout`, a datetime.timedelta or seconds, fails; by default FLEET_TIMEOUT counts.
    `backend` has no effect: FLEET_COMM chooses what moves the bytes.
    """
    if isinstance(timeout, datetime.timedelta):
        timeout = timeout.total_seconds()
    if timeout is not None and not 0 < timeout <= _LONGEST_TIMEOUT:
        raise ValueError(
            f"new_group: timeout must be more than 0 and at most {_LONGEST_TIMEOUT} "
            f"seconds, but is {timeout}"
        )
    ranks = None if ranks is None else [int(r) for r in ranks]
    return _core.new_group(ranks, timeout)


def get_group(id=0):
    """The group with that number; 0 is the one of all ranks."""
    return _core.get_group(id)


def get_backend(group=None):
    """What moves the bytes of `group`, such as "shared memory"."""
    return _core.get_group(group).backend


# ---- tensors


def all_reduce(tensor, op=ReduceOp.SUM, group=None, sync_op=True, use_calc_stream=True):
    """Combines the tensors of all ranks, in place and on every rank."""
    if isinstance(tensor, Variable):
        return in_programs.all_reduce(tensor, op, group)
    if put_off:
        run_put_off()
    return _core.all_reduce(tensor, op, group, sync_op and use_calc_stream)


def broadcast(tensor, src, group=None, sync_op=True, use_calc_stream=True):
    """Overwrites `tensor` with that of rank `src`."""
    if isinstance(tensor, Variable):
        return in_programs.broadcast(tensor, src, group)
    if put_off:
        run_put_off()
    return _core.broadcast(tensor, src, group, sync_op and use_calc_stream)


def reduce(
    tensor, dst, op=ReduceOp.SUM, group=None, sync_op=True, use_calc_stream=True
):
    """Combines the tensors of all ranks in that of rank `dst`."""
    if put_off:
        run_put_off()
    return _core.reduce(tensor, dst, op, group, sync_op and use_calc_stream)


def all_gather(tensor_list, tensor, group=None, sync_op=True, use_calc_stream=True):
    """Puts the tensors of all ranks into `tensor_list`, in the order of ranks.

    The list is empty, or has one tensor for each rank to be overwritten.
    """
    if isinstance(tensor, Variable):
        return in_programs.all_gather(tensor_list, tensor, group)
    group = _enter(group)
    if group.rank < 0:
        return None
    sync = sync_op and use_calc_stream
    targets = _targets("all_gather", tensor_list, tensor, group, sync)
    return _put(tensor_list, _core.all_gather(tensor, targets, group, sync))


def gather(tensor, gather_list=None, dst=0, group=None, sync_op=True):
    """Puts the tensors of all ranks into the `gather_list` of rank `dst`."""
    group = _enter(group)
    if group.rank < 0:
        return None
    if group.get_group_rank(dst) != group.rank:
        return _core.gather(tensor, [], dst, group, sync_op)
    targets = _targets("gather", gather_list, tensor, group, sync_op)
    return _put(gather_list, _core.gather(tensor, targets, dst, group, sync_op))


def scatter(
    tensor, tensor_list=None, src=0, group=None, sync_op=True, use_calc_stream=True
):
    """Overwrites `tensor` with this rank's part of the `tensor_list` of rank `src`."""
    group = _enter(group)
    if group.rank < 0:
        return None
    parts = []
    if group.get_group_rank(src) == group.rank:
        parts = _parts("scatter", tensor_list, group)
    return _core.scatter(tensor, parts, src, group, sync_op and use_calc_stream)


def reduce_scatter(
    tensor,
    tensor_list,
    op=ReduceOp.SUM,
    group=None,
    sync_op=True,
    use_calc_stream=True,
):
    """Overwrites `tensor` with this rank's part of the combined lists of all ranks."""
    group = _enter(group)
    if group.rank < 0:
        return None
    parts = _parts("reduce_scatter", tensor_list, group)
    sync = sync_op and use_calc_stream
    return _core.reduce_scatter(tensor, parts, op, group, sync)


def alltoall(
    in_tensor_list, out_tensor_list, group=None, sync_op=True, use_calc_stream=True
):
    """Sends in_tensor_list[i] to rank i, and puts what rank i sent here into place i
    of `out_tensor_list`, which is empty or has tensors to be overwritten."""
    group = _enter(group)
    if group.rank < 0:
        return None
    sync = sync_op and use_calc_stream
    if isinstance(in_tensor_list, Tensor) and isinstance(out_tensor_list, Tensor):
        return _core.alltoall_single(out_tensor_list, in_tensor_list, group, sync)
    parts = _parts("alltoall", in_tensor_list, group)
    targets = _targets("alltoall", out_tensor_list, parts[0], group, sync)
    return _put(out_tensor_list, _core.alltoall(parts, targets, group, sync))


def alltoall_single(
    in_tensor,
    out_tensor,
    in_split_sizes=None,
    out_split_sizes=None,
    group=None,
    sync_op=True,
    use_calc_stream=True,
):
    """As alltoall, with the parts as rows of one tensor each: equal ones, or as many
    as the split sizes say. With split sizes all ranks give some, and the call waits."""
    group = _enter(group)
    if group.rank < 0:
        return None
    sync = sync_op and use_calc_stream
    if in_split_sizes is None and out_split_sizes is None:
        return _core.alltoall_single(out_tensor, in_tensor, group, sync)
    n = group.nranks
    in_sizes = in_split_sizes or [in_tensor.shape[0] // n] * n
    out_sizes = out_split_sizes or [out_tensor.shape[0] // n] * n
    if sum(in_sizes) != in_tensor.shape[0] or sum(out_sizes) != out_tensor.shape[0]:
        raise ValueError(
            f"alltoall_single: in_split_sizes {in_sizes} of {in_tensor.shape[0]} rows, "
            f"out_split_sizes {out_sizes} of {out_tensor.shape[0]}"
        )
    # What travels are equal parts, so all are as long as the longest.
    longest = max(_gather_objects(max(in_sizes), group))
    sent, start = [], 0
    for size in in_sizes:
        part = zeros([longest, *in_tensor.shape[1:]], in_tensor.dtype)
        if size:
            part[:size] = in_tensor[start : start + size]
        sent.append(part)
        start += size
    came = _core.alltoall(sent, None, group, True)
    rows = [part[:size] for part, size in zip(came, out_sizes) if size]
    if rows:
        out_tensor.set_value(concat(rows))
    return None


def barrier(group=None):
    """Waits until all ranks are here."""
    if put_off:
        run_put_off()
    _core.barrier(group)


def wait(tensor, group=None, use_calc_stream=True):
    """Waits for what was started without waiting in `group`."""
    if put_off:
        run_put_off()
    _core.wait_started(group)


# ---- objects


def all_gather_object(object_list, obj, group=None):
    """Puts the objects of all ranks into `object_list`: plain values, arrays and
    Tensors, in lists, tuples, dicts and sets."""
    group = _enter(group)
    if group.rank < 0:
        return
    _require_list("all_gather_object", "object_list", object_list)
    object_list[:] = _gather_objects(obj, group)


def broadcast_object_list(object_list, src, group=None):
    """Overwrites `object_list` with that of rank `src`."""
    group = _enter(group)
    if group.rank < 0:
        return
    _require_list("broadcast_object_list", "object_list", object_list)
    mine = b""
    if group.get_group_rank(src) == group.rank:
        mine = _encode(object_list)
    objects = _decode(_core.broadcast_bytes(mine, src, group), src)
    _require_list("broadcast_object_list", f"the object of rank {src}", objects)
    object_list[:] = objects


def scatter_object_list(out_object_list, in_object_list=None, src=0, group=None):
    """Puts this rank's one of the objects of rank `src` into `out_object_list`."""
    group = _enter(group)
    if group.rank < 0:
        return
    _require_list("scatter_object_list", "out_object_list", out_object_list)
    mine = b""
    if group.get_group_rank(src) == group.rank:
        _require_list("scatter_object_list", "in_object_list", in_object_list)
        if len(in_object_list) != group.nranks:
            raise ValueError(
                f"scatter_object_list: {len(in_object_list)} objects for "
                f"{group.nranks} ranks"
            )
        mine = _encode([_encode(obj) for obj in in_object_list])
    parts = _decode(_core.broadcast_bytes(mine, src, group), src)
    if type(parts) is not list or list(map(type, parts)) != [bytes] * group.nranks:
        raise _core.DataLossError(
            f"scatter_object_list: rank {src} did not send an object for each rank"
        )
    out_object_list[:] = [_decode(parts[group.rank], src)]


def _gather_objects(obj, group):
    parts = _core.all_gather_bytes(_encode(obj), group)
    return [_decode(part, group.ranks[i]) for i, part in enumerate(parts)]


# Most programs exchange no objects, and start faster without numpy.


def _encode(obj):
    from . import object_bytes

    return object_bytes.encode(obj)


def _decode(data, rank):
    from . import object_bytes

    return object_bytes.decode(data, f"the object of rank {rank}")


# ---- parts of a model


def split(
    x,
    size,
    operation,
    axis=0,
    num_partitions=1,
    gather_out=True,
    weight_attr=None,
    bias_attr=None,
    name=None,
):
    """A linear layer or embedding whose weight is spread over ranks. Not built."""
    raise NotImplementedError(
        f"paddle.distributed.split: {operation!r} over {num_partitions} ranks belongs "
        "to tensor parallel training, which this version of paddle does not have yet"
    )


# ---- inside


def _enter(group):
    """The group, once messages that were put off have had their turn."""
    if put_off:
        run_put_off()
    return _core.get_group(group)


def _targets(call, tensors, like, group, sync):
    """The tensors that the results of a call go into: those of the list, or new ones
    where it returns before it is done; None for results as they come."""
    _require_list(call, "the list for the results", tensors)
    if not tensors:
        if sync:
            return None
        tensors.extend(empty_like(like) for _ in range(group.nranks))
        return tensors
    if len(tensors) != group.nranks:
        raise ValueError(
            f"{call}: the list for the results must be empty or have one tensor for "
            f"each of {group.nranks} ranks, but has {len(tensors)}"
        )
    for tensor in tensors:
        if tensor.dtype != like.dtype or tensor.shape != like.shape:
            raise ValueError(
                f"{call}: the results are {like.dtype.name}{like.shape}, but the list "
                f"has a {tensor.dtype.name}{tensor.shape}"
            )
    return tensors


def _put(tensors, result):
    """Adds results to an empty list; passes a task on."""
    if isinstance(result, list):
        tensors.extend(result)
        return None
    return result


def _parts(call, tensors, group):
    """One tensor for each rank, from a list or from the rows of a tensor."""
    if isinstance(tensors, Tensor):
        rows = tensors.shape[0] // group.nranks
        if rows * group.nranks != tensors.shape[0]:
            raise ValueError(
                f"{call}: shape {tensors.shape} cannot be cut into {group.nranks} "
                "equal parts"
            )
        return [tensors[i * rows : (i + 1) * rows] for i in range(group.nranks)]
    _require_list(call, "tensor_list", tensors)
    if len(tensors) != group.nranks:
        raise ValueError(
            f"{call}: needs one tensor for each of {group.nranks} ranks, but the list "
            f"has {len(tensors)}"
        )
    return tensors


def _require_list(call, name, value):
    if not isinstance(value, list):
        raise TypeError(f"{call}: {name} must be a list, not {type(value).__name__}")


__all__ = [*_names.own(globals()), "Group"]
