# SPDX-License-Identifier: Apache-2.0
"""Trains two models, each in one process and in several under fleetrun, and shows them
side by side: speed, quality, and the curves of their losses.

    shapes     pictures, by all-reduce between two workers (train_shapes.py)
    clicks     advertisements, by two workers and two parameter servers (train_ctr.py)

A process has half of this machine's cores in all runs, as if the second one came with
its own machine.

    python examples/python/demo.py [--only shapes|clicks] [--out build/demo] [--small]
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

HERE = Path(__file__).parent
FLEETRUN = Path(sys.executable).with_name("fleetrun")
# What is trained: the script, what makes a job of it, what it reports, and its name for
# the examples.
MODELS = {
    "shapes": dict(
        script="train_shapes.py",
        job={"two workers": ["--nproc_per_node", "2"]},
        quality="accuracy",
        examples="pictures",
        small=["--pictures", "2400", "--epochs", "8"],
    ),
    "clicks": dict(
        script="train_ctr.py",
        job={"two workers, two servers": ["--server_num", "2", "--worker_num", "2"]},
        quality="auc",
        examples="examples",
        small=["--examples", "64000"],
    ),
}


def train(title, command, report):
    """Runs one training and returns its figures."""
    print(f"\n=== {title}", flush=True)
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    subprocess.run(
        [str(word) for word in [*command, "--report", report]],
        check=True,
        env={"OMP_NUM_THREADS": str(threads), **os.environ},
    )
    return json.loads(report.read_text())


def runs_of(name, model, out, arguments):
    """The figures of one process and of the job, by what they are called."""
    script = HERE / model["script"]
    commands = {"one process": [sys.executable, script]}
    for title, options in model["job"].items():
        commands[title] = [FLEETRUN, *options, "--log_dir", out / f"{name}-log", script]
    return {
        title: train(
            f"{name}: {title}",
            [*command, *arguments],
            out / f"{name}, {title}.json",
        )
        for title, command in commands.items()
    }


def summary(name, model, runs):
    """Lines that say what happened."""
    yield f"{name}:"
    for title, run in runs.items():
        line = f"  {title:26} {run['speed']:8.0f} {model['examples']}/s   "
        line += f"{model['quality']} {run[model['quality']]:.3f}"
        if run.get("stats"):
            line += f"   at most {run['stats']['max_staleness']} steps behind"
        yield line
    (alone, *_), (title, *_) = list(runs.values()), list(runs)[1:]
    yield f"  {title}: {runs[title]['speed'] / alone['speed']:.2f} times the speed"


def plot(all_runs, path):
    figure, axes = pyplot.subplots(1, len(all_runs), figsize=(6 * len(all_runs), 3.5))
    for ax, (name, runs) in zip(np.atleast_1d(axes), all_runs.items()):
        for title, run in runs.items():
            window = max(len(run["losses"]) // 30, 1)
            smooth = np.convolve(run["losses"], np.ones(window) / window, "valid")
            ax.plot(np.arange(len(smooth)) + window - 1, smooth, label=title)
        ax.set(xlabel="step of a worker", ylabel="loss", title=f"{name}: loss")
        ax.set_ylim(bottom=0)
        ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    parser.add_argument("--small", action="store_true", help="for a quick look")
    args = parser.parse_args()
    out = args.out
    out.mkdir(parents=True, exist_ok=True)
    all_runs = {
        name: runs_of(name, model, out, model["small"] if args.small else [])
        for name, model in MODELS.items()
        if args.only in (None, name)
    }
    print()
    for name, runs in all_runs.items():
        print("\n".join(summary(name, MODELS[name], runs)))
    plot(all_runs, out / "loss.png")
    print(f"the losses: {out / 'loss.png'}")


if __name__ == "__main__":
    main()
