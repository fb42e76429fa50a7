# SPDX-License-Identifier: Apache-2.0
"""Compares a layer with torch's: values, and gradients of inputs and parameters."""

import numpy as np
import paddle
import torch


def random_array(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype("float32")


def copy_weights(parameters):
    """Sets torch's parameters to ours; see compare()."""
    for own, other, transpose in parameters:
        value = own.numpy()
        with torch.no_grad():
            other.copy_(torch.tensor(value.T if transpose else value))


def compare(ours, theirs, inputs, parameters=(), rtol=1e-4, atol=1e-5):
    """Runs both on the arrays in `inputs` and compares outputs and gradients.

    parameters: (ours, theirs, transpose) for every pair; torch's are set to ours
    first. Floating-point inputs get gradients.
    """
    copy_weights(parameters)
    own_inputs, other_inputs = [], []
    for array in inputs:
        own, other = paddle.to_tensor(array), torch.tensor(array)
        if array.dtype.kind == "f":
            own.stop_gradient = False
            other.requires_grad_(True)
        own_inputs.append(own)
        other_inputs.append(other)
    out, expected = ours(*own_inputs), theirs(*other_inputs)
    assert out.size == expected.numel()
    assert out.shape == (list(expected.shape) or [1])
    np.testing.assert_allclose(
        out.numpy().reshape(expected.shape),
        expected.detach().numpy(),
        rtol=rtol,
        atol=atol,
    )
    weights = random_array(*expected.shape, seed=99) if expected.dim() else 1.0
    (
        out * paddle.to_tensor(np.reshape(weights, out.shape).astype("float32"))
    ).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    for own, other in zip(own_inputs, other_inputs):
        if other.requires_grad:
            np.testing.assert_allclose(
                own.grad.numpy(), other.grad.numpy(), rtol=rtol, atol=atol
            )
    for own, other, transpose in parameters:
        gradient = other.grad.numpy()
        np.testing.assert_allclose(
            own.grad.numpy(),
            gradient.T if transpose else gradient,
            rtol=rtol,
            atol=10 * atol,
        )
    return out, expected
