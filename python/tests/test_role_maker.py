# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
import pytest
from paddle.distributed.fleet.base import role_maker
from paddle.distributed.fleet.base.role_maker import Role

PREFIXES = ("PADDLE_", "TRAINING_ROLE", "POD_IP", "SLURM_", "OMPI_", "PMI_")
PREFIXES += ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "JOB_COMPLETION_INDEX")


@pytest.fixture
def env(monkeypatch):
    """Sets the variables of a launcher, and no others of that kind."""
    for name in list(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)

    def set_all(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


SERVERS = "127.0.0.1:6001,127.0.0.1:6002"
WORKERS = "127.0.0.1:6003,127.0.0.2:6004"


def server_job(env, **variables):
    env(
        PADDLE_PSERVERS_IP_PORT_LIST=SERVERS,
        PADDLE_TRAINER_ENDPOINTS=WORKERS,
        PADDLE_TRAINERS_NUM="2",
        **variables,
    )
    return role_maker.PaddleCloudRoleMaker()


def test_names_are_where_scripts_look_for_them():
    assert fleet.role_maker is fleet.base.role_maker is role_maker
    assert fleet.PaddleCloudRoleMaker is role_maker.PaddleCloudRoleMaker
    assert fleet.UserDefinedRoleMaker is role_maker.UserDefinedRoleMaker
    assert issubclass(fleet.PaddleCloudRoleMaker, role_maker.RoleMakerBase)
    roles = fleet.Role.WORKER, Role.SERVER, Role.HETER_WORKER, Role.ALL
    assert roles == (1, 2, 3, 4)


def test_alone_it_is_the_first_of_one_worker(env):
    env()
    role = role_maker.PaddleCloudRoleMaker()
    assert role._is_non_distributed()
    assert role._is_worker() and role._is_first_worker() and not role._is_server()
    assert role._worker_index() == role._server_index() == role._role_id() == 0
    assert role._worker_num() == role._node_num() == 1
    assert role._server_num() == role._heter_worker_num() == 0
    assert role._get_trainer_endpoints() == role._get_pserver_endpoints() == []
    assert not role._is_heter_worker()
    assert not role._is_heter_parameter_server_mode()


def test_alone_in_a_collective_job_it_has_an_endpoint(env):
    env()
    role = role_maker.PaddleCloudRoleMaker(is_collective=True)
    assert role._is_non_distributed() and role._is_first_worker()
    assert role._get_trainer_endpoints() == ["127.0.0.1:6170"]


def test_a_worker_of_a_job_with_servers(env):
    role = server_job(env, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID="1")
    assert role._is_worker() and not role._is_first_worker()
    assert not role._is_non_distributed()
    assert role._worker_index() == role._role_id() == 1
    assert role._worker_num() == role._server_num() == role._node_num() == 2
    assert role._get_trainer_endpoints() == WORKERS.split(",")
    assert role._get_pserver_endpoints() == SERVERS.split(",")
    assert role.to_string() == (
        "role: 1, current_id: 1, worker_endpoints: ['127.0.0.1:6003', "
        "'127.0.0.2:6004'], server_endpoints: ['127.0.0.1:6001', '127.0.0.1:6002']"
    )


def test_a_server_finds_its_place_in_the_list(env):
    role = server_job(
        env, TRAINING_ROLE="PSERVER", POD_IP="127.0.0.1", PADDLE_PORT="6002"
    )
    assert role._is_server() and not role._is_worker()
    assert not role._is_first_worker()
    assert role._server_index() == role._role_id() == 1


def test_a_heter_worker(env):
    role = server_job(
        env,
        TRAINING_ROLE="HETER_TRAINER",
        PADDLE_HETER_TRAINER_IP_PORT_LIST="127.0.0.1:7001,127.0.0.1:7002",
        POD_IP="127.0.0.1",
        PADDLE_PORT="7002",
    )
    assert role._is_heter_worker() and role._is_heter_parameter_server_mode()
    assert role._heter_worker_num() == 2 and role._role_id() == 1
    assert role._get_heter_worker_endpoints() == ["127.0.0.1:7001", "127.0.0.1:7002"]
    assert role._get_heter_worker_endpoint() == "127.0.0.1:7002"


def test_without_heter_workers_there_is_none_to_send_to(env):
    role = server_job(env, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID="0")
    with pytest.raises(AssertionError, match="Not initialized"):
        role._get_heter_worker_endpoint()


@pytest.mark.parametrize(
    "variables, missing",
    [
        ({}, "PADDLE_TRAINERS_NUM"),
        ({"PADDLE_TRAINERS_NUM": "2"}, "TRAINING_ROLE"),
        (
            {"PADDLE_TRAINERS_NUM": "2", "TRAINING_ROLE": "TRAINER"},
            "PADDLE_TRAINER_ID",
        ),
        ({"PADDLE_TRAINERS_NUM": "2", "TRAINING_ROLE": "PSERVER"}, "PADDLE_PORT"),
        (
            {
                "PADDLE_TRAINERS_NUM": "2",
                "TRAINING_ROLE": "PSERVER",
                "PADDLE_PORT": "6001",
            },
            "POD_IP",
        ),
    ],
)
def test_what_is_missing_is_named_when_the_role_is_asked_for(env, variables, missing):
    env(PADDLE_PSERVERS_IP_PORT_LIST=SERVERS, **variables)
    role = role_maker.PaddleCloudRoleMaker()
    message = f"Can not find {missing}, please check your environment."
    with pytest.raises(ValueError, match=message):
        role._generate_role()


def test_an_unknown_role_and_an_unknown_server_are_refused(env):
    role = server_job(env, TRAINING_ROLE="CAPTAIN")
    with pytest.raises(ValueError, match="TRAINING_ROLE must be PSERVER or TRAINER"):
        role._is_worker()
    env(TRAINING_ROLE="PSERVER", POD_IP="127.0.0.1", PADDLE_PORT="9")
    with pytest.raises(ValueError, match="is not in list"):
        role._is_worker()


def test_a_role_is_read_once(env):
    role = server_job(env, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID="0")
    assert role._worker_index() == 0
    env(PADDLE_TRAINER_ID="1")
    assert role._worker_index() == 0


def test_a_collective_job(env):
    env(
        PADDLE_TRAINER_ENDPOINTS=WORKERS,
        PADDLE_CURRENT_ENDPOINT="127.0.0.2:6004",
        PADDLE_TRAINER_ID="1",
        PADDLE_TRAINERS_NUM="7",  # the list counts
    )
    role = role_maker.PaddleCloudRoleMaker(is_collective=True)
    assert role._worker_num() == 2 and role._worker_index() == 1
    assert role._node_num() == role._get_node_num() == 2
    assert role._get_local_rank() == 0
    assert not role._is_non_distributed()


def test_a_collective_job_has_trainers_only(env):
    env(PADDLE_TRAINING_ROLE="PSERVER")
    role = role_maker.PaddleCloudRoleMaker(is_collective=True)
    with pytest.raises(AssertionError, match="PADDLE_TRAINING_ROLE=PSERVER"):
        role._generate_role()


def test_devices_of_this_host_and_of_all(env):
    env(PADDLE_LOCAL_DEVICE_IDS="2,3", PADDLE_WORLD_DEVICE_IDS="0,1:2,3")
    role = role_maker.PaddleCloudRoleMaker()
    assert role._get_local_device_ids() == [2, 3]
    assert role._get_world_device_ids() == [[0, 1], [2, 3]]
    env(PADDLE_LOCAL_DEVICE_IDS="", PADDLE_WORLD_DEVICE_IDS="")
    assert role._get_local_device_ids() == role._get_world_device_ids() == []


# -- roles that the user says


def test_a_user_may_say_the_role():
    role = role_maker.UserDefinedRoleMaker(
        current_id=1,
        role=Role.SERVER,
        worker_num=2,
        server_endpoints=["127.0.0.1:36011", "127.0.0.1:36012"],
    )
    assert role._is_server() and role._server_index() == 1
    assert role._worker_num() == role._server_num() == 2
    assert role._get_trainer_endpoints() == []
    assert not role._is_non_distributed()


def test_the_number_of_workers_may_follow_from_their_endpoints():
    role = role_maker.UserDefinedRoleMaker(
        current_id=0,
        role=Role.WORKER,
        worker_endpoints=["127.0.0.1:1", "127.0.0.1:2"],
        server_endpoints=["127.0.0.1:3"],
    )
    assert role._is_first_worker() and role._worker_num() == 2
    assert role._node_num() == 1


def test_a_user_may_say_a_collective_role():
    role = role_maker.UserDefinedRoleMaker(
        is_collective=True,
        current_id=1,
        worker_endpoints=["127.0.0.1:1", "127.0.0.1:2"],
    )
    assert role._is_collective and role._worker_index() == 1
    assert role._worker_num() == 2


@pytest.mark.parametrize(
    "said, message",
    [
        ({}, "current_id is missing"),
        ({"current_id": 0}, "worker_num or worker_endpoints"),
        ({"current_id": 2, "worker_num": 2}, "current_id=2 with role worker"),
        ({"current_id": 0, "worker_num": 1, "role": 7}, "role=7"),
        (
            {"current_id": 0, "worker_num": 1, "server_endpoints": ["here"]},
            "server_endpoints",
        ),
    ],
)
def test_a_role_that_makes_no_sense_is_refused(said, message):
    with pytest.raises(ValueError, match=message):
        role_maker.UserDefinedRoleMaker(**said)._generate_role()


def test_unknown_arguments_are_not_ignored_silently():
    with pytest.warns(UserWarning, match="does not know captain"):
        role_maker.UserDefinedRoleMaker(current_id=0, worker_num=1, captain=True)
    with pytest.warns(UserWarning, match="does not know captain"):
        role_maker.PaddleCloudRoleMaker(captain=True)


def test_a_role_maker_of_ones_own_has_to_say_its_role():
    with pytest.raises(NotImplementedError, match="does not say who it is"):
        role_maker.RoleMakerBase()._is_worker()


# -- together


def test_alone_collectives_warn_and_return_what_they_got(env):
    env()
    role = role_maker.PaddleCloudRoleMaker(is_collective=True)
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        role._barrier("worker")
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        np.testing.assert_array_equal(role._all_reduce(np.arange(3)), np.arange(3))
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        assert role._all_gather(7) == 7
    assert isinstance(role._gloo, role_maker.Gloo)


def test_collectives_check_their_arguments(env):
    env()
    role = role_maker.PaddleCloudRoleMaker(is_collective=True)
    with pytest.raises(ValueError, match="comm_world must in"):
        role._barrier("captain")
    with pytest.raises(ValueError, match="mode must be sum, max or min"):
        role._all_reduce(1, "product")


def test_workers_of_a_job_with_servers_speak_through_fleet(env):
    role = server_job(env, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID="0")
    with pytest.raises(RuntimeError, match=r"call fleet.init\(\)"):
        role._barrier("worker")
    with pytest.raises(ValueError, match="servers wait for nobody"):
        role._barrier("all")


@pytest.fixture
def static():
    paddle.enable_static()
    yield
    paddle.disable_static()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PADDLE_GLOO_RENDEZVOUS": "4"},
        {"PADDLE_GLOO_RENDEZVOUS": "1", "PADDLE_GLOO_FS_PATH": "x"},
        {"PADDLE_GLOO_RENDEZVOUS": "2"},
    ],
)
def test_settings_of_gloo_that_paddle_refuses_are_refused(env, static, variables):
    env(PADDLE_WITH_GLOO="1", **variables)
    with pytest.raises(ValueError, match="gloo initialized error"):
        role_maker.PaddleCloudRoleMaker()._generate_role()
    env(PADDLE_WITH_GLOO="0")
    assert role_maker.PaddleCloudRoleMaker()._is_worker()
    env(PADDLE_WITH_GLOO="1", PADDLE_GLOO_RENDEZVOUS="3")
    assert role_maker.PaddleCloudRoleMaker()._is_worker()
