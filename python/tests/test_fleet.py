# SPDX-License-Identifier: Apache-2.0
"""The Fleet API in one process; test_fleet_job.py has it in jobs of several."""

import os
import subprocess
import sys

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
import pytest
from paddle import nn, static
from paddle.distributed.fleet.base.role_maker import Role

PREFIXES = ("PADDLE_", "TRAINING_ROLE", "POD_IP", "SLURM_", "OMPI_", "PMI_")
PREFIXES += ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "JOB_COMPLETION_INDEX")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Not in a job, whatever runs the tests; and no test leaves its role behind."""
    for name in list(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    yield
    paddle.disable_static()
    fleet.fleet.__init__()
    fleet.fleet._util = fleet.util
    fleet.util.__init__()


def server_job(role, index):
    """This process as one of two workers and two servers."""
    fleet.init(
        fleet.UserDefinedRoleMaker(
            current_id=index,
            role=role,
            worker_endpoints=["127.0.0.1:1", "127.0.0.1:2"],
            server_endpoints=["127.0.0.1:3", "127.0.0.1:4"],
        )
    )


def one_worker_job():
    """A collective job that happens to have one worker."""
    fleet.init(
        fleet.UserDefinedRoleMaker(
            is_collective=True, current_id=0, worker_endpoints=["127.0.0.1:1"]
        )
    )


# -- init


def test_functions_are_methods_of_the_one_fleet():
    assert isinstance(fleet.fleet, fleet.Fleet)
    for name in ("init", "worker_num", "minimize", "step", "_final_strategy"):
        assert getattr(fleet, name).__self__ is fleet.fleet
    assert fleet.util is fleet.fleet.util and isinstance(fleet.util, fleet.UtilBase)


def test_starting_up_loads_no_numpy():
    code = """
