# SPDX-License-Identifier: Apache-2.0
"""paddle.fluid.incubate.fleet, the transpiler and what belongs to them, in one process."""

import os
import re

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import static
from paddle.distributed.fleet.base.server_mode import Mode
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import (
    Collective,
    DistributedStrategy,
    TrainStatus,
)
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    FleetTranspiler,
    StrategyFactory,
    TrainerRuntimeConfig,
)
from paddle.fluid.incubate.fleet.utils.fleet_util import FleetUtil
from paddle.fluid.incubate.fleet.utils.hdfs import HDFSClient
from paddle.fluid.transpiler import DistributeTranspilerConfig, HashName, RoundRobin
from paddle.fluid.transpiler.distribute_transpiler import ServerProgram

SERVERS = ["127.0.0.1:6001", "127.0.0.1:6002"]
PREFIXES = ("PADDLE_", "TRAINING_ROLE", "POD_IP", "SLURM_", "OMPI_", "PMI_")
PREFIXES += ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "FLAGS_communicator")


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    for name in list(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    paddle.enable_static()
    with static.program_guard(static.Program(), static.Program()):
        with paddle.utils.unique_name.guard():
            yield
    static.executor.set_stand_in(None)
    paddle.disable_static()


def regression():
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    out = fluid.layers.fc(input=x, size=1)
    return fluid.layers.mean(fluid.layers.square_error_cost(input=out, label=y))


def types(program):
    return [op.type for op in program.global_block().ops]


def started(role=role_maker.Role.WORKER, index=0):
    fleet = FleetTranspiler()
    fleet.init(
        role_maker.UserDefinedRoleMaker(
            current_id=index, role=role, worker_num=3, server_endpoints=SERVERS
        )
    )
    return fleet


# -- role makers


def test_a_role_that_the_script_says():
    role = role_maker.UserDefinedRoleMaker(1, role_maker.Role.SERVER, 3, SERVERS)
    assert role.is_server() and not role.is_worker() and role.server_index() == 1
    assert role.worker_num() == 3 and role.server_num() == 2
    assert role.get_pserver_endpoints() == SERVERS
    role = role_maker.UserDefinedRoleMaker(2, role_maker.Role.WORKER, 3, SERVERS)
    assert role.worker_index() == role.role_id() == 2 and not role.is_first_worker()


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"server_endpoints": "127.0.0.1:1"}, TypeError),
        ({"server_endpoints": []}, TypeError),
        ({"server_endpoints": [SERVERS[0]] * 2}, ValueError),
        ({"server_endpoints": SERVERS, "worker_num": 0}, ValueError),
        ({"server_endpoints": SERVERS, "worker_num": 2, "current_id": 5}, ValueError),
    ],
)
def test_a_role_that_makes_no_sense_is_refused(arguments, error):
    with pytest.raises(error):
        role_maker.UserDefinedRoleMaker(**{"worker_num": 2, **arguments})


def test_roles_of_the_launcher(monkeypatch):
    for name, value in {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(SERVERS),
        "PADDLE_TRAINERS_NUM": "2",
        "TRAINING_ROLE": "PSERVER",
        "POD_IP": "127.0.0.1",
        "PADDLE_PORT": "6002",
    }.items():
        monkeypatch.setenv(name, value)
    for kind in (role_maker.PaddleCloudRoleMaker, role_maker.GeneralRoleMaker):
        role = kind()
        role.generate_role()
        assert role.is_server() and role.server_index() == 1 and role.worker_num() == 2


def test_a_collective_role():
    ends = ["127.0.0.1:1", "127.0.0.1:2"]
    role = role_maker.UserDefinedCollectiveRoleMaker(1, ends)
    assert role.is_worker() and role.worker_index() == 1 and role.worker_num() == 2
    assert role.get_trainer_endpoints() == ends
    with pytest.raises(TypeError, match="worker_endpoints"):
        role_maker.UserDefinedCollectiveRoleMaker(0, None)


def test_mpi_needs_pairs_of_processes():
    with pytest.raises(ValueError, match="as many servers as workers"):
        role_maker.MPISymetricRoleMaker().generate_role()


# -- servers


def test_questions_of_the_older_fleet():
    fleet = started(index=2)
    assert fleet.is_worker() and not fleet.is_server() and not fleet.is_first_worker()
    assert (fleet.worker_num(), fleet.server_num(), fleet.worker_index()) == (3, 2, 2)
    assert fleet.server_endpoints() == SERVERS
    assert fleet.server_endpoints(to_string=True) == ",".join(SERVERS)
    assert fleet.split_files(["a", "b", "c", "d"]) == ["d"]
    with pytest.raises(TypeError, match="role_maker must be an instance"):
        FleetTranspiler().init("role")


