# SPDX-License-Identifier: Apache-2.0
"""Loads what save_ours.py wrote; run it with real Paddle, 2.6.2 or 1.8.5.

    PEER_PYTHON tests/interop/load_ours.py DIR

Prints a line for each model and way to load it: 'ok NAME' or 'FAIL NAME: why'.
"""

import os
import sys
import traceback

import numpy as np
import paddle

NEW = not paddle.__version__.startswith("1.")
TOLERANCE = 1e-5
if NEW:
    import paddle.static as static

    paddle.enable_static()
else:
    import paddle.fluid as static
PLACE = paddle.CPUPlace() if NEW else static.CPUPlace()


def examples(path):
    arrays = dict(np.load(path + ".npz"))
    outputs = [
        arrays.pop("output_%d" % i) for i in range(9) if "output_%d" % i in arrays
    ]
    return arrays, outputs


def compare(got, wanted):
    assert len(got) == len(wanted), (len(got), len(wanted))
    for i, (a, b) in enumerate(zip(got, wanted)):
        a, b = np.asarray(a), np.asarray(b)
        assert a.size == b.size, "output %d has shape %s, not %s" % (
            i,
            a.shape,
            b.shape,
        )
        np.testing.assert_allclose(a.ravel(), b.ravel(), TOLERANCE, TOLERANCE)


def run(load, path):
    inputs, outputs = examples(path)
    exe = static.Executor(PLACE)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = load(exe)
        assert set(feeds) == set(inputs), feeds
        compare(exe.run(program, feed=inputs, fetch_list=fetches), outputs)


def by_prefix(path):
    run(lambda exe: static.load_inference_model(path, exe), path)


def by_folder(path):
    if NEW:
        return
    run(lambda exe: static.io.load_inference_model(path + "_each", exe), path)


def by_combined_folder(path):
    folder = path + "_combined"
    if NEW:
        files = {"model_filename": "model", "params_filename": "params"}
        run(lambda exe: static.load_inference_model(folder, exe, **files), path)
    else:
        run(
            lambda exe: static.io.load_inference_model(folder, exe, "model", "params"),
            path,
        )


def by_predictor(path):
    inputs, outputs = examples(path)
    config = paddle.inference.Config(path + ".pdmodel", path + ".pdiparams")
    config.disable_gpu()
    predictor = paddle.inference.create_predictor(config)
    for name in predictor.get_input_names():
        predictor.get_input_handle(name).copy_from_cpu(inputs[name])
    predictor.run()
    names = predictor.get_output_names()
    compare([predictor.get_output_handle(n).copy_to_cpu() for n in names], outputs)


def by_jit(path):
    inputs, outputs = examples(path)
    paddle.disable_static()
    try:
        layer = paddle.jit.load(path)
        layer.eval()
        got = layer(*[paddle.to_tensor(value) for value in inputs.values()])
        got = got if isinstance(got, (list, tuple)) else [got]
        compare([value.numpy() for value in got], outputs)
    finally:
        paddle.enable_static()


def state(path):
    """Values of a program in training, and the program."""
    wanted = dict(np.load(path + ".npz"))
    load = static.load_program_state if NEW else static.io.load_program_state
    found = load(path)
    missing = set(wanted) - set(found)
    assert not missing, "no %s" % sorted(missing)
    for name in wanted:
        np.testing.assert_array_equal(
            np.asarray(found[name]).ravel(), wanted[name].ravel()
        )
    with open(path + ".pdmodel", "rb") as file:
        program = static.Program.parse_from_string(file.read())
    assert "adam" in [op.type for op in program.global_block().ops]


def attempt(what, check, path):
    try:
        check(path)
        print("ok", what)
        return True
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        print("FAIL %s: %s" % (what, " | ".join(lines[-6:]) or type(error).__name__))
        if "-v" in sys.argv:
            traceback.print_exc()
        return False


def main():
    folder = sys.argv[1]
    names = sorted(n[:-4] for n in os.listdir(folder) if n.endswith(".npz"))
    done = []
    for name in names:
        path = os.path.join(folder, name)
        if name == "training":
            done.append(attempt("training state", state, path))
            continue
        ways = [("folder", by_folder), ("one file", by_combined_folder)]
        if NEW:
            ways[0] = ("prefix", by_prefix)
            ways += [("predictor", by_predictor), ("jit.load", by_jit)]
        for way, check in ways:
            if name == "traced" and check in (by_folder, by_combined_folder):
                continue
            done.append(attempt("%s by %s" % (name, way), check, path))
    functions = os.path.join(folder, "functions")
    if NEW and os.path.isdir(functions):
        for name in sorted(n[:-4] for n in os.listdir(functions) if n.endswith(".npz")):
            path = os.path.join(functions, name)
            done.append(attempt("function %s" % name, by_prefix, path))
    sys.exit(0 if all(done) and done else 1)


if __name__ == "__main__":
    main()
