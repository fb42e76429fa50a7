# SPDX-License-Identifier: Apache-2.0
"""Collectives as operations of programs: what paddle.distributed's functions do when
they are given a Variable."""

from ..utils import unique_name

_REDUCTIONS = ("sum", "max", "min", "prod")


def _ring(group):
    return {"ring_id": 0 if group is None else getattr(group, "id", group)}


def all_reduce(variable, op, group):
    """Appends the combination over all ranks, in place."""
    if not 0 <= op < len(_REDUCTIONS):
        raise NotImplementedError(
            "all_reduce in a program takes ReduceOp.SUM, MAX, MIN and PROD"
        )
    kind = f"c_allreduce_{_REDUCTIONS[op]}"
    attrs = {**_ring(group), "use_calc_stream": True}
    variable.block.append_op(kind, {"X": variable}, {"Out": variable}, attrs)


def broadcast(variable, src, group):
    """Appends the copy of what rank `src` has, in place."""
    from .collective import get_group

    root = src if group is None else get_group(group).get_group_rank(src)
    attrs = {**_ring(group), "use_calc_stream": True, "root": root}
    variable.block.append_op("c_broadcast", {"X": variable}, {"Out": variable}, attrs)


def all_gather(variables, variable, group):
    """Appends the parts of all ranks to the list `variables`, as new variables."""
    from ..tensor.manipulation import split
    from .collective import get_group

    num_ranks = get_group(0 if group is None else group).nranks
    shape = list(variable.shape)
    if shape[0] > 0:
        shape[0] *= num_ranks
    block = variable.block
    name = unique_name.generate("all_gather.tmp")
    joined = block.create_var(name=name, shape=shape, dtype=variable.dtype)
    attrs = {**_ring(group), "use_calc_stream": True, "nranks": num_ranks}
    block.append_op("c_allgather", {"X": variable}, {"Out": joined}, attrs)
    variables.extend(split(joined, num_ranks, 0) if num_ranks > 1 else [joined])
