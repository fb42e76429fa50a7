# SPDX-License-Identifier: Apache-2.0
"""Jobs with servers as far as one process shows them: programs, strategies, roles,
errors. tests/server_scripts has them running."""

import os

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
import paddle.fluid as fluid
import pytest
from paddle import static
from paddle.distributed.fleet.base import served_training, server_mode
from paddle.distributed.fleet.base.role_maker import Role
from paddle.distributed.fleet.base.server_mode import Mode, learning_rate_of, mode_of

PREFIXES = ("PADDLE_", "TRAINING_ROLE", "POD_IP", "SLURM_", "OMPI_", "PMI_")
PREFIXES += ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "FLAGS_communicator")


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """Static mode with programs of its own, in no job that runs the tests."""
    for name in list(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    paddle.enable_static()
    with static.program_guard(static.Program(), static.Program()):
        with paddle.utils.unique_name.guard():
            yield
    if fleet.fleet._training is not None:
        fleet.fleet._training.forget()
    fleet.fleet.__init__()
    fleet.fleet._util = fleet.util
    fleet.util.__init__()
    paddle.disable_static()


def server_job(role=Role.WORKER, index=0):
    fleet.init(
        fleet.UserDefinedRoleMaker(
            current_id=index,
            role=role,
            worker_num=2,
            server_endpoints=["127.0.0.1:3", "127.0.0.1:4"],
        )
    )


def net(embedding=None):
    """A loss from two slots of ids and a label."""
    ids = static.data("ids", [None, 1], "int64")
    label = static.data("label", [None, 1], "float32")
    embedding = embedding or static.nn.sparse_embedding
    attr = paddle.ParamAttr(name="table")
    rows = paddle.reshape(embedding(ids, size=[50, 4], param_attr=attr), [-1, 4])
    out = static.nn.fc(rows, 1)
    return paddle.mean(paddle.nn.functional.square_error_cost(out, label))


def strategy_of(a_sync=True, **configs):
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = a_sync
    strategy.a_sync_configs = configs
    return strategy


def minimize(loss, strategy=None, optimizer=None):
    optimizer = optimizer or paddle.optimizer.SGD(0.1)
    return fleet.distributed_optimizer(optimizer, strategy).minimize(loss)


def types(program=None):
    program = program or static.default_main_program()
    return [op.type for op in program.global_block().ops]


# -- programs


@pytest.mark.parametrize(
    "strategy, last",
    [
        (lambda: strategy_of(False), "send_barrier"),
        (lambda: strategy_of(True), "recv"),
        (lambda: None, "recv"),
        (lambda: strategy_of(True, k_steps=10), "geo_step"),
    ],
)
def test_the_last_operation_ends_the_step_as_the_mode_wants(strategy, last):
    server_job()
    minimize(net(), strategy())
    main, startup = types(), types(static.default_startup_program())
    assert main[-1] == last
    assert main.count("distributed_lookup_table") == 1
    assert main.count("distributed_push_sparse") == 1
    assert ("sgd" in main) == (last == "geo_step")
    assert "fake_init" in startup and startup[-1] == "ps_init"
    assert fleet._get_applied_graph_list() == ["ParameterServerOptimizer"]


def test_a_server_makes_the_same_tables():
    found = []
    for role in (Role.WORKER, Role.SERVER):
        server_job(role)
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard():
            minimize(net())
        found.append([repr(t) for t in fleet.fleet._training.tables])
    assert found[0] == found[1] and len(found[0]) == 3


@pytest.mark.parametrize(
    "embedding, sparse, bounded",
    [
        (static.nn.sparse_embedding, True, False),
        (lambda *a, **k: static.nn.embedding(*a, is_sparse=True, **k), True, True),
        (
            lambda *a, **k: static.nn.embedding(*a, is_distributed=True, **k),
            True,
            False,
        ),
        (lambda *a, **k: fluid.layers.embedding(*a, is_sparse=True, **k), True, True),
        (fluid.contrib.sparse_embedding, True, False),
        (static.nn.embedding, False, False),
    ],
)
def test_which_embeddings_are_sparse_tables(embedding, sparse, bounded):
    server_job()
    minimize(net(embedding))
    (table,) = [t for t in fleet.fleet._training.tables if t.parameter == "table"]
    assert (table.sparse, table.bounded) == (sparse, bounded)
    assert table.shape == [50, 4]


def test_a_clone_made_before_minimize_asks_servers_for_rows():
    server_job()
    loss = net()
    test = static.default_main_program().clone(for_test=True)
    minimize(loss)
    training = fleet.fleet._training
    run = training.program_to_run(test)
    assert "distributed_lookup_table" in types(run) and run is not test
    assert "lookup_table" in types(test)
    assert training.program_to_run(test) is run
    (lookup,) = [
        op for op in run.global_block().ops if op.type == "distributed_lookup_table"
    ]
    assert lookup.attr("is_test") is True
    main = static.default_main_program()
    assert training.program_to_run(main) is main


def test_the_program_as_it_was_is_kept():
    server_job()
    minimize(net())
    training = fleet.fleet._training
    origin = training.origin_of(static.default_main_program())
    assert "lookup_table" in types(origin) and "sgd" in types(origin)


def test_a_program_that_servers_cannot_serve_stays_as_it_was():
    server_job()
    loss = net()
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.SGD(0.1, grad_clip=clip)
    with pytest.raises(NotImplementedError, match="table"):
        minimize(loss, optimizer=optimizer)
    assert "sgd" in types() and "send" not in types()


# -- strategies


@pytest.mark.parametrize(
    "strategy, mode",
    [
        (lambda: fleet.DistributedStrategy(), Mode("async")),
        (lambda: strategy_of(True), Mode("async")),
        (lambda: strategy_of(False), Mode("sync")),
        (lambda: strategy_of(True, k_steps=400), Mode("geo", 400)),
    ],
)
def test_a_strategy_chooses_a_mode(strategy, mode):
    assert mode_of(strategy()) == mode


def test_a_mode_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="k_steps must be invalid value"):
        mode_of(strategy_of(False, k_steps=3))
    with pytest.raises(ValueError, match="k_steps must be invalid value"):
        mode_of(strategy_of(True, k_steps=-2))


