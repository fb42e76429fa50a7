# SPDX-License-Identifier: Apache-2.0
"""Runs cases.py as the workers and servers of a job under fleetrun, or as one process
alone."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLEETRUN = Path(sys.executable).parent / "fleetrun"
# Whatever launched the tests speaks of no worker of theirs.
_LAUNCHERS = ("PADDLE_", "FLEET_", "FLAGS_", "OMPI_", "PMI_", "SLURM_")


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    return {
        **env,
        "PYTHONPATH": str(HERE.parent.parent / "python"),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "FLEET_TIMEOUT": "60",
        "FLEET_START_TIMEOUT": "60",
        **extra,
    }


class Job:
    """Workers and servers that run a case; `folder` holds their logs."""

    def __init__(self, folder, workers=2, servers=2, **env):
        self._logs = Path(folder, f"log-{len(list(Path(folder).glob('log-*')))}")
        self._command = [
            FLEETRUN,
            f"--worker_num={workers}",
            f"--server_num={servers}",
            f"--log_dir={self._logs}",
        ]
        self._env = environment(**env)

    def _finish(self, case, arguments):
        done = subprocess.run(
            [*self._command, HERE / "cases.py", case, *map(str, arguments)],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=150,
        )
        return done.returncode, done.stdout

    def log(self, name="*log*"):
        """All that the processes of that name wrote."""
        files = sorted(self._logs.glob(name))
        return "".join(f"--- {f.name}:\n{f.read_text(errors='replace')}" for f in files)

    def run(self, case, *arguments):
        """The job must end well."""
        code, out = self._finish(case, arguments)
        assert code == 0, out + self.log()
        return self

    def fails(self, case, *arguments):
        """The job must fail."""
        code, out = self._finish(case, arguments)
        assert code != 0, out + self.log()
        return self


def run_alone(case, *arguments):
    """Runs the script without a launcher; returns what it printed."""
    done = subprocess.run(
        [sys.executable, HERE / "cases.py", case, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
