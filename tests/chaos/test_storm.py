# SPDX-License-Identifier: Apache-2.0
"""Servers and workers are killed, stopped and cut off in the middle of pushes; nothing
that was acknowledged is lost, and pulls read what docs/modes.md allows."""

import pytest

from tests.chaos.run import SETS, storm


@pytest.mark.parametrize("durability", ["log", "log-sync"])
@pytest.mark.parametrize("sync, kinds", SETS)
def test_what_was_acknowledged_is_there_once(durability, sync, kinds):
    code, text = storm(7, kinds, durability=durability, sync=int(sync), events=10)
    assert code == 0, text
    assert " 0 lost, 0 applied twice" in text
    assert " 0 pulls checked" not in text


def test_the_driver_sees_what_is_lost():
    """Without a log a killed server forgets, and workers are told."""
    code, text = storm(7, durability="none", events=3)
    assert code == 1
    assert "it was started anew" in text or "has lost" in text
