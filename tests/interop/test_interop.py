# SPDX-License-Identifier: Apache-2.0
"""Models saved here open in real Paddle, and those of real Paddle here.

    pytest tests/interop --peer-python PATH [--peer-python PATH ...]

PATH is the Python of an environment with paddlepaddle 2.6.2 or 1.8.5
(python/tests/data/saved_models/README.md says how to make them). Outputs agree to 1e-5.
What Paddle wrote earlier is loaded by python/tests, which needs no Paddle.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from tests.conftest import PEER_PYTHON

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "python"


def pytest_generate_tests(metafunc):
    metafunc.parametrize("peer", metafunc.config.getoption(PEER_PYTHON), scope="module")


def run(python, script, folder, **environment):
    """What it printed. A script prints 'ok NAME' or 'FAIL NAME: why' for each model and
    way to load it."""
    env = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYENV_VERSION")
    }
    done = subprocess.run(
        [os.path.abspath(python), HERE / script, folder],
        capture_output=True,
        text=True,
        timeout=600,
        env={**env, "GLOG_minloglevel": "2", **environment},
        cwd=tempfile.gettempdir(),
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 0 and not failed, done.stdout + done.stderr
    return done.stdout


def run_ours(script, folder):
    return run(sys.executable, script, folder, PYTHONPATH=str(PACKAGE))


@pytest.fixture(scope="module")
def saved_here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    run_ours("save_ours.py", folder)
    return folder


def test_paddle_runs_models_saved_here(peer, saved_here):
    assert "ok " in run(peer, "load_ours.py", saved_here)


def test_models_of_paddle_run_here(peer, tmp_path):
    run(peer, "make_models.py", tmp_path)
    assert "ok " in run_ours("load_theirs.py", tmp_path)
