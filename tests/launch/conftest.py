# SPDX-License-Identifier: Apache-2.0
import signal

import pytest
from launcher import Launcher

# A run under nohup would hand its ignored SIGHUP down to every launcher.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def launcher(tmp_path):
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.end()
