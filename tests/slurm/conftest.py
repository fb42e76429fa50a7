# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.slurm.cluster import missing, wanted


def pytest_terminal_summary(terminalreporter):
    if not wanted():
        terminalreporter.line(f"tests/slurm: not run here: {missing()}")
    else:
        terminalreporter.line("tests/slurm: on a cluster of this machine")


def pytest_sessionfinish(session, exitstatus):
    # Nothing to collect is not a failure where a line says why.
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not wanted():
        session.exitstatus = pytest.ExitCode.OK