def test_auto_is_geo_for_sgd_in_memory_and_else_async(monkeypatch):
    strategy = fleet.DistributedStrategy()
    strategy.auto = True
    net()
    program = static.default_main_program()
    sgd, adam = paddle.optimizer.SGD(0.1), paddle.optimizer.Adam(0.1)
    assert mode_of(strategy, sgd, program) == Mode("geo", 800)
    assert mode_of(strategy, fluid.optimizer.SGD(0.1), program) == Mode("geo", 800)
    assert mode_of(strategy, adam, program) == Mode("async")
    monkeypatch.setattr(server_mode, "_free_memory", lambda: 1000)
    assert mode_of(strategy, sgd, program) == Mode("async")


def test_queues_follow_the_strategy_then_the_environment(monkeypatch):
    settings = server_mode.queue_settings
    assert settings(fleet.DistributedStrategy()) == {}
    changed = strategy_of(max_merge_var_num=5, send_queue_size=7)
    assert settings(changed) == {"max_merge": 5, "queue_size": 7}
    monkeypatch.setenv("FLAGS_communicator_max_merge_var_num", "9")
    assert settings(fleet.DistributedStrategy()) == {"max_merge": 9}
    assert settings(changed)["max_merge"] == 5
    monkeypatch.setenv("FLAGS_communicator_send_queue_size", "many")
    with pytest.raises(ValueError, match="FLAGS_communicator_send_queue_size=many"):
        settings(fleet.DistributedStrategy())


@pytest.mark.parametrize(
    "key, value",
    [
        ("independent_recv_thread", True),
        ("min_send_grad_num_before_recv", 3),
        ("thread_pool_size", 4),
        ("send_wait_times", 2),
        ("runtime_split_send_recv", True),
        ("launch_barrier", False),
    ],
)
def test_settings_without_an_effect_say_so(key, value):
    with pytest.warns(UserWarning, match=f"{key} has no effect here"):
        server_mode.queue_settings(strategy_of(**{key: value}))


@pytest.mark.parametrize("key, value", [("use_ps_gpu", 1), ("use_gpu_graph", 1)])
def test_settings_of_other_jobs_are_refused(key, value):
    with pytest.raises(NotImplementedError, match=key):
        server_mode.queue_settings(strategy_of(**{key: value}))


# -- learning rates

lr = paddle.optimizer.lr