import sys
from paddle.distributed import fleet
fleet.init(is_collective=True)
print("numpy" in sys.modules)
assert fleet.metrics.acc
"""
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True) == "False\n"


def test_queries_alone():
    fleet.init()
    assert fleet.is_first_worker() is True and fleet.is_worker() is True
    assert fleet.is_server() is False and fleet.is_server(model_dir=None) is False
    assert fleet.worker_index() == fleet.rank() == fleet.server_index() == 0
    assert fleet.worker_num() == fleet.nranks() == fleet.node_num() == 1
    assert fleet.server_num() == fleet.local_rank() == 0
    assert fleet.worker_endpoints() == fleet.server_endpoints() == []
    assert fleet.worker_endpoints(to_string=True) == ""
    assert fleet.local_device_ids() == fleet.world_device_ids() == []


def test_queries_in_a_job_with_servers():
    server_job(Role.SERVER, 1)
    assert fleet.is_server() and not fleet.is_worker()
    assert not fleet.is_first_worker()
    assert fleet.server_index() == 1
    assert fleet.server_num() == fleet.worker_num() == 2
    assert fleet.server_endpoints() == ["127.0.0.1:3", "127.0.0.1:4"]
    assert fleet.server_endpoints(to_string=True) == "127.0.0.1:3,127.0.0.1:4"
    assert fleet.worker_endpoints(to_string=True) == "127.0.0.1:1,127.0.0.1:2"


def test_init_called_again_begins_anew():
    server_job(Role.SERVER, 1)
    fleet.init()
    assert fleet.is_worker() and fleet.server_num() == 0
    fleet.init(is_collective=True)
    assert fleet.worker_endpoints() == ["127.0.0.1:6170"]
    fleet.init(is_collective=True)
    assert fleet.worker_num() == 1


def test_init_checks_its_arguments_and_keeps_what_was():
    server_job(Role.WORKER, 1)
    with pytest.raises(ValueError, match="`is_collective` should be instance of"):
        fleet.init(is_collective="True")
    with pytest.raises(ValueError, match="`role_maker` should be subclass of"):
        fleet.init("worker")
    with pytest.raises(ValueError, match="`strategy` should be a Distributed"):
        fleet.init(is_collective=True, strategy={"amp": True})
    wrong = fleet.UserDefinedRoleMaker(current_id=0)
    with pytest.raises(ValueError, match="worker_num or worker_endpoints"):
        fleet.init(wrong)
    assert fleet.worker_index() == 1


def test_init_reads_the_launchers_variables(monkeypatch):
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:1")
    with pytest.raises(ValueError, match="Can not find PADDLE_TRAINERS_NUM"):
        fleet.init()
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("TRAINING_ROLE", "TRAINER")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    fleet.init()
    assert (fleet.worker_index(), fleet.worker_num()) == (2, 3)
    assert not fleet.is_first_worker()


def test_init_for_servers_in_a_job_without_servers_warns(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:1,127.0.0.1:2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    with pytest.warns(UserWarning, match="worker 1 of 2.*without is_collective=True"):
        fleet.init()
    assert fleet.worker_num() == 1
    monkeypatch.setenv("PADDLE_TRAINER_ID", "7")  # makes no sense, and is not asked for
    fleet.init()


def test_one_process_uses_one_gpu(monkeypatch):
    places = "paddle.distributed.fleet.base.fleet_base.cuda_places"
    monkeypatch.setattr(places, lambda: ["gpu:0", "gpu:1"])
    with pytest.raises(ValueError, match="only 1 card"):
        fleet.init(is_collective=True)
    fleet.init()
    monkeypatch.setattr(places, lambda: ["gpu:0"])
    fleet.init(is_collective=True)
    assert fleet.worker_num() == 1


def test_before_init_everything_says_so():
    for call in (fleet.worker_num, fleet.is_server, fleet.barrier_worker):
        with pytest.raises(RuntimeError, match="call fleet.init"):
            call()
    with pytest.raises(RuntimeError, match="call fleet.init"):
        fleet.distributed_model(nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="call fleet.init"):
        fleet.distributed_optimizer(paddle.optimizer.SGD())
    with pytest.raises(RuntimeError, match="call fleet.init"):
        fleet.util.barrier()


def test_a_strategy_may_come_with_init():
    strategy = fleet.DistributedStrategy()
    strategy.lamb = True
    fleet.init(is_collective=True, strategy=strategy)
    strategy.lamb = False  # a copy was kept
    with pytest.raises(NotImplementedError, match="lamb=True"):
        fleet.distributed_model(nn.Linear(1, 1))
    fleet.init(is_collective=True)
    with pytest.warns(UserWarning, match="single-card"):
        assert fleet.distributed_model(nn.Linear(1, 1))


# -- the life of a job with servers

LIFE = ("init_worker", "init_server", "run_server", "stop_worker")


@pytest.mark.parametrize(
    "name", ["init_worker", "init_server", "run_server", "stop_worker"]
)
def test_alone_there_are_no_servers(name):
    fleet.init()
    message = f"{name}\\(\\) function doesn't work when use non_distributed fleet"
    with pytest.warns(UserWarning, match=message):
        assert getattr(fleet, name)() is None


@pytest.mark.parametrize("name", LIFE)
def test_in_a_collective_job_there_are_no_servers(name):
    one_worker_job()
    with pytest.warns(UserWarning, match=f"should not call '{name}'"):
        assert getattr(fleet, name)() is None


def test_init_server_takes_a_model():
    fleet.init()
    with pytest.warns(UserWarning, match="non_distributed"):
        fleet.init_server("model", var_names=["a"])


def test_alone_nobody_is_waited_for():
    fleet.init()
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        fleet.barrier_worker()


# -- models and optimizers


def model_and_optimizer(strategy=None, learning_rate=0.1):
    layer = nn.Linear(3, 2)
    adam = paddle.optimizer.Adam(learning_rate, parameters=layer.parameters())
    optimizer = fleet.distributed_optimizer(adam, strategy)
    with pytest.warns(UserWarning, match="single-card"):
        return layer, fleet.distributed_model(layer), adam, optimizer


def test_the_distributed_optimizer_is_the_fleet():
    fleet.init(is_collective=True)
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1))
    assert optimizer is fleet.fleet
    assert optimizer.minimize == fleet.minimize


def test_one_process_trains_as_without_fleet():
    x = paddle.randn([8, 3])
    fleet.init(is_collective=True)
    layer, model, adam, optimizer = model_and_optimizer()
    twin = nn.Linear(3, 2)
    twin.set_state_dict(layer.state_dict())
    other = paddle.optimizer.Adam(0.1, parameters=twin.parameters())
    for _ in range(3):
        loss = model.scale_loss(model(x).square().mean())
        loss.backward()
        model.apply_collective_grads()
        optimizer.step()
        optimizer.clear_grad()
        twin(x).square().mean().backward()
        other.step()
        other.clear_grad()
    np.testing.assert_array_equal(layer.weight.numpy(), twin.weight.numpy())
    assert all(p.grad is None for p in layer.parameters())


def test_parameters_stay_the_same_objects():
    fleet.init(is_collective=True)
    layer, model, adam, optimizer = model_and_optimizer()
    assert [id(p) for p in model.parameters()] == [id(p) for p in layer.parameters()]
    assert list(model.state_dict()) == list(layer.state_dict())


def test_minimize_in_eager_mode():
    fleet.init(is_collective=True)
    layer, model, adam, optimizer = model_and_optimizer()
    before = layer.weight.numpy()
    loss = model(paddle.ones([1, 3])).sum()
    loss.backward()
    _, pairs = optimizer.minimize(loss)
    assert len(pairs) == 2
    assert np.abs(layer.weight.numpy() - before).min() > 0.05


def test_the_learning_rate():
    fleet.init(is_collective=True)
    layer, model, adam, optimizer = model_and_optimizer(learning_rate=0.01)
    assert optimizer.get_lr() == 0.01
    for rate in (0.2, 0.3):
        fleet.set_lr(rate)
        assert optimizer.get_lr() == adam.get_lr() == rate


def test_the_optimizers_state():
    fleet.init(is_collective=True)
    layer, model, adam, optimizer = model_and_optimizer()
    optimizer.set_state_dict(None)
    optimizer.set_state_dict({})
    model(paddle.ones([1, 3])).sum().backward()
    optimizer.step()
    state = {name: value.numpy() for name, value in optimizer.state_dict().items()}
    assert any("moment1" in name for name in state)
    optimizer.step()
    fleet.set_state_dict(state)
    for name, value in adam.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name])


def test_an_optimizer_has_to_be_there():
    fleet.init(is_collective=True)
    for call in (fleet.step, fleet.clear_grad, fleet.get_lr, fleet.state_dict):
        with pytest.raises(RuntimeError, match="call fleet.distributed_optimizer"):
            call()


def test_a_model_is_a_layer():
    fleet.init(is_collective=True)
    with pytest.raises(TypeError, match="takes a paddle.nn.Layer"):
        fleet.distributed_model(lambda x: x)


UNBUILT = "amp recompute localsgd adaptive_localsgd dgc gradient_merge lars lamb "
UNBUILT += "pipeline sharding fp16_allreduce tensor_parallel asp qat"


@pytest.mark.parametrize("name", UNBUILT.split())
def test_what_changes_results_and_is_not_built_is_refused(name):
    strategy = fleet.DistributedStrategy()
    setattr(strategy, name, True)
    fleet.init(is_collective=True, strategy=strategy)
    message = f"{name}=True.*does not have yet"
    with pytest.raises(NotImplementedError, match=message):
        fleet.distributed_model(nn.Linear(1, 1))
    with pytest.raises(NotImplementedError, match=message):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1))
    fleet.init(is_collective=True)
    with pytest.raises(NotImplementedError, match=message):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)


def test_hints_are_accepted():
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.nccl_comm_num = 2
    strategy.fuse_grad_size_in_MB = 16
    strategy.last_comm_group_size_MB = 2
    strategy.cudnn_exhaustive_search = False
    strategy.build_strategy.fuse_all_optimizer_ops = True
    _, model, _, _ = model_and_optimizer(strategy)
    assert isinstance(model, paddle.DataParallel)


def test_sync_batch_norm_takes_the_place_of_batch_norm():
    strategy = fleet.DistributedStrategy()
    strategy.sync_batch_norm = True
    fleet.init(is_collective=True, strategy=strategy)
    layer = nn.Sequential(nn.Conv2D(1, 2, 3), nn.BatchNorm2D(2), nn.ReLU())
    scale = layer[1].weight
    with pytest.warns(UserWarning, match="single-card"):
        model = fleet.distributed_model(layer)
    kinds = {type(below) for below in model.sublayers()}
    assert nn.SyncBatchNorm in kinds and nn.BatchNorm2D not in kinds
    assert any(p is scale for p in model.parameters())


def test_eager_models_need_a_collective_job():
    server_job(Role.WORKER, 0)
    with pytest.raises(NotImplementedError, match="jobs with servers train programs"):
        fleet.distributed_model(nn.Linear(1, 1))


# -- static graphs


def small_program():
    """(main, startup, loss) of a linear model."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3])
        loss = paddle.mean(static.nn.fc(x, 2))
    return main, startup, loss


