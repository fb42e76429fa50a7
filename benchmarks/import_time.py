# SPDX-License-Identifier: Apache-2.0
"""`import paddle` against `import torch`, each in a new process."""

import subprocess
import sys

from measure import Row, best_in_turns


def importing(module):
    return lambda: subprocess.run(
        [sys.executable, "-c", f"import {module}"], check=True
    )


def run():
    ours, peer = best_in_turns([importing("paddle"), importing("torch")], 1, 7)
    return [Row("import in a new process", ours * 1e3, peer * 1e3, "ms", 0.4)]


if __name__ == "__main__":
    for row in run():
        print(row)
