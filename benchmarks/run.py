# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark and prints one table; exit status 1 if a bar is missed.

    python benchmarks/run.py [--peer-python PATH]

Ours and the peer are measured in one run, in turns, with one thread each.
--peer-python names a Python that has the real paddlepaddle; the static MLP then has a
line against a program there, and its times of the eager steps are shown below the table.
What runs on a GPU is measured where torch sees one, everything else on the CPU.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# One thread each: said before any of the libraries is loaded.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", help="a Python with the real paddlepaddle")
    args = parser.parse_args()

    on_gpu = [
        subprocess.run([sys.executable, HERE / script]).returncode
        for script in ("static_gpu.py", "eager_gpu.py")
    ]
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.path.insert(0, str(HERE))
    import auto_cast
    import collectives
    import data_parallel
    import dataloader
    import eager_steps
    import file_dataset
    import import_time
    import launch_time
    import parameter_server
    import python_collectives
    import security
    import static_collective
    import static_steps
    import tcp_collectives

    missed = sum(code != 0 for code in on_gpu)
    modules = (
        eager_steps,
        auto_cast,
        static_steps,
        import_time,
        dataloader,
        collectives,
    )
    modules += (tcp_collectives, python_collectives, data_parallel, launch_time)
    modules += (static_collective, file_dataset, parameter_server, security)
    for module in modules:
        # Only this one has the real Paddle as a peer.
        peer = [args.peer_python] if module is static_steps else []
        for row in module.run(*peer):
            print(row, flush=True)
            missed += not row.ok
    if args.peer_python:
        sys.stdout.flush()
        subprocess.run([args.peer_python, HERE / "real_paddle.py"], check=True)
    print(f"{missed} bars missed" if missed else "all bars held")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
