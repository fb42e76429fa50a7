# SPDX-License-Identifier: Apache-2.0
"""The engine with one place made wrong, where WRONG_KERNEL names one: to be imported
before paddle. `wrong.py find HINT` looks for the first model that shows it, where HINT is a
pattern in the text of models that may; `wrong.py run SCRIPT ...` runs a script."""

import ctypes
import os
import re
import runpy
import sys
from pathlib import Path

_LIB = Path(__file__).resolve().parent.parent.parent / "python" / "paddle" / "_lib"
COUNT = 200  # models that make test examines

if os.environ.get("WRONG_KERNEL"):
    # Its own functions come before those of the engine, which it brings along.
    ctypes.CDLL(str(_LIB / "libwrong_kernels.so"), ctypes.RTLD_GLOBAL)


def find(hint):
    import local
    from make import make

    def text(number):
        model = make(number)
        return f"{model.layer_code()}\n{model.code()}"

    numbers = [n for n in range(1, COUNT + 1) if re.search(hint, text(n))]
    for number, result in local.examine_all(numbers):
        if result.failures:
            failure = result.failures[0]
            print(f"found by model {number}, {failure.mode}: {failure.text}")
            return 0
    print(f"not found by {len(numbers)} models")
    return 1


if __name__ == "__main__":
    if sys.argv[1] == "find":
        sys.exit(find(sys.argv[2]))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