@pytest.mark.parametrize(
    "make, mode, last",
    [
        (StrategyFactory.create_sync_strategy, Mode("sync"), "send_barrier"),
        (StrategyFactory.create_async_strategy, Mode("async"), "recv"),
        (
            StrategyFactory.create_half_async_strategy,
            Mode("half_async"),
            "send_barrier",
        ),
        (lambda: StrategyFactory.create_geo_strategy(7), Mode("geo", 7), "geo_step"),
        (lambda: None, Mode("sync"), "send_barrier"),
    ],
)
def test_strategies_choose_a_mode(make, mode, last):
    fleet = started()
    optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), make())
    optimizer.minimize([regression()])
    assert fleet._fleet._training.mode == mode
    assert types(fleet.main_program)[-1] == last
    assert types(fleet.startup_program)[-1] == "ps_init"
    assert "send" not in types(fleet._origin_program)


def test_a_config_of_the_transpiler_is_a_strategy():
    fleet = started()
    config = DistributeTranspilerConfig()
    config.sync_mode = False
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), config).minimize(regression())
    assert fleet._fleet._training.mode == Mode("async")
    with pytest.raises(TypeError, match="strategy must be"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), "async")


def test_a_server_has_a_program_of_its_own():
    fleet = started(role_maker.Role.SERVER, 1)
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(regression())
    assert isinstance(fleet.main_program, ServerProgram)
    (listen,) = fleet.main_program.global_block().ops
    assert listen.type == "listen_and_serv"
    assert listen.attr("endpoint") == SERVERS[1] and listen.attr("Fanin") == 3


def test_runtime_configs(monkeypatch):
    strategy = StrategyFactory.create_async_strategy()
    strategy.set_trainer_runtime_config({"max_merge_var_num": 6, "send_queue_size": 8})
    assert strategy._queue() == {"max_merge": 6, "queue_size": 8}
    flags = strategy.get_trainer_runtime_config().get_communicator_flags()
    assert flags["communicator_max_merge_var_num"] == "6"
    assert "communicator_send_queue_size" in repr(strategy.get_trainer_runtime_config())
    with pytest.raises(ValueError, match="doesn't have key: captain"):
        strategy.set_trainer_runtime_config({"captain": 1})
    with pytest.raises(TypeError, match="TrainerRuntimeConfig or a dict"):
        strategy.set_trainer_runtime_config(3)
    monkeypatch.setenv("FLAGS_communicator_send_wait_times", "4")
    assert TrainerRuntimeConfig().send_wait_times == 4
    strategy.set_program_config({"sync_mode": True})
    assert strategy._mode() == Mode("sync")


# -- the transpiler


def transpiled(config=None, **arguments):
    loss = regression()
    fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(0, pservers=",".join(SERVERS), trainers=4, **arguments)
    return transpiler


def test_a_trainer_program_ends_with_the_step():
    transpiler = transpiled()
    program = transpiler.get_trainer_program()
    assert program is fluid.default_main_program()
    assert types(program)[-1] == "send_barrier" and "sgd" not in types(program)
    assert types(fluid.default_startup_program())[-1] == "ps_init"


def test_without_sync_mode_a_trainer_does_not_wait():
    assert types(transpiled(sync_mode=False).get_trainer_program())[-1] == "recv"


@pytest.mark.parametrize(
    "settings, last",
    [
        ({"sync_mode": False}, "recv"),
        ({"half_async": True}, "send_barrier"),
        ({"geo_sgd_mode": True, "geo_sgd_need_push_nums": 5}, "geo_step"),
    ],
)
def test_configs_of_the_transpiler(settings, last):
    config = DistributeTranspilerConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    assert types(transpiled(config).get_trainer_program())[-1] == last


def test_defaults_of_the_config_are_paddles():
    config = DistributeTranspilerConfig()
    assert config.slice_var_up and config.min_block_size == 8192
    assert config.mode == "pserver" and config.sync_mode and config.wait_port
    assert not (config.half_async or config.geo_sgd_mode or config.enable_dc_asgd)
    assert config.geo_sgd_need_push_nums == 100 and config.nccl_comm_num == 1
    assert config.collective_mode is None and not config.runtime_split_send_recv


def test_programs_of_a_server():
    transpiler = transpiled()
    program, startup = transpiler.get_pserver_programs(SERVERS[1])
    assert types(program) == ["listen_and_serv"] and types(startup) == []
    assert program.global_block().ops[0].attr("pserver_id") == 1
    assert types(transpiler.get_startup_program(SERVERS[0], program)) == []
    with pytest.raises(ValueError, match="is none of the servers"):
        transpiler.get_pserver_program("127.0.0.1:9")


