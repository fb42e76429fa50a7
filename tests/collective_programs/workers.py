# SPDX-License-Identifier: Apache-2.0
"""Runs cases.py as the workers of a job under fleetrun, or as one process alone."""

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
    package = str(HERE.parent.parent / "python")
    return {
        **env,
        "PYTHONPATH": package,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "FLEET_TIMEOUT": "60",
        **extra,
    }


def start(num_workers, logs, *arguments, **env):
    """The launcher, as a process; workers write to `logs`/workerlog.N."""
    command = [FLEETRUN, f"--nproc_per_node={num_workers}", f"--log_dir={logs}"]
    return subprocess.Popen(
        [*command, HERE / "cases.py", *map(str, arguments)],
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def log(logs, worker):
    file = Path(logs, f"workerlog.{worker}")
    return file.read_text(errors="replace") if file.exists() else ""


def finish(process, timeout=120):
    """(exit status, output); kills the launcher when it takes longer."""
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        raise AssertionError(f"still running after {timeout} s:\n{out}") from None
    return process.returncode, out


def run(num_workers, logs, *arguments, **env):
    """A job that must end well."""
    code, out = finish(start(num_workers, logs, *arguments, **env))
    workers = "".join(f"--- worker {i}:\n{log(logs, i)}" for i in range(num_workers))
    assert code == 0, out + workers


def fails(num_workers, logs, *arguments, **env):
    """A job that must fail; returns what each worker wrote."""
    code, out = finish(start(num_workers, logs, *arguments, **env))
    assert code != 0, out
    return [log(logs, i) for i in range(num_workers)]


def run_alone(*arguments):
    """Runs the script without a launcher."""
    done = subprocess.run(
        [sys.executable, HERE / "cases.py", *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
