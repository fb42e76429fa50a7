# SPDX-License-Identifier: Apache-2.0
"""Ports that a test names before anybody listens there."""

import socket

# Below those that Linux hands out by itself, so that nobody gets one by chance.
_FIRST, _LAST, _ROW = 21000, 29000, 10
_claims = []


def free_row(count):
    """The first of `count` <= 10 ports in a row. They are free, and other runs of tests
    on this machine do not get them before this process has ended."""
    assert count <= _ROW
    for first in range(_FIRST, _LAST, _ROW):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0fleet-test-ports-{first}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)  # a name that goes with the process
        if all(_is_free(first + i) for i in range(count)):
            return first
    raise AssertionError("no free ports")


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