def types_of(program):
    return [op.type for op in program.global_block().ops]


def test_a_program_of_one_worker_is_trained_as_it_is():
    paddle.enable_static()
    fleet.init(is_collective=True)
    assert fleet.worker_num() == 1
    main, startup, loss = small_program()
    sgd = paddle.optimizer.SGD(learning_rate=0.1)
    assert fleet.distributed_optimizer(sgd) is fleet.fleet
    assert fleet._final_strategy() == {}
    operations, pairs = fleet.minimize(loss, startup)
    assert [op.type for op in operations] == ["sgd", "sgd"]
    assert len(pairs) == 2
    assert not any(kind.startswith("c_") for kind in types_of(main))
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    feed = {"x": np.ones((4, 3), "float32")}
    first, last = (float(exe.run(main, feed, [loss])[0].ravel()[0]) for _ in "ab")
    # Three weights and a bias of either output fall by rate * 1/2.
    assert first - last == pytest.approx(0.1 * 0.5 * (3 + 1), rel=1e-4)
    assert isinstance(fleet._final_strategy(), fleet.DistributedStrategy)
    assert fleet._get_applied_meta_list() == fleet._get_applied_graph_list() == []


def test_a_program_has_what_is_run_for_it_with_the_wishes_of_the_strategy():
    paddle.enable_static()
    fleet.init(is_collective=True)
    main, startup, loss = small_program()
    strategy = fleet.DistributedStrategy()
    strategy.build_strategy = static.BuildStrategy()
    threads = static.ExecutionStrategy()
    threads.num_threads = 3
    strategy.execution_strategy = threads
    assert main._graph is None
    sgd = paddle.optimizer.SGD(learning_rate=0.1)
    fleet.distributed_optimizer(sgd, strategy).minimize(loss, startup)
    compiled = main._graph
    assert isinstance(compiled, static.CompiledProgram)
    assert compiled._exec_strategy.num_threads == 3
    assert compiled._loss_name == loss.name
    assert main.clone()._graph is None and main.clone(for_test=True)._graph is None
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    feed = {"x": np.ones((4, 3), "float32")}
    losses = [
        exe.run(program, feed, [loss])[0].item() for program in (main, compiled, main)
    ]
    steps = -np.diff(losses)
    np.testing.assert_allclose(steps, [0.1 * 0.5 * (3 + 1)] * 2, 1e-4)


