# SPDX-License-Identifier: Apache-2.0
import signal

PEER_PYTHON = "--peer-python"

# A run in the background or under nohup ignores these signals, and would hand that
# down to every process that a test starts and wants to end by them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        PEER_PYTHON,
        action="append",
        default=[],
        metavar="PATH",
        help="the Python of an environment with paddlepaddle 2.6.2 or 1.8.5, for "
        "tests/interop; may be given several times",
    )
