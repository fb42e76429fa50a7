# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

for folder in ("launch", "hosts"):  # launcher.py and hosts.py
    sys.path.append(str(pathlib.Path(__file__).parent.parent / folder))

from jobs import Job, Parts  # noqa: E402


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    made.end()


@pytest.fixture
def parts(tmp_path):
    made = []

    def make(**numbers):
        made.append(Parts(tmp_path, **numbers))
        return made[-1]

    yield make
    for each in made:
        each.end()
