# SPDX-License-Identifier: Apache-2.0
"""The workers of a job as a group that moves samples."""

from .... import _core

__all__ = ["group_of_workers"]

# Workers of a job with servers meet once, where the first of them listens.
_met = None


def group_of_workers(fleet):
    """The group of all workers of the job that `fleet` is in; None when there is one
    only."""
    if fleet is None:
        return None
    role = _role_of(fleet)
    if role.worker_num < 2:
        return None
    if role.is_collective:
        from ..base.role_maker import meet

        meet(role)
        return _core.get_group(0)
    return _meet(role)


def _role_of(fleet):
    maker = getattr(fleet, "_role_maker", None)
    if maker is None:
        maker = getattr(getattr(fleet, "fleet", None), "_role_maker", None)
    if maker is None:
        raise RuntimeError("global_shuffle: the fleet has no role: call init() first")
    return maker._get_role()


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
