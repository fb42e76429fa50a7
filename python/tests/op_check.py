# SPDX-License-Identifier: Apache-2.0
"""Compares an op of ours, its value and its gradients, with torch's or numpy's; and the
same in a program with what it gives eagerly.

Tolerances, where a test names none: float64 inputs, where both sides differ by
rounding of the same formula, rtol 1e-7 and atol 1e-8; float32 inputs 1e-5. Each
derivative takes ten times more.
"""

import os

import numpy as np
import paddle
import torch
from paddle import static

# A GPU adds in another order and rounds some functions otherwise.
_SLACK = 50 if os.environ.get("FLEET_TEST_DEVICE") == "gpu" else 1


def _flat(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _dtype_name(value):
    return str(value.dtype).removeprefix("torch.")


def _agree(ours, theirs, rtol, atol, what):
    theirs = theirs.numpy(force=True) if isinstance(theirs, torch.Tensor) else theirs
    theirs = np.asarray(theirs)
    # Ours keeps one dimension where theirs has none.
    shape = list(theirs.shape) or [1]
    assert ours.shape == shape, f"{what}: shape {ours.shape}, expected {shape}"
    np.testing.assert_allclose(
        ours.numpy().reshape(theirs.shape), theirs, rtol, atol, err_msg=what
    )


def check(
    ours,
    theirs,
    *arrays,
    grad=True,
    second=False,
    rtol=None,
    atol=None,
    dtype=True,
    program=True,
):
    """Calls `ours` on paddle tensors of the arrays and `theirs` on torch tensors, and
    compares all results; with `grad` also the gradients of a weighted sum of their
    squares with respect to every floating-point input, and with `second` the gradients
    of such a sum of those. `dtype` says that element types must agree too, and
    `program` that `ours` works in programs."""
    single = any(a.dtype == np.float32 for a in arrays)
    rtol = _SLACK * ((1e-5 if single else 1e-7) if rtol is None else rtol)
    atol = _SLACK * ((1e-5 if single else 1e-8) if atol is None else atol)
    mine = [paddle.to_tensor(a) for a in arrays]
    yours = [torch.from_numpy(np.array(a)) for a in arrays]
    for x, y in zip(mine, yours):
        x.stop_gradient = not (grad and y.is_floating_point())
        y.requires_grad_(not x.stop_gradient)
    got, want = _flat(ours(*mine)), _flat(theirs(*yours))
    assert len(got) == len(want)
    for g, w in zip(got, want):
        _agree(g, w, rtol, atol, "value")
        if dtype:
            assert g.dtype.name == _dtype_name(w)
    if program:
        check_program(ours, got, arrays, [not x.stop_gradient for x in mine])
    if not grad:
        assert all(g.stop_gradient for g in got)
        return
    _check_gradients(got, want, mine, yours, second, 10 * rtol, 10 * atol)


def check_numpy(ours, theirs, *arrays, rtol=1e-6, atol=1e-8, program=True):
    """Calls `ours` on paddle tensors and `theirs` on the numpy arrays, and compares."""
    got = _flat(ours(*[paddle.to_tensor(a) for a in arrays]))
    want = _flat(theirs(*arrays))
    assert len(got) == len(want)
    for g, w in zip(got, want):
        _agree(g, w, rtol, atol, "value")
    if program:
        check_program(ours, got, arrays, [False] * len(arrays))


def check_program(ours, got, arrays, wants_gradient):
    """Builds a program by calling `ours` on variables, runs it on the arrays, and
    compares with `got`, what it gave eagerly; also the gradients of the sum of squares
    of all results by the inputs that `wants_gradient` names."""
    wanted = [g.numpy() for g in got]
    inputs = [paddle.to_tensor(a) for a in arrays]
    for x, wants in zip(inputs, wants_gradient):
        x.stop_gradient = not wants
    chosen = [i for i, wants in enumerate(wants_gradient) if wants]
    flowing = [i for i, g in enumerate(got) if not g.stop_gradient]
    if flowing:
        results = _flat(ours(*inputs))
        total = sum((results[i] * results[i]).sum() for i in flowing)
        gradients = paddle.grad(total, [inputs[i] for i in chosen], allow_unused=True)
    paddle.enable_static()
    try:
        main, scope = static.Program(), static.Scope()
        with static.program_guard(main, static.Program()), static.scope_guard(scope):
            variables = []
            for i, array in enumerate(arrays):
                x = static.data(f"x{i}", array.shape, array.dtype)
                x.stop_gradient = not wants_gradient[i]
                variables.append(x)
            results = _flat(ours(*variables))
            assert len(results) == len(wanted)
            fetches = list(results)
            if flowing:
                total = sum((results[i] * results[i]).sum() for i in flowing)
                found = static.gradients(total, [variables[i] for i in chosen])
                for wants, variable in zip(gradients, found):
                    if wants is not None:
                        wanted.append(wants.numpy())
                        fetches.append(variable)
            place = paddle.framework.place.place_of(paddle._core.get_device())
            feed = {f"x{i}": np.array(a) for i, a in enumerate(arrays)}
            values = static.Executor(place).run(main, feed, fetches)
    finally:
        paddle.disable_static()
    for i, (value, want, variable) in enumerate(zip(values, wanted, fetches)):
        assert value.dtype == want.dtype and value.shape == want.shape
        assert variable.dtype.name == want.dtype.name
        declared = variable.shape
        assert len(declared) == want.ndim
        assert all(n in (-1, m) for n, m in zip(declared, want.shape)), declared
        tolerance = _SLACK * (1e-5 if want.dtype in (np.float32, np.float16) else 1e-9)
        np.testing.assert_allclose(
            value, want, tolerance, tolerance, err_msg=f"result {i} in a program"
        )


def _weighted(results, seed):
    """Weighted sums, ours and torch's, of the squares of pairs of results: squares
    let the second derivative of a linear op differ from zero."""
    rng = np.random.default_rng(seed)
    our_sum, their_sum = 0, 0
    for g, w in results:
        weight = rng.standard_normal(tuple(w.shape)).astype(_dtype_name(w))
        their_sum = their_sum + (w * w * torch.from_numpy(np.asarray(weight))).sum()
        weight = paddle.to_tensor(np.reshape(weight, g.shape))
        our_sum = our_sum + (g * g * weight).sum()
    return our_sum, their_sum


def _check_gradients(got, want, mine, yours, second, rtol, atol):
    flowing = [(g, w) for g, w in zip(got, want) if w.requires_grad]
    for g, w in zip(got, want):
        assert g.stop_gradient == (not w.requires_grad)
    inputs = [(x, y) for x, y in zip(mine, yours) if y.requires_grad]
    if not flowing:
        return
    our_sum, their_sum = _weighted(flowing, 1)
    xs, ys = [x for x, _ in inputs], [y for _, y in inputs]
    our_grads = paddle.grad(our_sum, xs, create_graph=second, allow_unused=True)
    their_grads = torch.autograd.grad(
        their_sum, ys, create_graph=second, allow_unused=True
    )
    pairs = [(a, b) for a, b in zip(our_grads, their_grads) if b is not None]
    for i, (a, b) in enumerate(pairs):
        _agree(a, b, rtol, atol, f"gradient {i}")
    if not second:
        return
    # The gradient of a linear op does not depend on its input.
    pairs = [(a, b) for a, b in pairs if b.requires_grad]
    if not pairs:
        return
    our_sum, their_sum = _weighted(pairs, 2)
    our_seconds = paddle.grad(our_sum, xs, allow_unused=True)
    their_seconds = torch.autograd.grad(their_sum, ys, allow_unused=True)
    for i, (a, b) in enumerate(zip(our_seconds, their_seconds)):
        if b is None:
            assert a is None or not a.numpy().any()
            continue
        expected = b.numpy(force=True)
        a = paddle.zeros_like(xs[i]) if a is None else a
        _agree(a, expected, 10 * rtol, 10 * atol, f"second gradient {i}")


def floats(*shape, low=-2.0, high=2.0, seed=0, dtype="float64"):
    """Numbers drawn evenly from [low, high)."""
    rng = np.random.default_rng(seed + sum(shape))
    return rng.uniform(low, high, shape).astype(dtype)


def ints(*shape, low=-5, high=6, seed=0, dtype="int64"):
    """Integers drawn evenly from [low, high)."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
