# SPDX-License-Identifier: Apache-2.0
"""Roles, strategy, and the object that brings them together."""

from . import distributed_strategy, fleet_base, role_maker, util_factory