@pytest.mark.parametrize(
    "flag, optimizer, kind",
    [("lars", "Momentum", "lars_momentum"), ("lamb", "Adam", "lamb")],
)
def test_strategies_that_change_the_optimizer_of_a_program(flag, optimizer, kind):
    paddle.enable_static()
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    setattr(strategy, flag, True)
    main, startup, loss = small_program()
    rule = getattr(paddle.optimizer, optimizer)(learning_rate=0.1)
    fleet.distributed_optimizer(rule, strategy).minimize(loss, startup)
    assert types_of(main).count(kind) == 2
    assert optimizer.lower() not in types_of(main)
    assert fleet._get_applied_meta_list() == [f"{flag.capitalize()}Optimizer"]
    # Another optimizer stays as it is.
    main, startup, loss = small_program()
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
    with pytest.warns(UserWarning, match=f"strategy.{flag} is for {optimizer}"):
        fleet.minimize(loss, startup)
    assert types_of(main).count("sgd") == 2
    assert fleet._get_applied_meta_list() == []


def test_strategies_that_programs_do_not_have_are_named():
    paddle.enable_static()
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.dgc = True
    main, startup, loss = small_program()
    before = str(main)
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
    with pytest.raises(NotImplementedError, match="dgc=True"):
        fleet.minimize(loss, startup)
    assert str(main) == before


