# SPDX-License-Identifier: Apache-2.0
"""Programs that C++ builds, too: the recorded text is what Python prints."""

import pytest
from built_programs import PROGRAMS, RECORDED, text_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_recorded_program_is_what_is_built(name):
    recorded = (RECORDED / f"{name}.txt").read_text(encoding="utf8")
    assert text_of(PROGRAMS[name]) == recorded, "python built_programs.py records it"


def test_every_recorded_program_is_built():
    assert {path.stem for path in RECORDED.glob("*.txt")} == set(PROGRAMS)
