# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest
from paddle import nn


def wrapped():
    layer = nn.Linear(3, 2)
    with pytest.warns(UserWarning, match="single-card"):
        return layer, paddle.DataParallel(layer)


def test_one_process_computes_what_the_layer_computes():
    layer, parallel = wrapped()
    x = paddle.randn([4, 3])
    np.testing.assert_array_equal(parallel(x).numpy(), layer(x).numpy())


def test_parameters_keep_their_identity_and_their_names():
    layer, parallel = wrapped()
    assert [p is q for p, q in zip(parallel.parameters(), layer.parameters())] == [
        True,
        True,
    ]
    assert list(parallel.state_dict()) == ["weight", "bias"]
    parallel.set_state_dict(
        {"weight": np.ones((3, 2), "f4"), "bias": np.zeros(2, "f4")}
    )
    assert layer.weight.numpy().sum() == 6


def test_the_old_calls_around_backward_change_nothing():
    layer, parallel = wrapped()
    loss = parallel(paddle.ones([1, 3])).sum()
    assert parallel.scale_loss(loss) is loss
    with parallel.no_sync():
        loss.backward()
    before = layer.weight.grad.numpy()
    parallel.apply_collective_grads()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), before)


def test_several_processes_are_refused_until_they_can_be_served(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    with pytest.raises(NotImplementedError, match="collective training"):
        paddle.DataParallel(nn.Linear(1, 1))
