# SPDX-License-Identifier: Apache-2.0
"""paddle.distributed in a process that is alone. Several are in tests/collective."""

import datetime
import subprocess
import sys

import numpy as np
import paddle
import paddle.distributed as dist
import pytest

VARIABLES = (
    "PADDLE_TRAINER_ID",
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ENDPOINTS",
)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (*VARIABLES, "RANK", "WORLD_SIZE", "FLAGS_selected_gpus"):
        monkeypatch.delenv(name, raising=False)


def tensor():
    return paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])


def same(a, b):
    np.testing.assert_array_equal(a.numpy(), b.numpy())


# -- who this process is


def test_alone_is_rank_0_of_1():
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    env = dist.ParallelEnv()
    assert (env.rank, env.world_size, env.device_id) == (0, 1, 0)
    assert (env.local_rank, env.nranks, env.dev_id) == (0, 1, 0)
    assert env.current_endpoint == "" and env.trainer_endpoints == [""]
    assert env.nrings == 1
    assert dist.is_available() and not dist.is_initialized()


def test_the_environment_says_who_a_process_is(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    assert (dist.get_rank(), dist.get_world_size()) == (1, 3)
    endpoints = "127.0.0.1:6170,127.0.0.1:6171"
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", endpoints)
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:6171")
    monkeypatch.setenv("FLAGS_selected_gpus", "5")
    env = dist.ParallelEnv()
    assert (env.rank, env.world_size, env.device_id) == (1, 2, 5)
    assert env.current_endpoint == "127.0.0.1:6171"
    assert env.trainer_endpoints == endpoints.split(",")


def test_torchrun_says_it_too(monkeypatch):
    for name, value in {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }.items():
        monkeypatch.setenv(name, value)
    assert (dist.get_rank(), dist.get_world_size()) == (2, 4)


def test_init_alone_warns_and_does_nothing():
    for _ in range(2):
        with pytest.warns(UserWarning, match="not a parallel execution environment"):
            assert dist.init_parallel_env() is None
    assert not dist.is_initialized()


@pytest.mark.parametrize("missing", VARIABLES)
def test_init_names_the_variable_that_is_missing(monkeypatch, missing):
    values = ("1", "127.0.0.1:2", "2", "127.0.0.1:1,127.0.0.1:2")
    for name, value in zip(VARIABLES, values):
        if name != missing:
            monkeypatch.setenv(name, value)
    with pytest.raises(
        ValueError,
        match="paddle.distributed initialize error, environment variable "
        f"{missing} is needed, but not set.",
    ):
        dist.init_parallel_env()


def test_a_collective_before_init_says_what_to_call(monkeypatch):
    code = (
        "import paddle, paddle.distributed as dist\n"
        "try:\n"
        "    dist.all_reduce(paddle.ones([1]))\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    env = dict(
        zip(VARIABLES, ("1", "127.0.0.1:2", "2", "127.0.0.1:1,127.0.0.1:2")),
    )
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "rank 1 of 2" in out and "init_parallel_env()" in out


# -- collectives of one are identities


@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PROD", "AVG"])
def test_reductions_of_one_change_nothing(op):
    op = getattr(dist.ReduceOp, op)
    for call in (
        lambda t: dist.all_reduce(t, op),
        lambda t: dist.all_reduce(t, op, group=0),
        lambda t: dist.reduce(t, 0, op),
    ):
        x = tensor()
        assert call(x) is None
        same(x, tensor())
    out = paddle.zeros([2, 2])
    dist.reduce_scatter(out, [tensor()], op)
    same(out, tensor())


def test_the_numbers_of_operations_are_paddles():
    op = dist.ReduceOp
    assert [op.SUM, op.MAX, op.MIN, op.PROD, op.AVG] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="op=5"):
        dist.all_reduce(tensor(), 5)
    with pytest.raises(ValueError, match="the mean of int64 does not exist"):
        dist.all_reduce(paddle.to_tensor([1]), dist.ReduceOp.AVG)


def test_movements_of_one_give_what_was_given():
    x = tensor()
    dist.broadcast(x, 0)
    same(x, tensor())
    for gather in (
        lambda got: dist.all_gather(got, tensor()),
        lambda got: dist.gather(tensor(), got),
        lambda got: dist.alltoall([tensor()], got),
    ):
        got = []
        gather(got)
        assert len(got) == 1
        same(got[0], tensor())
        kept = paddle.zeros([2, 2])
        gather([kept])
        same(kept, tensor())
    out = paddle.zeros([2, 2])
    dist.scatter(out, [tensor()], src=0)
    same(out, tensor())
    out = paddle.zeros([2, 2])
    dist.alltoall_single(tensor(), out)
    same(out, tensor())
    out = paddle.zeros([2, 2])
    dist.alltoall_single(tensor(), out, [2], [2])
    same(out, tensor())
    dist.barrier()