def test_a_transpiler_is_asked_in_order():
    with pytest.raises(RuntimeError, match=r"call transpile\(\) first"):
        fluid.DistributeTranspiler().get_trainer_program()
    config = DistributeTranspilerConfig()
    config.enable_dc_asgd = True
    with pytest.raises(NotImplementedError, match="enable_dc_asgd"):
        fluid.DistributeTranspiler(config)
    config = DistributeTranspilerConfig()
    config.mode = "pigeon"
    with pytest.raises(ValueError, match="pigeon"):
        transpiled(config)


def test_dispatchers_deal_variables():
    block = static.default_main_program().global_block()
    variables = [block.create_var(name=f"v{i}", shape=[1]) for i in range(5)]
    dealer = RoundRobin(SERVERS)
    assert dealer.dispatch(variables) == [*SERVERS, *SERVERS, SERVERS[0]]
    dealer.reset()
    assert dealer.dispatch(variables[:1]) == SERVERS[:1]
    by_name = HashName(SERVERS).dispatch(variables)
    assert by_name == HashName(SERVERS).dispatch(variables)
    assert set(by_name) <= set(SERVERS)


# -- collective


def test_the_older_collective_fleet_trains_alone(tmp_path):
    fleet = Collective()
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    loss = regression()
    strategy = DistributedStrategy()
    strategy.nccl_comm_num = 2
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    rng = np.random.default_rng(3)
    feed = {"x": rng.random((8, 13), "float32"), "y": rng.random((8, 1), "float32")}
    losses = [exe.run(fleet.main_program, feed, [loss])[0].item() for _ in range(5)]
    assert losses[-1] < losses[0]

    path, status = str(tmp_path / "saved"), TrainStatus(4)
    assert not fleet.load_checkpoint(exe, path, 0, TrainStatus())
    folder, number = fleet.save_checkpoint(exe, path, 0, status)
    assert number == 0 and os.path.isdir(folder)
    assert fleet.save_checkpoint(exe, path, 0, TrainStatus(5))[1] == 1
    exe.run(fleet.startup_program)
    found = TrainStatus()
    assert fleet.load_checkpoint(exe, path, 0, found, checkpoint_no=0)
    assert found == status and found.next() == 5
    (again,) = exe.run(fleet.main_program, feed, [loss])
    assert again.item() < losses[-1]
    fleet.clean_redundant_checkpoints(path)
    assert os.listdir(path) == ["__paddle_checkpoint__1"]
    with pytest.raises(ValueError, match="no checkpoint"):
        fleet.load_checkpoint(exe, path, 0, found, ignore_empty=False, checkpoint_no=9)


# -- what lies beside


def test_small_things_of_scripts(capsys):
    with pytest.raises(ValueError, match="mode must be"):
        FleetUtil("pslib")
    util = FleetUtil("collective")
    util._fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    util.rank0_print("here")
    assert capsys.readouterr().out == "here\n"
    scope = fluid.global_scope()
    scope.var("pos").get_tensor().set(np.array([[0, 0, 5, 5]]))
    scope.var("neg").get_tensor().set(np.array([[5, 5, 0, 0]]))
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        assert util.get_global_auc(scope, "pos", "neg") == 1.0
    util.set_zero("pos", scope)
    assert np.array(scope.find_var("pos").get_tensor()).sum() == 0
    assert util.get_global_auc(scope, "nowhere", "neg") is None


def test_a_communicator_belongs_to_a_worker():
    from paddle.fluid.communicator import Communicator

    fleet = started()
    strategy = StrategyFactory.create_async_strategy()
    optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy)
    optimizer.minimize(regression())
    communicator = Communicator("ASYNC", envs={"a": 1})
    assert not communicator.is_running()
    communicator.stop()