def test_models_of_layers_are_distributed_in_eager_mode_only():
    paddle.enable_static()
    fleet.init(is_collective=True)
    with pytest.raises(NotImplementedError, match="is for eager mode"):
        fleet.distributed_model(nn.Linear(1, 1))


@pytest.mark.parametrize(
    "name, reason",
    [
        ("get_hybrid_communicate_group", "hybrid parallel training"),
    ],
)
def test_what_comes_later_says_with_what(name, reason):
    fleet.init()
    with pytest.raises(NotImplementedError, match=f"{name}\\(\\) comes with {reason}"):
        getattr(fleet, name)()


def test_programs_in_files_of_both_kinds(tmp_path):
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()):
        paddle.enable_static()
        try:
            paddle.tanh(paddle.static.data("x", [None, 2]))
        finally:
            paddle.disable_static()
    folder, text = str(tmp_path), str(program)
    fleet.util._save_program(program, str(tmp_path / "net"))
    assert str(fleet.util._load_program(tmp_path / "net", is_text=False)) == text
    assert fleet.util._program_type_trans(folder, "net", False) == "net.pbtxt"
    assert (tmp_path / "net.pbtxt").read_text() == text
    assert fleet.util._program_type_trans(folder, "net.pbtxt", True) == "net.pbtxt.bin"
    assert (tmp_path / "net.pbtxt.bin").read_bytes() == (tmp_path / "net").read_bytes()
    (tmp_path / "net.pbtxt").write_text("{ // block 0\n  nonsense\n}\n")
    with pytest.raises(ValueError, match="net.pbtxt.*line 2"):
        fleet.util._load_program(tmp_path / "net.pbtxt", is_text=True)


def test_modules_that_come_later_say_with_what():
    with pytest.raises(NotImplementedError, match="meta optimizers as classes"):
        _ = fleet.meta_optimizers
    with pytest.raises(NotImplementedError, match="load_inference_model"):
        fleet.util._visualize_graphviz(None, "folder", "name")
    with pytest.raises(AttributeError, match="no attribute 'captain'"):
        _ = fleet.util.captain
    assert not hasattr(fleet, "captain")


# -- fleet.util


def test_files_are_dealt_in_blocks():
    files = [f"part-{i}" for i in range(5)]
    shards = []
    for index in (0, 1):
        server_job(Role.WORKER, index)
        shards.append(fleet.util.get_file_shard(files))
    assert shards == [files[:3], files[3:]]
    assert fleet.util.get_file_shard(["one"]) == []
    with pytest.raises(TypeError, match="files should be a list"):
        fleet.util.get_file_shard("part-0")


def test_files_alone_are_all_mine():
    fleet.init()
    assert fleet.util.get_file_shard(["a", "b"]) == ["a", "b"]
    assert fleet.util.get_file_shard([]) == []


def test_printing_on_one_worker(capsys):
    server_job(Role.WORKER, 1)
    fleet.util.print_on_rank("from zero", 0)
    fleet.util.print_on_rank("from one", 1)
    assert capsys.readouterr().out == "from one\n"


def test_util_alone_warns_and_returns_what_it_got():
    fleet.init(is_collective=True)
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        np.testing.assert_array_equal(fleet.util.all_reduce([1, 2], "max"), [1, 2])
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        assert fleet.util.all_gather(3) == 3
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        fleet.util.barrier()
    with pytest.raises(ValueError, match="comm_world must in"):
        fleet.util.barrier("captain")
