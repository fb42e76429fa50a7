# SPDX-License-Identifier: Apache-2.0
import copy
import re
from pathlib import Path

import paddle
import paddle.distributed.fleet as fleet
import pytest
from paddle.distributed.fleet.base import distributed_strategy, strategy_fields
from paddle.distributed.fleet.base.strategy_fields import CONFIGS, FLAGS


@pytest.fixture
def strategy():
    return fleet.DistributedStrategy()


def test_flags_have_the_defaults_of_paddle(strategy):
    off = [
        strategy.amp,
        strategy.recompute,
        strategy.localsgd,
        strategy.adaptive_localsgd,
        strategy.dgc,
        strategy.gradient_merge,
        strategy.lars,
        strategy.lamb,
        strategy.pipeline,
        strategy.elastic,
        strategy.auto,
        strategy.sharding,
        strategy.fp16_allreduce,
        strategy.use_hierarchical_allreduce,
        strategy.sync_batch_norm,
        strategy.tensor_parallel,
        strategy.find_unused_parameters,
        strategy.without_graph_optimization,
        strategy.calc_comm_same_stream,
        strategy.asp,
        strategy.qat,
        strategy.fuse_grad_merge,
        strategy.semi_auto,
        strategy.auto_search,
        strategy.heter_ccl_mode,
        strategy.adam_d2sum,
        strategy.is_fl_ps_mode,
        strategy.with_coordinator,
    ]
    assert all(value is False for value in off)
    on = [
        strategy.a_sync,
        strategy.sync_nccl_allreduce,
        strategy.fuse_all_reduce_ops,
        strategy.cudnn_exhaustive_search,
        strategy.cudnn_batchnorm_spatial_persistent,
        strategy.split_data,
    ]
    assert all(value is True for value in on)
    assert strategy.mode == 1 and strategy.nccl_comm_num == 1
    assert strategy.hierarchical_allreduce_inter_nranks == 1
    assert strategy.fuse_grad_size_in_MB == 32
    assert strategy.fuse_grad_size_in_num == 8
    assert strategy.fuse_grad_size_in_TFLOPS == 50
    assert strategy._fuse_grad_size_in_TFLOPS == 50
    assert strategy.conv_workspace_size_limit == 4000
    assert strategy.last_comm_group_size_MB == 1


def test_groups_have_the_defaults_of_paddle(strategy):
    assert strategy.a_sync_configs["k_steps"] == -1
    assert strategy.a_sync_configs["send_queue_size"] == 16
    assert strategy.amp_configs["init_loss_scaling"] == 32768
    assert strategy.amp_configs["custom_white_list"] == []
    assert strategy.recompute_configs["checkpoints"] == []
    assert strategy.gradient_merge_configs == {"k_steps": 1, "avg": True}
    assert strategy.localsgd_configs == {"k_steps": 1, "begin_step": 1}
    assert strategy.dgc_configs["sparsity"] == []
    assert strategy.lars_configs["lars_coeff"] == 0.001
    assert strategy.lamb_configs["lamb_weight_decay"] == 0.01
    assert strategy.hybrid_configs["dp_degree"] == -1
    assert strategy.gradient_scale_configs["scale_strategy"] == "avg"
    assert strategy.downpour_table_param["base_threshold"] == 1.5
    assert strategy.adaptive_localsgd_configs == {"init_k_steps": 1, "begin_step": 1}
    assert strategy.tensor_parallel_configs["tensor_init_seed"] == -1
    assert strategy.pipeline_configs["schedule_mode"] == "1F1B"
    assert strategy.trainer_desc_configs["dump_fields"] == []
    assert strategy.fs_client_param["uri"] == ""


def test_settings_of_programs_have_the_defaults_of_paddle(strategy):
    build = vars(strategy.build_strategy)
    on = {name for name, value in build.items() if value is True}
    assert on == {"enable_backward_optimizer_op_deps", "fuse_bn_add_act_ops"}
    execution = strategy.execution_strategy
    assert execution.num_threads == 1 and execution.use_thread_barrier is False
    assert execution.num_iteration_per_drop_scope == 10


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_every_flag_can_be_set_and_comes_back(strategy, name):
    default = FLAGS[name].default
    value = (not default) if isinstance(default, bool) else default + 1
    setattr(strategy, name, value)
    assert getattr(strategy, name) == value
    assert type(getattr(strategy, name)) is type(default)


@pytest.mark.parametrize("name", sorted(set(FLAGS) - {"a_sync"}))
def test_a_flag_of_another_type_warns_and_keeps_its_value(strategy, name):
    with pytest.warns(UserWarning, match=f"{name} should have value of"):
        setattr(strategy, name, "True")
    assert getattr(strategy, name) == FLAGS[name].default


