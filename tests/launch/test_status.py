# SPDX-License-Identifier: Apache-2.0
"""Of ranks in C++ whose main returns a failed status, the one that failed by itself is
shown first, with its message."""

import re

import pytest

from tests.launch.launcher import FLEETRUN

PROGRAM = FLEETRUN.resolve().parent / "status_rank"


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_the_rank_that_failed_by_itself_is_shown_first(launcher, culprit):
    done = launcher.run("--nproc_per_node=3", str(PROGRAM), str(culprit))
    assert done.returncode == 1, done.stderr
    shown = re.findall(r"^fleetrun: rank (\d) at .* failed: ", done.stderr, re.M)
    assert shown[0] == str(culprit), done.stderr
    first = done.stderr[done.stderr.index("failed: ") :].partition("\nfleetrun: ")[0]
    assert f"rank {culprit} is too warm" in first, done.stderr
    launcher.assert_nothing_left()