@pytest.mark.parametrize(
    "make",
    [
        lambda: lr.ExponentialDecay(0.5, 0.9),
        lambda: lr.NaturalExpDecay(0.5, 0.3),
        lambda: lr.InverseTimeDecay(0.5, 0.3),
        lambda: lr.StepDecay(0.5, 3, 0.5),
        lambda: lr.PolynomialDecay(0.5, 12, 0.01, 2.0),
        lambda: lr.PiecewiseDecay([3, 6], [0.5, 0.2, 0.1]),
        lambda: lr.MultiStepDecay(0.5, [2, 5], 0.1),
        lambda: lr.NoamDecay(64, 4, 0.5),
        lambda: lr.PolynomialDecay(0.5, 3, 0.01, 2.0, cycle=True),
        lambda: lr.LinearLR(0.5, 7, 0.25, 0.75),
        lambda: lr.CosineAnnealingDecay(0.5, 6, 0.1),
        lambda: lr.CosineAnnealingWarmRestarts(0.5, 4),
        lambda: lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.1),
        lambda: lr.CyclicLR(0.1, 0.5, 3, 2),
        lambda: lr.CyclicLR(0.1, 0.5, 3, mode="triangular2"),
        lambda: lr.CyclicLR(0.1, 0.5, 3, mode="exp_range", exp_gamma=0.9),
        lambda: lr.OneCycleLR(0.5, 20),
        lambda: lr.OneCycleLR(0.5, 22, anneal_strategy="linear", three_phase=True),
        lambda: lr.LinearWarmup(0.7, 4, 0.1, 0.5),
        lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(0.5, 6), 4, 0.1, 0.5),
        lambda: lr.LinearWarmup(lr.PiecewiseDecay([3], [0.5, 0.2]), 2, 0.0, 0.5),
    ],
)
def test_servers_work_out_what_the_scheduler_would(make):
    scheduler = make()
    rate = learning_rate_of(scheduler, 1)
    for step in range(20):
        assert rate.of_step(step) == pytest.approx(scheduler(), rel=1e-9), step
        scheduler.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda: lr.CosineAnnealingDecay(0.5, 6, 0.1),
        lambda: lr.CosineAnnealingWarmRestarts(0.5, 3, 2),
        lambda: lr.CyclicLR(0.1, 0.5, 3, 2),
        lambda: lr.OneCycleLR(0.5, 20),
        lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(0.5, 6), 4, 0.1, 0.5),
    ],
)
def test_an_epoch_of_the_scheduler_may_have_several_steps(make):
    scheduler = make()
    scheduler.step()
    rate = learning_rate_of(scheduler, 3)
    for step in range(45):
        assert rate.of_step(step) == pytest.approx(scheduler(), rel=1e-9), step
        if step % 3 == 2:
            scheduler.step()


def test_several_steps_of_a_server_are_one_of_the_scheduler():
    scheduler = lr.ExponentialDecay(1.0, 0.5)
    rate = learning_rate_of(scheduler, 10)
    assert [rate.of_step(n) for n in (0, 9, 10, 29, 30)] == [1, 1, 0.5, 0.25, 0.125]


def test_a_scheduler_that_has_advanced_goes_on():
    scheduler = lr.ExponentialDecay(1.0, 0.5)
    scheduler.step()
    scheduler.step()
    assert learning_rate_of(scheduler, 10).of_step(0) == 0.25


@pytest.mark.parametrize(
    "make",
    [
        lambda: lr.ReduceOnPlateau(0.1),
        lambda: lr.CyclicLR(0.1, 0.2, 3, scale_fn=lambda n: 1.0),
        lambda: lr.LambdaDecay(0.1, lambda n: 1.0),
        lambda: lr.MultiplicativeDecay(0.1, lambda n: 0.9),
        lambda: lr.LinearWarmup(lr.LambdaDecay(0.1, lambda n: 1.0), 4, 0.1, 0.5),
    ],
)
def test_a_scheduler_that_servers_cannot_work_out_is_told_to_them(make):
    scheduler = make()
    assert learning_rate_of(scheduler, 10) is None
    server_job()
    minimize(net(), optimizer=paddle.optimizer.SGD(scheduler))
    ((told, rate),) = fleet.fleet._training._told.values()
    assert told is scheduler and rate == scheduler()
    assert static.default_main_program()._schedulers == []


def test_a_served_program_sets_no_rate():
    server_job()
    minimize(net(), optimizer=paddle.optimizer.SGD(lr.ExponentialDecay(0.1, 0.9)))
    assert static.default_main_program()._schedulers == []


# -- entries


def test_entries_are_written_as_paddle_writes_them():
    assert (
        paddle.distributed.ProbabilityEntry(0.1)._to_attr() == "probability_entry:0.1"
    )
    assert paddle.distributed.CountFilterEntry(10)._to_attr() == "count_filter_entry:10"
    entry = paddle.distributed.ShowClickEntry("show", "click")
    assert entry._to_attr() == "show_click_entry:show:click"


