# SPDX-License-Identifier: Apache-2.0
"""Trains the shapes of train_shapes.py in one process, then in two under fleetrun,
and shows both side by side: speed, accuracy, and the curves of their losses. A process
has half of this machine's cores in both, as if the second one came with its own machine.

    python examples/python/demo.py [--out build/demo] [arguments of train_shapes.py]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

SCRIPT = Path(__file__).with_name("train_shapes.py")
FLEETRUN = Path(sys.executable).with_name("fleetrun")


def train(title, command, report, arguments):
    """Runs one training and returns its figures."""
    print(f"\n=== {title}", flush=True)
    command = [*command, SCRIPT, "--report", report, *arguments]
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    subprocess.run(
        [str(word) for word in command],
        check=True,
        env={"OMP_NUM_THREADS": str(threads), **os.environ},
    )
    return json.loads(report.read_text())


def plot(runs, path):
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for name, run in runs.items():
        window = max(len(run["losses"]) // 30, 1)
        smooth = np.convolve(run["losses"], np.ones(window) / window, "valid")
        axes.plot(np.arange(len(smooth)) + window - 1, smooth, label=name)
    axes.set(xlabel="step", ylabel="loss", title="shapes: loss of training")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    args, arguments = parser.parse_known_args()
    out = args.out
    out.mkdir(parents=True, exist_ok=True)
    commands = {
        "one process": [sys.executable],
        "two processes": [FLEETRUN, "--nproc_per_node", 2, "--log_dir", out / "log"],
    }
    runs = {
        name: train(name, command, out / f"{name}.json", arguments)
        for name, command in commands.items()
    }
    print()
    for name, run in runs.items():
        print(
            f"{name:14} {run['speed']:8.0f} pictures/s   accuracy {run['accuracy']:.3f}"
        )
    gain = runs["two processes"]["speed"] / runs["one process"]["speed"]
    print(f"two processes are {gain:.2f} times as fast as one")
    plot(runs, out / "loss.png")
    print(f"both losses: {out / 'loss.png'}")


if __name__ == "__main__":
    main()
