# SPDX-License-Identifier: Apache-2.0
"""Runs jobs of several processes over lists of models. A model that ends its job costs
that model, and a new job goes on behind it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLEETRUN = Path(sys.executable).parent / "fleetrun"
# Whatever launched the tests speaks of no worker of theirs.
_LAUNCHERS = ("PADDLE_", "FLEET_", "FLAGS_", "OMPI_", "PMI_", "SLURM_")


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    return {
        **env,
        "PYTHONPATH": str(HERE.parent.parent / "python"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONUNBUFFERED": "1",
        "FLEET_TIMEOUT": "60",
        "FLEET_START_TIMEOUT": "60",
    }


def _job(folder, script, options, numbers, seconds):
    """Runs one job to its end; gives (lines of worker 0, what went wrong or None)."""
    folder = Path(folder)
    out = folder / f"out-{len(list(folder.glob('out-*')))}"
    logs = folder / f"log-{out.name}"
    job = [HERE / script]
    if os.environ.get("WRONG_KERNEL"):
        job = [HERE / "wrong.py", "run", HERE / script]
    command = [FLEETRUN, *options, f"--log_dir={logs}", *job, out, *numbers]
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    wrong = None
    try:
        text, _ = process.communicate(timeout=seconds)
        if process.returncode != 0:
            wrong = f"the job ended with {process.returncode}\n{text[-3000:]}"
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            text, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        wrong = f"the job did not end in {seconds} s\n{text[-3000:]}"
    if wrong:
        for log in sorted(logs.glob("*log*")):
            wrong += f"\n--- {log.name}\n{log.read_text(errors='replace')[-2500:]}"
    file = Path(f"{out}.0")
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines], wrong


def each(folder, script, options, numbers, mode, seconds=300, end=None):
    """Yields for each number a dict with "number", "failures" and "ops"."""
    numbers = list(numbers)
    while numbers:
        if end is not None and time.monotonic() > end:
            return
        lines, wrong = _job(folder, script, options, numbers, seconds)
        done = [line for line in lines if "number" in line]
        yield from done
        numbers = numbers[len(done) :]
        if wrong is None:
            continue
        if not numbers:
            raise RuntimeError(wrong)
        started = any(line.get("start") == numbers[0] for line in lines)
        if not started and not done:
            raise RuntimeError(f"before the first model: {wrong}")
        yield {"number": numbers[0], "failures": [[mode, wrong]], "ops": []}
        numbers = numbers[1:]


def two_ranks(folder, numbers, **more):
    """Failures that a known defect explains are in "known"."""
    from known import known
    from make import make

    options = ["--nproc_per_node=2"]
    for line in each(folder, "ranks_job.py", options, numbers, "two ranks", **more):
        failures, line["known"] = line["failures"], []
        line["failures"] = []
        for mode, text in failures:
            name = known(make(line["number"]), mode, text)
            if name:
                line["known"].append(name)
            else:
                line["failures"].append([mode, text])
        yield line


def served(folder, first, count):
    """One job of two workers and two servers over `count` models, found from `first` on."""
    options = ["--worker_num=2", "--server_num=2"]
    lines, wrong = _job(folder, "served_job.py", options, [first, count], 300)
    if wrong:
        return [{"number": first, "failures": [["servers", wrong]], "ops": []}]
    return lines