@pytest.mark.parametrize("value", [1, "0.5", 0.0, 1.0, -0.1, None])
def test_a_probability_lies_between_0_and_1(value):
    with pytest.raises(ValueError, match="float in"):
        paddle.distributed.ProbabilityEntry(value)


@pytest.mark.parametrize("value", [-1, 1.5, "3", None, True])
def test_a_count_is_a_number_from_0_on(value):
    with pytest.raises(ValueError, match="count_filter must be"):
        paddle.distributed.CountFilterEntry(value)


def test_show_and_click_are_names():
    with pytest.raises(ValueError, match="must be a str"):
        paddle.distributed.ShowClickEntry("show", 1)


def test_the_entry_travels_with_the_look_up():
    ids = static.data("ids", [None, 1], "int64")
    entry = paddle.distributed.CountFilterEntry(3)
    static.nn.sparse_embedding(ids, [10, 4], entry=entry)
    operation = static.default_main_program().global_block().ops[-1]
    assert operation.type == "lookup_table"
    assert operation.attr("entry") == "count_filter_entry:3"
    assert operation.attr("is_distributed") is True
    with pytest.raises(ValueError, match="entry must be instance"):
        static.nn.sparse_embedding(ids, [10, 4], entry="count_filter_entry:3")
    with pytest.raises(ValueError, match="table_class"):
        static.nn.sparse_embedding(ids, [10, 4], table_class="Shelf")


def test_the_time_to_live_travels_with_the_look_up():
    ids = static.data("ids", [None, 1], "int64")
    static.nn.sparse_embedding(ids, [10, 4], time_to_live=3600)
    operation = static.default_main_program().global_block().ops[-1]
    assert operation.attr("time_to_live") == 3600
    static.nn.sparse_embedding(ids, [10, 4])
    operation = static.default_main_program().global_block().ops[-1]
    assert not operation.has_attr("time_to_live")
    for seconds in (0, -5):
        with pytest.raises(ValueError, match=f"time_to_live is {seconds}, .* above 0"):
            static.nn.sparse_embedding(ids, [10, 4], time_to_live=seconds)
    for seconds in (0.5, "60", True):
        with pytest.raises(TypeError, match="whole number of seconds, but is"):
            static.nn.sparse_embedding(ids, [10, 4], time_to_live=seconds)


def test_a_table_has_one_time_to_live():
    def looked_up_twice(times):
        def rows(ids, **arguments):
            first, second = (
                static.nn.sparse_embedding(ids, time_to_live=seconds, **arguments)
                for seconds in times
            )
            return first + second

        return rows

    server_job()
    with pytest.raises(ValueError, match="'table'.*time_to_live=60, another 90"):
        minimize(net(looked_up_twice((60, 90))))
    for times, expected in {(60, None): 60, (None, 7): 7, (None, None): 0}.items():
        with static.program_guard(static.Program(), static.Program()):
            net(looked_up_twice(times))
            extras = served_training._extras_of(static.default_main_program(), None)
            assert extras["table"].time_to_live == expected
            assert extras["table"].count_unseen_days


def test_a_table_of_shows_and_clicks_may_have_a_time_to_live():
    def rows(ids, **arguments):
        return static.nn.sparse_embedding(ids, time_to_live=60, **arguments)

    strategy = strategy_of()
    strategy.downpour_table_param = {"base_threshold": 2.5}
    net(rows)
    everybody = server_mode.table_extras(strategy)
    extras = served_training._extras_of(static.default_main_program(), everybody)
    assert extras["table"].time_to_live == 60 and extras[""].time_to_live == 0
    assert extras["table"].show_click.base_threshold == 2.5


def test_alone_a_sparse_embedding_is_an_embedding():
    fleet.init()
    loss = net()
    minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    table = static.global_scope().find_var("table").get_tensor()
    before = np.array(table)
    feed = {"ids": np.array([[3]]), "label": np.ones((1, 1), "float32")}
    exe.run(feed=feed, fetch_list=[loss])
    changed = np.abs(np.array(table) - before).sum(1) > 0
    assert changed.tolist() == [i == 3 for i in range(50)]


def test_ids_of_several_columns_keep_their_shape():
    ids = static.data("ids", [None, 3], "int64")
    assert static.nn.sparse_embedding(ids, [10, 4]).shape == [-1, 3, 4]


# -- life


