# SPDX-License-Identifier: Apache-2.0
import copy

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


def test_uneven_batches_of_one_are_no_matter():
    layer, parallel = wrapped()
    with parallel.join():
        parallel(paddle.ones([1, 3])).sum().backward()
    assert layer.weight.grad is not None


def test_hooks_of_the_wrapper_run():
    _, parallel = wrapped()
    calls = []
    parallel.register_forward_pre_hook(lambda layer, inputs: calls.append("before"))
    parallel.register_forward_post_hook(lambda layer, i, o: calls.append("after"))
    parallel(paddle.ones([1, 3]))
    assert calls == ["before", "after"]


def test_a_copy_is_a_model_of_its_own():
    layer, parallel = wrapped()
    twin = copy.deepcopy(parallel)
    twin(paddle.ones([1, 3])).sum().backward()
    assert layer.weight.grad is None and twin._layers.weight.grad is not None


def test_sync_batch_norm_of_one_is_batch_norm():
    x = paddle.randn([4, 3, 2, 2])
    one, other = nn.BatchNorm2D(3), nn.SyncBatchNorm(3)
    np.testing.assert_array_equal(one(x).numpy(), other(x).numpy())
    np.testing.assert_array_equal(one._mean.numpy(), other._mean.numpy())


def test_several_processes_must_meet_first(monkeypatch):
    endpoints = "127.0.0.1:6170,127.0.0.1:6171"
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", endpoints)
    paddle.distributed.destroy_process_group()
    with pytest.raises(RuntimeError, match="init_parallel_env"):
        paddle.DataParallel(nn.Linear(1, 1))


def test_paddle_1_spelt_it_in_fluid():
    parallel = paddle.fluid.dygraph.parallel
    assert parallel.DataParallel is paddle.DataParallel
    assert paddle.fluid.dygraph.DataParallel is paddle.DataParallel
    assert paddle.fluid.dygraph.ParallelEnv is paddle.distributed.ParallelEnv
    strategy = paddle.fluid.dygraph.prepare_context()
    assert (strategy.nranks, strategy.local_rank) == (1, 0)
    assert paddle.fluid.dygraph.parallel.prepare_context(strategy) is strategy