def test_a_sync_is_strict_and_resets_k_steps(strategy):
    with pytest.raises(ValueError, match="expected type is bool"):
        strategy.a_sync = "True"
    strategy.a_sync = False
    assert strategy.a_sync is False and strategy.a_sync_configs["k_steps"] == 0
    strategy.a_sync_configs = {"k_steps": 400}
    strategy.a_sync = True
    assert strategy.a_sync_configs["k_steps"] == 0


def test_the_last_group_of_gradients_is_not_empty(strategy):
    with pytest.raises(ValueError, match="greater than 0"):
        strategy.last_comm_group_size_MB = 0


def test_there_are_no_other_attributes(strategy):
    with pytest.raises(TypeError, match="captain is not a attribute of Distributed"):
        strategy.captain = True
    assert not hasattr(strategy, "captain")


# -- groups


def test_a_group_takes_some_of_its_keys_and_keeps_the_rest(strategy):
    strategy.amp_configs = {"init_loss_scaling": 1024}
    strategy.amp_configs = {"use_pure_fp16": True}
    assert strategy.amp_configs["init_loss_scaling"] == 1024.0
    assert strategy.amp_configs["use_pure_fp16"] is True
    assert strategy.amp_configs["incr_ratio"] == 2.0


def test_lists_in_groups_grow(strategy):
    strategy.recompute_configs = {"checkpoints": ["x"]}
    strategy.recompute_configs = {"checkpoints": ("y", "z")}
    assert strategy.recompute_configs["checkpoints"] == ["x", "y", "z"]


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_an_unknown_key_changes_nothing(strategy, name):
    before = getattr(strategy, name)
    known = next(iter(before))
    with pytest.raises(AssertionError, match=f"key:captain not in {name}"):
        setattr(strategy, name, {known: before[known], "captain": 1})
    assert getattr(strategy, name) == before


def test_a_value_of_another_type_changes_nothing(strategy):
    for wrong in (
        {"init_loss_scaling": "large"},
        {"use_pure_fp16": 1},
        {"incr_every_n_steps": 1.5},
        {"custom_white_list": "softmax"},
        {"custom_white_list": [1]},
    ):
        with pytest.raises(TypeError, match=f"amp_configs: {next(iter(wrong))} must"):
            strategy.amp_configs = {"incr_ratio": 3.0, **wrong}
    with pytest.raises(TypeError, match="must be a dict"):
        strategy.amp_configs = [("incr_ratio", 3.0)]
    assert strategy.amp_configs == fleet.DistributedStrategy().amp_configs


def test_what_a_group_returns_is_a_copy(strategy):
    strategy.amp_configs["incr_ratio"] = 7.0
    strategy.amp_configs["custom_white_list"].append("relu")
    assert strategy.amp_configs == fleet.DistributedStrategy().amp_configs


def test_old_keys_mean_the_new_ones(strategy):
    strategy.sharding_configs = {"fuse_broadcast_MB": 16, "sharding_group_size": 4}
    assert strategy.sharding_configs["segment_broadcast_MB"] == 16
    assert strategy.sharding_configs["sharding_degree"] == 4
    strategy.sharding_configs = {"sharding_degree": 2}
    assert strategy.sharding_configs["sharding_group_size"] == 2
    strategy.pipeline_configs = {"micro_batch": 12}
    assert strategy.pipeline_configs["accumulate_steps"] == 12


def test_groups_in_groups(strategy):
    strategy.hybrid_configs = {"mp_degree": 2, "mp_configs": {"sync_param": True}}
    assert strategy.hybrid_configs["mp_configs"]["sync_param"] is True
    assert strategy.hybrid_configs["mp_configs"]["sync_grad"] is False
    with pytest.raises(AssertionError, match="not in hybrid_configs.mp_configs"):
        strategy.hybrid_configs = {"mp_configs": {"captain": 1}}


def test_settings_of_programs(strategy):
    build = distributed_strategy.BuildStrategy()
    build.fuse_bn_act_ops = True
    build.reduce_strategy = build.ReduceStrategy.Reduce
    strategy.build_strategy = build
    assert strategy.build_strategy.fuse_bn_act_ops is True
    assert strategy.build_strategy.reduce_strategy == 1
    execution = distributed_strategy.ExecutionStrategy()
    execution.num_threads = 8
    strategy.execution_strategy = execution
    assert strategy.execution_strategy.num_threads == 8
    with pytest.raises(AttributeError, match="no attribute 'captain'"):
        execution.captain = 1
    with pytest.raises(TypeError, match="num_threads must be of type int"):
        execution.num_threads = "8"