def test_hdfs_runs_its_program(tmp_path):
    program = tmp_path / "bin" / "hadoop"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/asked\n'
        f'[ "$2" != -conf ] || (ls -l $3; cat $3) >> {tmp_path}/settings\n'
        'case "$*" in\n'
        "*'-test -e /there'*|*'-test -d /there'*) exit 0;;\n"
        "*-test*) exit 1;;\n"
        "*'-ls /there'*)\n"
        "  echo 'Found 2 items'\n"
        "  echo 'drwxr-xr-x - u g 0 2020-01-01 00:00 /there/folder'\n"
        "  echo '-rw-r--r-- 1 u g 0 2020-01-01 00:00 /there/file';;\n"
        "*'-cat /there/file'*) echo text;;\n"
        "*-rm*) echo 'no permission' >&2; exit 3;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    settings = {"fs.default.name": "hdfs://x", "hadoop.job.ugi": "me,<pass&word"}
    client = HDFSClient(str(tmp_path), settings)
    assert client.is_exist("/there") and client.is_dir("/there")
    assert not client.is_exist("/away") and not client.is_file("/away")
    assert client.ls_dir("/there") == (["folder"], ["file"])
    assert client.list_dirs("/there") == ["folder"] and client.ls_dir("/no") == ([], [])
    assert client.cat("/there/file") == "text" and client.need_upload_download()
    with pytest.raises(Exception, match="exit status 3: no permission"):
        client.delete("/there")
    # All users see the arguments, and nobody else the file.
    asked = (tmp_path / "asked").read_text().splitlines()
    assert re.fullmatch(r"fs -conf (\S+)\.xml -test -e /there", asked[0])
    assert not any("hdfs://x" in line or "word" in line for line in asked)
    assert not os.path.exists(asked[0].split()[2])
    told = (tmp_path / "settings").read_text()
    assert told.startswith("-rw-------")
    assert "<name>fs.default.name</name><value>hdfs://x</value>" in told
    assert "<value>me,&lt;pass&amp;word</value>" in told
    with pytest.raises(Exception, match="hadoop"):
        HDFSClient(str(tmp_path / "nowhere")).is_exist("/x")


def test_checkpoints_may_lie_elsewhere(tmp_path):
    far = tmp_path / "far"
    program = tmp_path / "bin" / "hadoop"
    program.parent.mkdir()
    # /x is the folder far/x.
    program.write_text(
        "#!/bin/sh\n"
        f"far={far}\n"
        "shift\n"
        'case "$1" in\n'
        '-test) test "$2" "$far$3";;\n'
        '-mkdir) mkdir -p "$far$3";;\n'
        '-put) cp -r "$2" "$far$3";;\n'
        '-get) cp -r "$far$2" "$3";;\n'
        '-mv) mv "$far$2" "$far$3";;\n'
        '-rm) rm -r "$far$4";;\n'
        '-ls) for f in "$far$2"/*; do echo "drwxr-xr-x - u g 0 d t $f"; done;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    fleet = Collective()
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    loss = regression()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    weight = fluid.default_main_program().all_parameters()[0].name

    def value():
        return np.array(fluid.global_scope().find_var(weight).get_tensor())

    saved, client = value(), HDFSClient(str(tmp_path))
    where = {"fs": client, "local_cache_path": str(tmp_path / "cache")}
    folder, number = fleet.save_checkpoint(exe, "/saved", 0, TrainStatus(4), **where)
    assert (folder, number) == ("/saved/__paddle_checkpoint__0", 0)
    assert (far / "saved" / "__paddle_checkpoint__0" / weight).is_file()
    exe.run(fleet.startup_program)
    assert not np.array_equal(value(), saved)
    found = TrainStatus()
    assert fleet.load_checkpoint(exe, "/saved", 1, found, **where)
    np.testing.assert_array_equal(value(), saved)
    assert found == TrainStatus(4)
    assert os.listdir(tmp_path / "cache") == [] and not os.path.exists("/saved")
    with pytest.raises(Exception, match="/nothing is not there"):
        client.mv("/nothing", "/else")
    with pytest.raises(Exception, match="/saved is there already"):
        client.mv(folder, "/saved")


def test_files_of_this_host(tmp_path):
    from paddle.distributed.fleet.utils import LocalFS

    fs, folder = LocalFS(), str(tmp_path / "a" / "b")
    fs.mkdirs(folder)
    fs.touch(os.path.join(folder, "f"))
    assert fs.is_dir(folder) and fs.is_file(os.path.join(folder, "f"))
    assert fs.ls_dir(str(tmp_path / "a")) == (["b"], [])
    assert fs.ls_dir(folder) == ([], ["f"]) and fs.ls_dir("/nowhere/here") == ([], [])
    with pytest.raises(Exception, match="there already"):
        fs.touch(os.path.join(folder, "f"), exist_ok=False)
    fs.mv(folder, str(tmp_path / "c"))
    with pytest.raises(Exception, match="is not there"):
        fs.mv(folder, str(tmp_path / "d"))
    fs.mkdirs(str(tmp_path / "d"))
    with pytest.raises(Exception, match="there already"):
        fs.mv(str(tmp_path / "c"), str(tmp_path / "d"))
    fs.mv(str(tmp_path / "c"), str(tmp_path / "d"), overwrite=True)
    assert fs.ls_dir(str(tmp_path / "d")) == ([], ["f"])
    fs.delete(str(tmp_path / "d"))
    fs.delete(str(tmp_path / "d"))
    assert not fs.is_exist(str(tmp_path / "d")) and not fs.need_upload_download()
