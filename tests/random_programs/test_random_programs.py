# SPDX-License-Identifier: Apache-2.0
"""200 models by number: no mode of training disagrees with another."""

import definitions
import local
import pytest

FIRST, COUNT, PARTS = 1, 200, 10


def test_every_definition_has_a_recipe_or_a_reason():
    assert definitions.missing() == ([], [])


@pytest.mark.parametrize("part", range(PARTS))
def test_modes_of_one_process_agree(part):
    size = COUNT // PARTS
    numbers = range(FIRST + part * size, FIRST + (part + 1) * size)
    findings = []
    for number, result in local.examine_all(numbers):
        if result.failures:
            findings.append(local.explain(number, result))
    assert not findings, "\n\n".join(findings)
