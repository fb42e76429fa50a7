# SPDX-License-Identifier: Apache-2.0
"""What a worker of a job with servers calls, against a server that a thread of this
process runs. Jobs of several processes are in tests/server_scripts."""

import os
import socket
import threading

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import _core, static
from paddle.distributed import fleet
from paddle.distributed.fleet import utils
from paddle.distributed.fleet.utils import ps_util
from paddle.fluid.incubate.fleet import collective
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    distributed_strategy,
)
from paddle.optimizer import lr

PREFIXES = ("PADDLE_", "TRAINING_ROLE", "POD_IP", "SLURM_", "OMPI_", "PMI_", "FLEET_")
PREFIXES += ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "FLAGS_communicator")
IDS = np.array([[3], [7], [3], [11]])
LABELS = np.array([[1.0], [0.0], [1.0], [0.5]], "float32")


class Server:
    """A server of one worker, on a thread."""

    def __init__(self, monkeypatch):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.endpoint = f"127.0.0.1:{bound.getsockname()[1]}"
            # The server takes the socket over, so that nobody else gets the port.
            monkeypatch.setenv("FLEET_LISTEN_FD", str(bound.detach()))
        monkeypatch.setenv("FLEET_TIMEOUT", "60")
        role = _core.make_user_role(
            is_collective=False,
            kind=role_maker.Role.SERVER,
            current_id=0,
            worker_num=1,
            worker_endpoints=[],
            server_endpoints=[self.endpoint],
            heter_worker_endpoints=[],
        )
        self.failure = None
        self._thread = threading.Thread(target=self._serve, args=[role], daemon=True)
        self._thread.start()

    def _serve(self, role):
        try:
            _core.run_server(role, "", [])
        except Exception as error:
            self.failure = error

    def has_ended(self):
        self._thread.join(60)
        return not self._thread.is_alive() and self.failure is None


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """Static mode with programs of its own, in no job that runs the tests."""
    for name in list(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    paddle.enable_static()
    with static.program_guard(static.Program(), static.Program()):
        with paddle.utils.unique_name.guard(), static.scope_guard(static.Scope()):
            yield
    static.executor.set_stand_in(None)
    fleet.fleet.__init__()
    fleet.fleet._util = fleet.util
    fleet.util.__init__()
    distribute_transpiler.fleet.__init__()
    collective.fleet.__init__()
    paddle.disable_static()


@pytest.fixture
def server(monkeypatch):
    """A server; the test stops its worker, upon which it ends."""
    started = Server(monkeypatch)
    yield started
    assert started.has_ended(), started.failure


NAMES = {"table": "table", "weight": "weight", "bias": "bias"}


def net(names=NAMES):
    """(loss, prediction) from ids, whose rows a table has that grows."""
    ids = static.data("ids", [None, 1], "int64")
    label = static.data("label", [None, 1], "float32")
    fill = paddle.nn.initializer.Constant(0.1)
    rows = static.nn.sparse_embedding(
        ids,
        [50, 4],
        param_attr=paddle.ParamAttr(name=names["table"], initializer=fill),
    )
    out = static.nn.fc(
        paddle.reshape(rows, [-1, 4]),
        1,
        weight_attr=paddle.ParamAttr(name=names["weight"], initializer=fill),
        bias_attr=paddle.ParamAttr(name=names["bias"]),
    )
    loss = paddle.mean(paddle.nn.functional.square_error_cost(out, label))
    return loss, out


class Job:
    """The worker of a sync job; its programs, ready to run."""

    def __init__(self, server, optimizer=None, names=NAMES):
        fleet.init(
            fleet.UserDefinedRoleMaker(
                current_id=0,
                role=fleet.Role.WORKER,
                worker_num=1,
                server_endpoints=[server.endpoint],
            )
        )
        self.names = names
        self.loss, self.out = net(names)
        self.test = static.default_main_program().clone(for_test=True)
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = False
        strategy.a_sync_configs = {"k_steps": 0}
        optimizer = optimizer or paddle.optimizer.SGD(0.1)
        fleet.distributed_optimizer(optimizer, strategy)
        fleet.minimize(self.loss)
        self.exe = static.Executor(paddle.CPUPlace())
        self.exe.run(static.default_startup_program())
        self.worker = fleet.fleet._training.worker

    def step(self, ids=IDS):
        feed = {"ids": ids, "label": LABELS}
        return self.exe.run(feed=feed, fetch_list=[self.loss])[0].item()

    def values(self):
        """What the server holds."""
        return {
            "table": self.worker.pull_rows(self.names["table"], 0, 50).numpy(),
            "weight": self.worker.pull_dense(self.names["weight"]).numpy(),
            "bias": self.worker.pull_dense(self.names["bias"]).numpy(),
        }

    def num_rows(self):
        return self.worker.table_stats("table")["rows"]


def assert_same(values, others):
    for name, value in values.items():
        np.testing.assert_array_equal(value, others[name], err_msg=name)


# -- paddle.distributed.fleet


def test_shrink_drops_rows_that_nobody_asked_for(server):
    job = Job(server)
    job.step()
    assert job.num_rows() == 3
    for days in (True, -1, 2.5):
        with pytest.raises(ValueError, match="threshold must be a number of days"):
            fleet.shrink(days)
    assert fleet.shrink(2) == 0
    job.step(np.full_like(IDS, 7))
    assert fleet.shrink(2) == 2
    assert job.num_rows() == 1
    assert fleet.shrink() == 0  # 30 days
    fleet.stop_worker()


def test_load_model_takes_back_what_was_saved(server, tmp_path):
    job = Job(server)
    job.step()
    fleet.save_persistables(job.exe, str(tmp_path))
    saved = job.values()
    job.step()
    job.step(IDS + 1)
    changed = job.values()
    assert all((changed[name] != value).any() for name, value in saved.items())
    fleet.load_model(str(tmp_path))
    assert_same(job.values(), saved)
    assert job.num_rows() == 3
    # The worker's own copies as well: a test program reads them.
    fetched = job.exe.run(
        job.test, {"ids": IDS, "label": LABELS}, fetch_list=[job.out]
    )[0]
    rows = saved["table"][IDS.ravel()]
    np.testing.assert_allclose(
        fetched, rows @ saved["weight"] + saved["bias"], rtol=1e-6
    )
    with pytest.raises(Exception, match="nowhere"):
        fleet.load_model(str(tmp_path / "nowhere"))
    fleet.stop_worker()


@pytest.mark.parametrize(
    "names",
    [
        {"table": "enc/table", "weight": "enc/w", "bias": "enc/deep/b"},
        {"table": "../table", "weight": "../evil", "bias": "/etc/bias"},
        {"table": ".table", "weight": "a/../../w", "bias": ".."},
    ],
    ids=["parts", "outside", "dots"],
)
def test_no_name_leads_out_of_the_folder_of_a_save(server, tmp_path, names):
    job = Job(server, names=names)
    job.step()
    folder = tmp_path / "a" / "b"
    fleet.save_persistables(job.exe, str(folder))
    assert os.listdir(tmp_path) == ["a"] and os.listdir(tmp_path / "a") == ["b"]
    saved = job.values()
    job.step()
    fleet.load_model(str(folder))
    assert_same(job.values(), saved)
    # Paddle has the parts of a name as folders.
    assert (folder / "enc" / "w").exists() == (names["weight"] == "enc/w")
    state = static.load_program_state(
        str(folder), [static.default_main_program().global_block().var(names["bias"])]
    )
    np.testing.assert_array_equal(state[names["bias"]], saved["bias"])
    fleet.stop_worker()


def test_save_cache_model_writes_the_tables(server, tmp_path):
    job = Job(server)
    job.step()
    folder = tmp_path / "cache"
    assert fleet.save_cache_model(str(folder)) == 3
    names = os.listdir(folder)
    assert any(name.startswith("table.") and name.endswith(".rows") for name in names)
    job.step(IDS + 20)
    assert fleet.save_cache_model(str(folder), mode=2) == 6
    (table,) = fleet.fleet._training.sparse_tables()
    assert fleet.save_cache_model(str(folder), table_id=table.id) == 6
    assert fleet.save_cache_model(str(folder), table_id=table.id + 100) == 0
    with pytest.raises(ValueError, match="mode must be 0"):
        fleet.save_cache_model(str(folder), mode=7)
    saved = job.values()
    job.step()
    fleet.load_model(str(folder))
    assert_same({"table": job.values()["table"]}, saved)
    fleet.stop_worker()


def test_save_dense_params_writes_what_is_in_no_table(server, tmp_path):
    job = Job(server)
    job.step()
    program = static.default_main_program()
    fleet.save_dense_params(job.exe, str(tmp_path / "all"), None, program)
    assert {"weight", "bias"} <= set(os.listdir(tmp_path / "all"))
    assert "table" not in os.listdir(tmp_path / "all")
    one, scope = tmp_path / "one", static.global_scope()
    fleet.save_dense_params(job.exe, str(one), scope, program, ["bias"])
    assert os.listdir(one) == ["bias"]
    with pytest.raises(ValueError, match="keeps no table outside of sparse tables"):
        fleet.save_dense_params(job.exe, str(one), scope, program, ["table"])
    saved = job.values()
    job.step()
    with static.scope_guard(static.Scope()), static.program_guard(static.Program()):
        block = static.default_main_program().global_block()
        for name in ("weight", "bias"):
            value = saved[name]
            block.create_var(
                name=name, shape=value.shape, dtype="float32", persistable=True
            )
        fluid.io.load_vars(
            job.exe,
            str(tmp_path / "all"),
            static.default_main_program(),
            vars=[block.var("weight"), block.var("bias")],
        )
        for name in ("weight", "bias"):
            tensor = static.global_scope().find_var(name).get_tensor()
            np.testing.assert_array_equal(np.array(tensor), saved[name])
    fleet.stop_worker()


def test_a_job_that_trains_infers_too(server):
    job = Job(server)
    for _ in range(3):
        job.step()
    infer = utils.DistributedInfer(main_program=job.test)
    assert infer.origin_main_program is not job.test
    infer.init_distributed_infer_env(job.exe, job.loss)
    program = infer.get_dist_infer_program()
    assert program is infer.get_dist_infer_program()
    ids = np.array([[3], [40]])  # the second was never seen
    feed = {"ids": ids, "label": LABELS[:2]}
    (predicted,) = job.exe.run(program, feed, fetch_list=[job.out])
    values = job.values()
    expected = values["table"][ids.ravel()] @ values["weight"] + values["bias"]
    np.testing.assert_allclose(predicted, expected, rtol=1e-6)
    np.testing.assert_array_equal(values["table"][40], np.full(4, 0.1, "float32"))
    assert job.num_rows() == 3  # it made none
    fleet.stop_worker()


def test_inference_without_servers_is_that_of_the_program():
    fleet.init()
    loss, out = net()
    infer = ps_util.DistributedInfer()
    assert ps_util.DistributedInfer is utils.DistributedInfer
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    with pytest.raises(RuntimeError, match="'saved' are for servers.*--server_num"):
        infer.init_distributed_infer_env(exe, loss, dirname="saved")
    infer.init_distributed_infer_env(exe, loss)
    program = infer.get_dist_infer_program()
    assert program is infer.origin_main_program
    feed = {"ids": IDS, "label": LABELS}
    (expected,) = exe.run(feed=feed, fetch_list=[out])
    (predicted,) = exe.run(program, feed, fetch_list=[out.name])
    np.testing.assert_array_equal(predicted, expected)


def test_datasets_lie_beside_fleet():
    for name in ("InMemoryDataset", "QueueDataset", "DatasetBase"):
        assert name in fleet.dataset.__all__
    assert fleet.dataset.InMemoryDataset is paddle.distributed.InMemoryDataset
    assert fleet.dataset.QueueDataset is paddle.distributed.QueueDataset
    assert issubclass(fleet.dataset.QueueDataset, fleet.dataset.DatasetBase)


def losses_of(run, scheduler, metrics):
    """The losses of eight steps; the scheduler advances after each."""
    losses = []
    for number in range(8):
        losses.append(run())
        scheduler.step(*([metrics[number]] if metrics else []))
    return losses


@pytest.mark.parametrize(
    "make, metrics",
    [
        (
            lambda: lr.ReduceOnPlateau(0.2, patience=1, factor=0.1),
            [3, 2, 2, 2, 2, 1, 1],
        ),
        (lambda: lr.LambdaDecay(0.2, lambda n: 1.0 / (1 + n)), None),
        (lambda: lr.MultiplicativeDecay(0.2, lambda n: 0.5), None),
    ],
)
def test_servers_follow_schedulers_that_only_python_knows(server, make, metrics):
    metrics = metrics and [*metrics, 1]
    scheduler = make()
    job = Job(server, paddle.optimizer.Momentum(scheduler, 0.9))
    together = losses_of(job.step, scheduler, metrics)
    assert job.values()["table"].std() > 0
    fleet.stop_worker()
    fleet.fleet._training.forget()

    with static.program_guard(static.Program(), static.Program()):
        with static.scope_guard(static.Scope()):
            loss, _ = net()
            scheduler = make()
            paddle.optimizer.Momentum(scheduler, 0.9).minimize(loss)
            exe = static.Executor(paddle.CPUPlace())
            exe.run(static.default_startup_program())
            feed = {"ids": IDS, "label": LABELS}
            alone = losses_of(
                lambda: exe.run(feed=feed, fetch_list=[loss])[0].item(),
                scheduler,
                metrics,
            )
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert scheduler() < 0.2  # it did change


# -- the older Fleet


def older_role(server):
    return role_maker.UserDefinedRoleMaker(
        0, role_maker.Role.WORKER, 1, [server.endpoint]
    )


def test_the_older_fleet_trains_saves_and_stops(server, tmp_path):
    older = distribute_transpiler.fleet
    assert isinstance(older, distribute_transpiler.FleetTranspiler)
    older.init(older_role(server))
    loss, _ = net()
    sgd = fluid.optimizer.SGD(0.1)
    optimizer = older.distributed_optimizer(sgd, distribute_transpiler.SyncStrategy())
    assert type(optimizer) is distribute_transpiler.ParameterServerOptimizer
    assert (
        distribute_transpiler.TranspilerOptimizer
        is distribute_transpiler.ParameterServerOptimizer
    )
    optimizer.minimize(loss)
    older.init_worker()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(older.startup_program)
    feed = {"ids": IDS, "label": LABELS}
    losses = [
        exe.run(older.main_program, feed, fetch_list=[loss])[0].item()
        for _ in range(10)
    ]
    assert losses[-1] < losses[0]
    older.save_persistable(exe, str(tmp_path))
    names = set(os.listdir(tmp_path))
    assert {"weight", "bias"} <= names
    assert any(name.startswith("table.") for name in names)
    assert older.shrink(1) == 3

    given, total = np.array([[1.5, 2.0]]), np.zeros((1, 2))
    older.all_reduce_worker(given, total)
    np.testing.assert_array_equal(total, given)
    older.barrier_worker()
    older.stop_worker()
    assert server.has_ended()


def test_role_makers_of_the_older_fleet_speak_through_servers(server):
    older, role = distribute_transpiler.fleet, older_role(server)
    with pytest.raises(RuntimeError, match=r"fleet.init\(\) with this role maker"):
        role.barrier_all()
    older.init(role)
    role.barrier_all()
    given, total = np.arange(6).reshape(2, 3), np.zeros((2, 3))
    role.all_reduce_worker(given, total)
    np.testing.assert_array_equal(total, given)
    role.all_reduce_worker(given - 1, total, mode="max")
    np.testing.assert_array_equal(total, given - 1)
    with pytest.raises(ValueError, match="mode must be sum, max or min"):
        role.all_reduce_worker(given, total, mode="mean")
    assert role.all_gather("here") == ["here"]
    older.stop_worker()


def test_a_server_waits_at_no_barrier():
    role = role_maker.UserDefinedRoleMaker(
        0, role_maker.Role.SERVER, 1, ["127.0.0.1:6001"]
    )
    assert role.is_server()
    assert role.barrier_all() is None


@pytest.mark.parametrize(
    "name, mode",
    [
        ("SyncStrategy", ("sync", 0)),
        ("AsyncStrategy", ("async", 0)),
        ("HalfAsyncStrategy", ("half_async", 0)),
        ("GeoStrategy", ("geo", 100)),
    ],
)
def test_strategies_by_their_classes(name, mode):
    strategy = getattr(distribute_transpiler, name)()
    assert isinstance(strategy, distribute_transpiler.DistributedStrategy)
    assert strategy._mode() == mode
    assert strategy.get_program_config().sync_mode == (name == "SyncStrategy")


def test_geo_has_a_period():
    assert distribute_transpiler.GeoStrategy(7)._mode() == ("geo", 7)
    assert distribute_transpiler.GeoStrategy(update_frequency=3)._mode()[1] == 3
    with pytest.raises(ValueError, match="geo_sgd_need_push_nums"):
        distribute_transpiler.GeoStrategy(0)._mode()


def test_servers_of_the_older_fleet_have_settings(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_get_thread_num", "5")
    config = distributed_strategy.ServerRuntimeConfig()
    assert config._rpc_get_thread_num == 5 and config._rpc_send_thread_num == 12
    strategy = distribute_transpiler.AsyncStrategy()
    strategy.set_server_runtime_config({"_rpc_send_thread_num": 3})
    assert strategy.get_server_runtime_config()._rpc_send_thread_num == 3
    strategy.set_server_runtime_config(config)
    assert strategy.get_server_runtime_config()._rpc_get_thread_num == 5
    with pytest.raises(ValueError, match="ServerRuntimeConfig doesn't have key: x"):
        strategy.set_server_runtime_config({"x": 1})


def test_the_older_collective_fleet_is_one_for_all():
    older = collective.fleet
    assert isinstance(older, collective.Collective)
    older.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    loss, _ = net()
    optimizer = collective.CollectiveOptimizer(fluid.optimizer.SGD(0.1))
    # A list of one loss, as some scripts have it.
    optimizer.minimize([loss])
    assert older.main_program is static.default_main_program()
    assert older.startup_program is static.default_startup_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(older.startup_program)
    feed = {"ids": IDS, "label": LABELS}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(10)]
    assert losses[-1] < losses[0]
    with pytest.raises(ValueError, match="one of losses, not 2"):
        optimizer.minimize([loss, loss])
    made = older.distributed_optimizer(fluid.optimizer.SGD(0.1))
    assert type(made) is collective.CollectiveOptimizer


# -- the transpiler


@pytest.mark.parametrize("function", ["memory_optimize", "release_memory"])
def test_memory_is_planned_without_being_asked(function):
    loss, _ = net()
    fluid.optimizer.SGD(0.1).minimize(loss)
    program, exe = static.default_main_program(), fluid.Executor(fluid.CPUPlace())
    exe.run(static.default_startup_program())
    feed = {"ids": IDS, "label": LABELS}
    before = str(program)
    assert getattr(fluid.transpiler, function)(program, skip_opt_set={"x"}) is None
    assert str(program) == before
    first, second = (
        exe.run(program, feed, fetch_list=[loss])[0].item() for _ in range(2)
    )
    assert second < first


def test_a_dispatcher_is_what_its_class_says():
    from paddle.fluid.transpiler import ps_dispatcher

    class LastOnly(ps_dispatcher.PSDispatcher):
        def dispatch(self, varlist):
            return [self.eps[-1] for _ in varlist]

    ends = ["127.0.0.1:1", "127.0.0.1:2"]
    assert LastOnly(ends).dispatch(["a", "b"]) == [ends[1]] * 2
    plain = ps_dispatcher.PSDispatcher(ends)
    plain.reset()
    assert plain.eps == ends and plain._step == 0
    with pytest.raises(NotImplementedError, match="PSDispatcher does not deal"):
        plain.dispatch(["a"])
    config = fluid.transpiler.DistributeTranspilerConfig()
    config.split_method = LastOnly
    assert fluid.DistributeTranspiler(config).config.split_method is LastOnly
    config.split_method = dict
    with pytest.raises(ValueError, match="must be a PSDispatcher"):
        fluid.DistributeTranspiler(config)