def test_objects_of_one():
    got = []
    dist.all_gather_object(got, {"a": 1})
    assert got == [{"a": 1}]
    things = [1, "two"]
    dist.broadcast_object_list(things, 0)
    assert things == [1, "two"]
    got = []
    dist.scatter_object_list(got, ["mine"])
    assert got == ["mine"]


def test_started_calls_are_waited_for():
    x = tensor()
    task = dist.all_reduce(x, sync_op=False)
    assert task.wait() and task.is_completed()
    same(x, tensor())
    assert dist.all_reduce(x, use_calc_stream=False).wait(5.0)
    dist.wait(x)
    got = []
    dist.stream.all_gather(got, x, sync_op=False).wait()
    same(got[0], tensor())


def test_groups_of_one():
    world = dist.get_group()
    assert (world.id, world.rank, world.nranks, world.ranks) == (0, 0, 1, [0])
    assert world.is_member() and world.get_group_rank(0) == 0
    group = dist.new_group([0], timeout=datetime.timedelta(seconds=5))
    assert dist.get_group(group.id) is group and group.id > 0
    x = tensor()
    dist.all_reduce(x, group=group)
    dist.all_reduce(x, group=group.id)
    same(x, tensor())
    assert dist.get_rank(group) == 0 and dist.get_world_size(group) == 1
    assert isinstance(dist.get_backend(group), str)
    assert f"id: {group.id}" in repr(group)
    with pytest.raises(ValueError, match="no group 99"):
        dist.all_reduce(x, group=99)
    with pytest.raises(TypeError, match="group must be None, a number or a Group"):
        dist.all_reduce(x, group="world")
    with pytest.raises(ValueError, match="rank"):
        dist.new_group([0, 1])


def test_a_group_that_was_destroyed_takes_no_calls():
    group = dist.new_group()
    dist.barrier(group)
    dist.destroy_process_group(group)
    with pytest.raises(RuntimeError, match=f"group {group.id} was destroyed"):
        dist.barrier(group)


def test_nobody_sends_to_himself():
    for call in (dist.send, dist.recv):
        with pytest.raises(ValueError, match="itself"):
            call(tensor(), 0)
    for call in (dist.isend, dist.irecv):
        with pytest.raises(ValueError, match="itself"):
            call(tensor(), 0).wait()
    with pytest.raises(RuntimeError, match="isend or"):
        dist.P2POp(dist.send, tensor(), 0)
    assert dist.batch_isend_irecv([]) == []


# -- arguments that make no sense


def test_bad_arguments_are_named():
    x = tensor()
    with pytest.raises(ValueError, match="src=3 is not in group 0"):
        dist.broadcast(x, 3)
    with pytest.raises(ValueError, match="dst=-1"):
        dist.reduce(x, -1)
    with pytest.raises(TypeError, match="all_gather: .* must be a list"):
        dist.all_gather(x, x)
    with pytest.raises(ValueError, match="all_gather: .* has 2"):
        dist.all_gather([tensor(), tensor()], x)
    with pytest.raises(ValueError, match="all_gather: .*float32"):
        dist.all_gather([paddle.zeros([3])], x)
    with pytest.raises(ValueError, match="scatter: .* list has 2"):
        dist.scatter(x, [x, x])
    with pytest.raises(TypeError):
        dist.all_reduce(np.ones(3))
    with pytest.raises(ValueError, match="Complex"):
        dist.all_reduce(paddle.to_tensor([1j]))
    with pytest.raises(ValueError, match="in_split_sizes"):
        dist.alltoall_single(x, x, [1], [2])
    with pytest.raises(ValueError, match="objects for 1 ranks"):
        dist.scatter_object_list([], [1, 2])


def test_a_shared_tensor_is_copied_before_it_changes():
    x = tensor()
    view = x[0]
    dist.all_reduce(view)
    same(x, tensor())


# -- what is not there


def test_what_is_not_built_says_so():
    with pytest.raises(NotImplementedError, match="'linear' over 2 ranks"):
        dist.split(tensor(), (2, 2), "linear", num_partitions=2)
    with pytest.raises(NotImplementedError, match="automatic parallel"):
        dist.shard_tensor
    with pytest.raises(AttributeError, match="nonsense"):
        dist.nonsense


def test_gloo_says_what_it_needs():
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        dist.gloo_init_parallel_env(0, 1, "127.0.0.1:6170")
    with pytest.raises(RuntimeError, match="gloo_init_parallel_env first"):
        dist.gloo_barrier()
    dist.gloo_release()  # nothing to release


def test_leaving_and_beginning_again():
    dist.destroy_process_group()
    x = tensor()
    dist.all_reduce(x)
    same(x, tensor())


# -- spawn, as far as one process goes


def give(value):
    return value, dist.get_rank(), dist.get_world_size()


def test_spawn_of_one():
    context = dist.spawn(give, args=(5,), nprocs=1, start_method="fork")
    assert context.return_queues[0].get() == (5, 0, 1)
    assert context.processes[0].exitcode == 0