def test_what_needs_servers_says_so_where_there_are_none():
    fleet.init()
    for name in ("shrink", "save_cache_model", "load_model", "save_dense_params"):
        arguments = {"shrink": (), "save_dense_params": (None, "x", None, None)}
        with pytest.raises(RuntimeError, match=f"fleet.{name}.*jobs with servers"):
            getattr(fleet, name)(*arguments.get(name, ("x",)))
    assert fleet.worker_stats() == {}


def test_a_server_takes_a_folder_that_exists(tmp_path):
    server_job(Role.SERVER)
    with pytest.raises(ValueError, match="there is no folder"):
        fleet.init_server(str(tmp_path / "nothing"))
    fleet.init_server(str(tmp_path))
    fleet.init_server()


def test_a_worker_does_not_serve_and_a_server_does_not_train():
    server_job(Role.WORKER)
    with pytest.raises(RuntimeError, match="run_server: this process is worker 0"):
        fleet.run_server()
    server_job(Role.SERVER)
    with pytest.raises(RuntimeError, match="no worker"):
        fleet.init_worker()


def test_modes_of_saves_are_checked(tmp_path):
    server_job()
    minimize(net())
    exe = static.Executor(paddle.CPUPlace())
    with pytest.raises(ValueError, match="mode must be 0"):
        fleet.save_persistables(exe, str(tmp_path), mode=7)
    with pytest.raises(TypeError, match="executor must be an Executor"):
        fleet.save_persistables("exe", str(tmp_path))
    compiled = static.CompiledProgram(static.default_main_program())
    with pytest.raises(TypeError, match="main_program must be a Program"):
        fleet.save_persistables(exe, str(tmp_path), compiled)


def test_a_worker_without_servers_says_whom_it_missed(monkeypatch):
    monkeypatch.setenv("FLEET_START_TIMEOUT", "1")
    server_job()
    with pytest.raises((TimeoutError, ConnectionError), match="127.0.0.1:3"):
        fleet.init_worker()


# -- show and click


def test_a_changed_table_param_is_one_of_shows_and_clicks():
    strategy = fleet.DistributedStrategy()
    assert server_mode.table_extras(strategy) == {}
    strategy.downpour_table_param = {"base_threshold": 2.5, "delta_keep_days": 3.0}
    (extras,) = server_mode.table_extras(strategy).values()
    assert extras.count_unseen_days
    assert extras.show_click.base_threshold == 2.5
    assert extras.show_click.delta_keep_days == 3
    assert extras.show_click.delete_after_unseen_days == 30


def test_tables_of_shows_and_clicks_are_all_of_them():
    server_job()
    strategy = strategy_of()
    strategy.downpour_table_param = {"base_threshold": 2.5}
    minimize(net(), strategy)
    origin = fleet.fleet._training.origin_of(static.default_main_program())
    extras = served_training._extras_of(origin, server_mode.table_extras(strategy))
    assert list(extras) == [""] and extras[""].show_click.base_threshold == 2.5


# -- what a strategy cannot have here


@pytest.mark.parametrize("name", ["adam_d2sum", "is_fl_ps_mode", "with_coordinator"])
def test_what_would_change_results_is_refused(name):
    server_job()
    strategy = strategy_of()
    setattr(strategy, name, True)
    with pytest.raises(NotImplementedError, match=f"{name}=True"):
        minimize(net(), strategy)
    assert "sgd" not in types()


@pytest.mark.parametrize(
    "name, value",
    [
        ("trainer_desc_configs", {"dump_fields_path": "x"}),
        ("fs_client_param", {"uri": "hdfs://x"}),
    ],
)
def test_what_has_no_effect_says_so(name, value):
    server_job()
    strategy = strategy_of()
    setattr(strategy, name, value)
    with pytest.warns(UserWarning, match=f"{name}: {next(iter(value))} has no effect"):
        minimize(net(), strategy)
    assert types()[-1] == "recv"


def test_a_table_on_disk_needs_a_folder(monkeypatch):
    def on_disk(ids, **arguments):
        return static.nn.sparse_embedding(
            ids, table_class="SSDSparseTable", **arguments
        )

    server_job()
    loss = net(on_disk)
    with pytest.raises(ValueError, match="FLEET_PS_DISK"):
        minimize(loss)
    monkeypatch.setenv("FLEET_PS_DISK", "/somewhere")
    monkeypatch.setenv("FLEET_PS_DISK_MEMORY_MB", "64")
    assert server_mode.disk_of_servers() == ("/somewhere", 64 << 20)
    monkeypatch.setenv("FLEET_PS_DISK_MEMORY_MB", "little")
    with pytest.raises(ValueError, match="FLEET_PS_DISK_MEMORY_MB=little"):
        server_mode.disk_of_servers()
