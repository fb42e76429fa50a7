# SPDX-License-Identifier: Apache-2.0
"""Models by number on two ranks, and with synchronous servers, against one process."""

import jobs
import pytest

FIRST, COUNT, PARTS = 1, 200, 2


@pytest.mark.parametrize("part", range(PARTS))
def test_two_ranks_agree_with_one_process(tmp_path, part):
    size = COUNT // PARTS
    numbers = range(FIRST + part * size, FIRST + (part + 1) * size)
    compared, findings = 0, []
    for line in jobs.two_ranks(tmp_path, numbers):
        compared += line.get("compared", False)
        findings += [f"model {line['number']}, {m}: {t}" for m, t in line["failures"]]
    assert not findings, "\n\n".join(findings)
    assert compared > size / 4


# The last has a table that nothing trains: it stays with the workers.
@pytest.mark.parametrize("first", [1, 102, 203, 304, 3001369])
def test_synchronous_servers_agree_with_one_process(tmp_path, first):
    (line,) = jobs.served(tmp_path, first, 6)
    assert line["failures"] == []
    assert line["notes"] == []  # it was compared
    assert "send" in line["ops"]
