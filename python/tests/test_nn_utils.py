# SPDX-License-Identifier: Apache-2.0
"""paddle.nn.utils against torch and numpy."""

import numpy as np
import paddle
import pytest
import torch
from layer_check import random_array
from paddle import nn
from paddle.nn import utils


def test_weight_norm_trains_length_and_direction():
    layer = nn.Conv2D(2, 3, 3)
    plain = layer.weight.numpy()
    x = paddle.to_tensor(random_array(1, 2, 5, 5))
    before = layer(x).numpy()
    assert utils.weight_norm(layer, dim=0) is layer
    assert sorted(layer._parameters) == ["bias", "weight_g", "weight_v"]
    np.testing.assert_allclose(
        layer.weight_g.numpy(), np.sqrt((plain**2).sum(axis=(1, 2, 3))), rtol=1e-5
    )
    np.testing.assert_allclose(layer(x).numpy(), before, rtol=1e-4, atol=1e-5)

    theirs = torch.nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(plain))
        theirs.bias.zero_()
    theirs = torch.nn.utils.parametrizations.weight_norm(theirs, dim=0)
    layer(x).sum().backward()
    theirs(torch.tensor(x.numpy())).sum().backward()
    parts = theirs.parametrizations.weight
    np.testing.assert_allclose(
        layer.weight_g.grad.numpy(),
        parts.original0.grad.numpy().reshape(-1),
        rtol=1e-3,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        layer.weight_v.grad.numpy(),
        parts.original1.grad.numpy(),
        rtol=1e-3,
        atol=1e-4,
    )

    layer.weight_g.set_value(2 * layer.weight_g.numpy())
    utils.remove_weight_norm(layer)
    assert sorted(layer._parameters) == ["bias", "weight"]
    np.testing.assert_allclose(layer.weight.numpy(), 2 * plain, rtol=1e-4, atol=1e-6)
    assert not layer.weight.stop_gradient
    with pytest.raises(ValueError, match="not under weight_norm"):
        utils.remove_weight_norm(layer)


def test_weight_norm_of_the_whole_weight():
    layer = utils.weight_norm(nn.Linear(3, 4), dim=None)
    assert layer.weight_g.shape == [1]
    np.testing.assert_allclose(
        layer.weight_g.numpy()[0], np.linalg.norm(layer.weight_v.numpy()), rtol=1e-5
    )
    with pytest.raises(ValueError, match="has no parameter 'kernel'"):
        utils.weight_norm(nn.Linear(3, 4), name="kernel")


def test_spectral_norm_of_a_layer():
    layer = utils.spectral_norm(nn.Linear(5, 4), n_power_iterations=40)
    x = paddle.to_tensor(random_array(2, 5))
    layer(x)
    assert "weight_orig" in layer._parameters
    top = np.linalg.svd(layer.weight.numpy(), compute_uv=False)[0]
    assert top == pytest.approx(1.0, rel=1e-4)
    assert "weight_u" in layer.state_dict()
    layer(x).sum().backward()
    assert layer.weight_orig.grad.shape == [5, 4]
    layer.eval()
    u = layer.weight_u.numpy()
    layer(x)
    np.testing.assert_array_equal(layer.weight_u.numpy(), u)


def test_vectors():
    layer = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.shape == [8]
    np.testing.assert_array_equal(vector.numpy()[:6], layer.weight.numpy().reshape(-1))
    address = layer.weight._data_ptr()
    values = paddle.to_tensor(np.arange(8, dtype="float32"))
    utils.vector_to_parameters(values, layer.parameters())
    np.testing.assert_array_equal(layer.weight.numpy(), [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(layer.bias.numpy(), [6, 7])
    assert layer.weight._data_ptr() == address
    with pytest.raises(ValueError, match="3 elements, but the parameters have 8"):
        utils.vector_to_parameters(paddle.ones([3]), layer.parameters())


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(norm_type, max_norm):
    layer = nn.Linear(3, 2)
    gradients = [random_array(3, 2), random_array(2, seed=1)]
    theirs = []
    for p, g in zip(layer.parameters(), gradients):
        p.grad = paddle.to_tensor(g)
        other = torch.zeros(p.shape, requires_grad=True)
        other.grad = torch.tensor(g)
        theirs.append(other)
    total = utils.clip_grad_norm_(layer.parameters(), max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    np.testing.assert_allclose(total.numpy().reshape(()), expected.item(), rtol=1e-5)
    for p, other in zip(layer.parameters(), theirs):
        np.testing.assert_allclose(p.grad.numpy(), other.grad.numpy(), rtol=1e-4)


def test_clip_grad_norm_reports_what_is_not_finite():
    layer = nn.Linear(1, 1)
    layer.weight.grad = paddle.to_tensor(np.array([[np.nan]], "float32"))
    with pytest.raises(RuntimeError, match="nan"):
        utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True)
    with pytest.raises(ValueError, match="norm_type must be positive"):
        utils.clip_grad_norm_(layer.parameters(), 1.0, norm_type=0)


def test_clip_grad_value():
    layer = nn.Linear(2, 1)
    layer.weight.grad = paddle.to_tensor(np.array([[3.0], [-0.2]], "float32"))
    utils.clip_grad_value_(layer.parameters(), 0.5)
    np.testing.assert_allclose(layer.weight.grad.numpy(), [[0.5], [-0.2]])