def test_settings_of_paddle_static_are_taken(strategy):
    build = paddle.static.BuildStrategy()
    build.fuse_elewise_add_act_ops = True
    strategy.build_strategy = build
    assert strategy.build_strategy.fuse_elewise_add_act_ops is True
    assert strategy.build_strategy.memory_optimize is False
    execution = paddle.static.ExecutionStrategy()
    execution.num_threads = 5
    strategy.execution_strategy = execution
    assert strategy.execution_strategy.num_threads == 5


def test_durability_is_one_of_three(strategy, tmp_path):
    assert strategy.a_sync_configs["durability"] == ""
    for kind in ("none", "log", "log-sync", ""):
        strategy.a_sync_configs = {"durability": kind}
        assert strategy.a_sync_configs["durability"] == kind
    wrong = "durability must be none, log or log-sync, but is 'disk'"
    with pytest.raises(ValueError, match=wrong):
        strategy.a_sync_configs = {"durability": "disk"}
    with pytest.raises(TypeError, match="durability must be of type str"):
        strategy.a_sync_configs = {"durability": True}
    path = tmp_path / "strategy.prototxt"
    path.write_text('a_sync_configs { durability: "disk" }')
    with pytest.raises(ValueError, match=wrong):
        strategy.load_from_prototxt(str(path))
    assert strategy.a_sync_configs["durability"] == ""
    strategy.a_sync = False
    assert "a_sync_configs" not in repr(strategy)
    strategy.a_sync_configs = {"durability": "log"}
    assert "a_sync=False <-> a_sync_configs" in repr(strategy)
    assert re.search(r"durability +log +\|", repr(strategy))


# -- the whole


def changed():
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    strategy.a_sync = False
    strategy.nccl_comm_num = 3
    strategy.mode = strategy_fields.PS
    strategy.a_sync_configs = {"k_steps": -1, "durability": "log-sync"}
    strategy.fuse_grad_size_in_TFLOPS = 1e-7
    strategy.amp_configs = {"custom_white_list": ["a b", 'q"u\\o\nte', "ü"]}
    strategy.dgc_configs = {"sparsity": [0.5, 0.999]}
    strategy.recompute_configs = {"checkpoint_shape": [7]}
    strategy.hybrid_configs = {"order": ["dp"], "pp_configs": {"profiling": True}}
    strategy.build_strategy.fuse_bn_act_ops = True
    strategy.build_strategy.trainers_endpoints = ["127.0.0.1:1"]
    strategy.execution_strategy.num_threads = 4
    return strategy


def same(a, b):
    return repr(a) == repr(b) and all(
        getattr(a, name) == getattr(b, name) for name in (*FLAGS, *CONFIGS)
    )


def test_text_round_trip(tmp_path):
    path = tmp_path / "strategy.prototxt"
    before = changed()
    before.save_to_prototxt(str(path))
    after = fleet.DistributedStrategy()
    after.load_from_prototxt(str(path))
    assert same(before, after)
    assert "mode: PS\namp: true\na_sync: false\n" in path.read_text()
    fleet.DistributedStrategy().save_to_prototxt(str(path))
    assert path.read_text() == ""


def test_text_as_paddle_and_people_write_it(tmp_path, strategy):
    path = tmp_path / "strategy.prototxt"
    path.write_text(
        """# by hand
        mode: COLLECTIVE, amp : true;
        amp_configs: { init_loss_scaling: 1.5e3
                       custom_white_list: ["x", 'y' "z\\303\\274"] }
        amp_configs < incr_ratio: 3f decr_every_n_nan_or_inf: 0x10 >
        lars_configs { lars_coeff: -.5 epsilon: 1e-3 }
        sharding_configs { sharding_group_size: 4 segment_anchors: "a" }
        execution_strategy { num_threads: 9 }
        fuse_grad_size_in_TFLOPS: 7"""
    )
    strategy.load_from_prototxt(str(path))
    assert strategy.amp is True and strategy.amp_configs["init_loss_scaling"] == 1500
    assert strategy.amp_configs["custom_white_list"] == ["x", "yzü"]
    assert strategy.amp_configs["incr_ratio"] == 3
    assert strategy.amp_configs["decr_every_n_nan_or_inf"] == 16
    assert strategy.lars_configs["lars_coeff"] == -0.5
    assert strategy.lars_configs["epsilon"] == 0.001
    assert strategy.sharding_configs["sharding_degree"] == 4
    assert strategy.sharding_configs["segment_anchors"] == ["a"]
    assert strategy.execution_strategy.num_threads == 9
    assert strategy.fuse_grad_size_in_TFLOPS == 7


