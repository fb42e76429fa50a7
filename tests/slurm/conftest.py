# SPDX-License-Identifier: Apache-2.0
from cluster import missing


def pytest_terminal_summary(terminalreporter):
    if missing():
        terminalreporter.line(f"tests/slurm: not run here: {missing()}")
    else:
        terminalreporter.line("tests/slurm: on a cluster of this machine")


def pytest_sessionfinish(session, exitstatus):
    # Nothing to collect is not a failure where a line says why.
    if exitstatus == 5 and missing():
        session.exitstatus = 0
