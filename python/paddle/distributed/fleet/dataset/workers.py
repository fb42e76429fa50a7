# SPDX-License-Identifier: Apache-2.0
"""The workers of a job as a group that moves samples."""

from .... import _core

__all__ = ["group_of_workers", "sum_over_workers"]

# Workers of a job with servers meet once, where the first of them listens.
_met = None


def group_of_workers(fleet):
    """The group of all workers of the job that `fleet` is in; None when there is one
    only."""
    if fleet is None:
        return None
    role = _maker_of(fleet)._get_role()
    if role.worker_num < 2:
        return None
    if role.is_collective:
        from ..base.role_maker import meet

        meet(role)
        return _core.get_group(0)
    return _meet(role)


def sum_over_workers(fleet, count):
    """The sum of what all workers of the job have as `count`."""
    maker = None if fleet is None else _maker_of(fleet)
    if maker is None or maker._worker_num() < 2:
        return count
    import numpy as np

    return int(np.asarray(maker._all_reduce(np.array([count]), "sum")).item())


def _maker_of(fleet):
    maker = getattr(fleet, "_role_maker", None)
    if maker is None:
        maker = getattr(getattr(fleet, "fleet", None), "_role_maker", None)
    if maker is None:
        raise RuntimeError("dataset: the fleet has no role: call fleet.init() first")
    return maker


def _meet(role):
    global _met
    if _met is None:
        endpoints = role.worker_endpoints
        if not endpoints:
            raise RuntimeError(
                "global_shuffle: workers meet at the endpoint of the first of them, and "
                "PADDLE_TRAINER_ENDPOINTS names none (fleetrun sets it)"
            )
        _met = _core.Job.meet(role.index, role.worker_num, endpoints[0])
    return _met.group
