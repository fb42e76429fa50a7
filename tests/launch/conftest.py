# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.launch.launcher import Launcher


@pytest.fixture
def launcher(tmp_path):
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.end()
