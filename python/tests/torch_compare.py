# SPDX-License-Identifier: Apache-2.0
"""Compares a function on paddle tensors with one on torch tensors."""

import os

import numpy as np
import paddle
import torch


def _list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


# A GPU adds in another order and rounds some functions otherwise.
_SLACK = 50 if os.environ.get("FLEET_TEST_DEVICE") == "gpu" else 1


def compare(ours, theirs, *arrays, second=False, rtol=1e-6, atol=1e-7):
    """Calls both functions on the arrays and compares the results, and the gradients
    of a weighted sum of the floating-point ones. With `second`, also the gradients of
    the squared gradients."""
    rtol, atol = rtol * _SLACK, atol * _SLACK
    mine = [paddle.to_tensor(a, stop_gradient=a.dtype.kind != "f") for a in arrays]
    yours = [torch.from_numpy(a.copy()) for a in arrays]
    for y in yours:
        y.requires_grad_(y.is_floating_point())
    got, want = _list(ours(*mine)), _list(theirs(*yours))
    assert len(got) == len(want)
    weights = np.random.default_rng(1)
    total, torch_total = 0, 0
    for g, w in zip(got, want):
        expected = w.detach().numpy()
        assert list(g.shape) == list(w.shape) or (w.dim() == 0 and g.shape == [1])
        assert g.dtype.name == str(w.dtype).removeprefix("torch.")
        np.testing.assert_allclose(
            g.numpy().reshape(expected.shape), expected, rtol=rtol, atol=atol
        )
        if not (w.is_floating_point() and w.requires_grad):
            assert g.stop_gradient
            continue
        weight = weights.standard_normal(w.shape).astype(expected.dtype)
        weight = weight if g.shape else weight.reshape(())
        total = (
            total
            + (g * g * paddle.to_tensor(np.asarray(weight).reshape(g.shape))).sum()
        )
        torch_total = torch_total + (w * w * torch.from_numpy(np.asarray(weight))).sum()
    inputs = [x for x in mine if not x.stop_gradient]
    torch_inputs = [y for y in yours if y.requires_grad]
    if not inputs or isinstance(total, int):
        return
    grads = paddle.grad([total], inputs, create_graph=second)
    torch_grads = torch.autograd.grad(torch_total, torch_inputs, create_graph=second)
    _same(grads, torch_grads, rtol, atol)
    if not second:
        return
    penalty = sum((g * g).sum() for g in grads)
    torch_penalty = sum((g * g).sum() for g in torch_grads)
    _same(
        paddle.grad([penalty], inputs),
        torch.autograd.grad(torch_penalty, torch_inputs),
        rtol,
        atol,
    )


def _same(grads, torch_grads, rtol, atol):
    for g, w in zip(grads, torch_grads, strict=True):
        assert list(g.shape) == list(w.shape)
        np.testing.assert_allclose(g.numpy(), w.detach().numpy(), rtol=rtol, atol=atol)


def floats(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