@pytest.mark.parametrize(
    "text, message",
    [
        ("captain: true", "key:captain not in the strategy"),
        ("amp_configs { captain: 1 }", "key:captain not in amp_configs"),
        ('amp: "yes"', "amp must be of type bool"),
        ("amp_configs: 3", "amp_configs must be a group"),
        ("amp { x: 3 }", "amp must not be a group"),
        ("amp\n: true\nlars", "line 3: lars has no value"),
        ("amp_configs { incr_ratio: 1", "line 1: expected the name of a field"),
        ("amp: }", "expected a value"),
        ("amp: 1x", "'1x' is not a number"),
        ("\n\namp = 1", "line 3: unexpected '='"),
        ("last_comm_group_size_MB: 0", "greater than 0"),
        ("execution_strategy { captain: 1 }", "captain not in execution_strategy"),
    ],
)
def test_text_that_is_wrong_changes_nothing(tmp_path, strategy, text, message):
    path = tmp_path / "strategy.prototxt"
    path.write_text("lamb: true\n" + text)
    message = message.replace("line 3", "line 4").replace("line 1", "line 2")
    with pytest.raises(ValueError, match=f"strategy.prototxt: .*{message}"):
        strategy.load_from_prototxt(str(path))
    assert same(strategy, fleet.DistributedStrategy())


def test_a_copy_is_independent():
    before = changed()
    after = copy.deepcopy(before)
    assert same(before, after)
    after.amp = False
    after.amp_configs = {"custom_white_list": ["more"]}
    after.build_strategy.fuse_bn_act_ops = False
    assert same(before, changed())


def test_it_prints_as_a_box(strategy):
    lines = repr(strategy).splitlines()
    assert {len(line) for line in lines} == {84}
    assert lines[0] == "    +" + "=" * 78 + "+"
    assert "DistributedStrategy Overview" in lines[2]
    assert "a_sync=True <-> a_sync_configs" in repr(strategy)
    assert "amp_configs" not in repr(strategy)
    strategy.amp = True
    strategy.amp_configs = {"custom_white_list": ["softmax", "x" * 50]}
    assert "amp=True <-> amp_configs" in repr(strategy)
    assert {len(line) for line in str(strategy).splitlines()} == {84}


def test_auto_is_strict_until_something_else_is_set(strategy):
    assert not strategy._is_strict_auto()
    strategy.auto = True
    assert strategy._is_strict_auto()
    strategy.amp_configs = {"incr_ratio": 3.0}
    assert not strategy._is_strict_auto()
    strategy.auto = True
    strategy.lamb = True
    assert not strategy._is_strict_auto()


# -- what can be done with it


def test_hints_are_listed_and_always_accepted(strategy):
    hints = distributed_strategy.hints()
    assert {"nccl_comm_num", "fuse_all_reduce_ops", "cudnn_exhaustive_search"} <= {
        *hints
    }
    for name in hints:
        default = FLAGS[name].default
        value = not default if isinstance(default, bool) else default + 1
        setattr(strategy, name, value)
    assert strategy.unbuilt() == []


def test_the_document_says_of_every_field_what_it_is_for():
    text = (Path(__file__).parents[2] / "docs/strategy.md").read_text(encoding="utf8")
    listed = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        for name in re.findall(r"`(\w+)`", body):
            listed.setdefault(name, title)
    titles = {
        strategy_fields.USED: "Used",
        strategy_fields.HINT: "Hints",
        strategy_fields.SERVER: "Parameter servers",
        strategy_fields.CHANGES: "Not built yet",
    }
    for name, field in FLAGS.items():
        assert listed.get(name) == titles[field.use], name
    assert set(CONFIGS) <= set(listed)


def test_what_changes_results_and_is_not_built_is_named(strategy):
    assert strategy.unbuilt() == []
    strategy.amp = True
    strategy.hybrid_configs = {"mp_degree": 2, "dp_degree": 3}
    strategy.gradient_scale_configs = {"scale_strategy": "sum"}
    strategy.build_strategy.gradient_scale_strategy = 1
    assert strategy.unbuilt(worker_num=2) == [
        "amp=True",
        "hybrid_configs.mp_degree=2",
        "hybrid_configs.dp_degree=3",
        "gradient_scale_configs.scale_strategy=sum",
        "build_strategy.gradient_scale_strategy=1",
    ]
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 2}
    assert strategy.unbuilt(worker_num=2) == []
