# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.server_jobs.jobs import Job, Parts


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
