# SPDX-License-Identifier: Apache-2.0
"""Loads with this package what make_models.py wrote with real Paddle.

    PYTHON tests/interop/load_theirs.py DIR

Prints a line for each model: 'ok NAME' or 'FAIL NAME: why'.
"""

import pathlib
import sys

import numpy as np
import paddle
from paddle import fluid, static

TOLERANCE = 1e-5


def load(path, exe):
    if path.is_dir():
        files = ("model", "params") if path.name.endswith("_combined") else ()
        return fluid.io.load_inference_model(str(path), exe, *files)
    return static.load_inference_model(str(path.with_suffix("")), exe)


def check(path, exe):
    stem = path.name.removesuffix(".pdmodel").removesuffix("_combined")
    arrays = dict(np.load(path.parent / f"{stem}.npz"))
    wanted = [arrays.pop(f"output_{i}") for i in range(9) if f"output_{i}" in arrays]
    if "words" in arrays:
        lengths = np.diff(arrays.pop("words.lod")).tolist()
        arrays["words"] = fluid.create_lod_tensor(
            arrays["words"], [lengths], fluid.CPUPlace()
        )
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = load(path, exe)
        got = exe.run(program, feed=arrays, fetch_list=fetches)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a, b, TOLERANCE, TOLERANCE)


def main():
    paddle.enable_static()
    exe = static.Executor(paddle.CPUPlace())
    failed = False
    for version in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        for path in sorted(version.iterdir()):
            is_model = path.is_dir() or path.suffix == ".pdmodel"
            if not is_model or path.name == "training.pdmodel":
                continue
            try:
                check(path, exe)
                print("ok", path.name)
            except Exception as error:
                failed = True
                print(f"FAIL {path.name}: {type(error).__name__}: {str(error)[:300]}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
