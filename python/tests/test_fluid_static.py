# SPDX-License-Identifier: Apache-2.0
"""paddle.fluid in static mode: programs, executors, scopes and settings."""

import math

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import static
from paddle.fluid import layers
from static_check import drawn, fresh_programs, op_types, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")


def test_programs_are_switched_and_guarded():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        assert fluid.default_main_program() is main
        assert fluid.default_startup_program() is startup
        with fluid.name_scope("part"), fluid.device_guard("cpu"):
            layers.fc(layers.data("x", [2]), 3)
    op = main.global_block().ops[-1]
    assert isinstance(op, fluid.framework.Operator)
    assert isinstance(main.global_block(), fluid.framework.Block)
    assert op.attr("op_namescope") == "/part/" and op.attr("op_device") == "cpu"
    old = fluid.framework.switch_main_program(main)
    old_startup = fluid.framework.switch_startup_program(startup)
    try:
        assert fluid.default_main_program() is main
        assert fluid.default_startup_program() is startup
    finally:
        fluid.framework.switch_main_program(old)
        fluid.framework.switch_startup_program(old_startup)
    names = fluid.core.op_proto_and_checker_maker
    assert names.kOpRoleAttrName() == "op_role" and names.OpRole.Optimize == 2
    assert names.kOpRoleVarAttrName() == "op_role_var"


def test_compiled_programs_and_parallel_executors_run():
    x = layers.data("x", [2])
    loss = layers.mean(layers.fc(x, 1, name="f"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.fuse_all_optimizer_ops = True
    build.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    execution.num_threads = 1
    with pytest.raises(AttributeError, match="no setting"):
        build.no_such_setting = 1
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    compiled = compiled.with_data_parallel(loss.name, build, execution)
    feed = {"x": drawn(3, 2)}
    (first,) = executor.run(compiled, feed=feed, fetch_list=[loss.name])
    parallel = fluid.ParallelExecutor(False, loss.name)
    assert parallel.device_count == 1
    (second,) = parallel.run([loss.name], feed=feed)
    assert second < first
    fluid.memory_optimize(fluid.default_main_program())
    fluid.release_memory(fluid.default_main_program())
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.run(compiled, feed=feed)


def test_what_an_executor_or_a_model_cannot_do_is_said(tmp_path):
    x = layers.data("x", [3])
    loss = layers.mean(layers.fc(x, 2))
    with pytest.raises(NotImplementedError, match="num_trainers=2.*fleetrun"):
        fluid.ParallelExecutor(False, loss.name, num_trainers=2)
    scope = fluid.Scope()
    other = fluid.ParallelExecutor(False, loss.name, scope=scope)
    shared = fluid.ParallelExecutor(False, loss.name, share_vars_from=other)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program(), scope=scope)
    feed = {"x": drawn(2, 3)}
    np.testing.assert_array_equal(
        shared.run([loss.name], feed)[0], other.run([loss.name], feed)[0]
    )
    exe, folder = fluid.Executor(fluid.CPUPlace()), str(tmp_path)
    with pytest.raises(NotImplementedError, match="fluid.io.save"):
        fluid.io.save_inference_model(
            folder, ["x"], [loss], exe, export_for_deployment=False
        )
    with pytest.raises(NotImplementedError, match="pserver_endpoints"):
        fluid.io.load_inference_model(folder, exe, pserver_endpoints=["a:1"])
    with pytest.raises(NotImplementedError, match="append_backward: callbacks"):
        fluid.backward.append_backward(loss, callbacks=[print])
    with pytest.raises(NotImplementedError, match="Optimizer.backward: callbacks"):
        fluid.optimizer.SGD(0.1).backward(loss, callbacks=[print])
    with pytest.raises(NotImplementedError, match="skip_prune_program"):
        static.normalize_program(
            fluid.default_main_program(), [x], [loss], skip_prune_program=True
        )
    with pytest.raises(TypeError, match="no argument 'params_name'"):
        static.load_inference_model(folder, exe, params_name="p")


def test_feeders_and_lists_of_variables():
    a, b = layers.data("a", [3]), layers.data("b", [1], dtype="int64")
    feeder = fluid.DataFeeder([a, b], fluid.CPUPlace())
    rows = [([1.0, 2.0, 3.0], [1]), ([4.0, 5.0, 6.0], [0])]
    first, second = feeder.feed_parallel([rows, rows[:1]], 2)
    np.testing.assert_array_equal(first["a"], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(second["b"], [[1]])
    (together,) = feeder.decorate_reader(lambda: iter([rows]), multi_devices=True)()
    (alone,) = feeder.decorate_reader(lambda: iter([rows]), multi_devices=False)()
    np.testing.assert_array_equal(together[0]["b"], alone["b"])
    layers.create_global_var([1], 0.0, "float32", persistable=True, name="kept")
    layers.fc(a, 2, param_attr="w", bias_attr="bias")
    program = fluid.default_main_program()
    names = {v.name for v in fluid.io.get_program_parameter(program)}
    assert names == {"w", "bias"}
    names = {v.name for v in fluid.io.get_program_persistable_vars(program)}
    assert names == {"w", "bias", "kept"}


def test_scopes_and_tensors():
    scope = fluid.core.Scope()
    assert isinstance(scope, fluid.Scope)
    with fluid.scope_guard(scope):
        assert fluid.global_scope() is scope
        layers.create_global_var([2], 1.5, "float32", persistable=True, name="v")
        start()
        tensor = fluid.global_scope().find_var("v").get_tensor()
        np.testing.assert_array_equal(np.array(tensor), [1.5, 1.5])
        tensor.set(np.array([3.0, 4.0], "float32"), fluid.CPUPlace())
        assert tensor._get_dims() == [2]
        np.testing.assert_array_equal(value_of("v"), [3.0, 4.0])
    assert fluid.global_scope().find_var("v") is None
    assert fluid.Tensor is fluid.LoDTensor
    assert fluid.core.LoDTensorArray([1]) == [1] and fluid.LoDTensorArray


def test_lod_tensors():
    place = fluid.CPUPlace()
    made = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]], place)
    assert made.lod() == [[0, 2, 3]]
    assert made.recursive_sequence_lengths() == [[2, 1]]
    np.testing.assert_array_equal(np.array(made), [[1], [2], [3]])
    again = fluid.create_lod_tensor(made, [[1, 2]], place)
    assert again.lod() == [[0, 1, 3]]
    drawn_ids = fluid.create_random_int_lodtensor([[2, 3]], [1], place, 4, 6)
    values = np.array(drawn_ids)
    assert values.shape == (5, 1) and values.min() >= 4 and values.max() <= 6
    with pytest.raises(ValueError, match="do not add up"):
        fluid.create_lod_tensor(np.zeros((3, 1)), [[1, 1]], place)
    with pytest.raises(ValueError, match="lengths"):
        fluid.create_lod_tensor([[1, 2], [3]], [[1, 2]], place)


def test_flags():
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 0.5})
    assert fluid.get_flags("FLAGS_eager_delete_tensor_gb") == {
        "FLAGS_eager_delete_tensor_gb": 0.5
    }
    assert fluid.core.globals()["FLAGS_eager_delete_tensor_gb"] == 0.5
    with pytest.raises(ValueError, match="begin with FLAGS_"):
        fluid.set_flags({"eager": 1})
    with pytest.raises(ValueError, match="is not set"):
        fluid.get_flags(["FLAGS_nobody_set_this"])


def test_types_of_variables():
    kinds = fluid.core.VarDesc.VarType
    x = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="x", shape=[2], dtype=kinds.FP32, type=kinds.LOD_TENSOR)
    )
    assert x.dtype == kinds.FP32 == paddle.float32
    assert kinds.INT64 == paddle.int64 and kinds.BOOL == paddle.bool
    assert isinstance(x, fluid.framework.Variable) and isinstance(x, fluid.Variable)
    with pytest.raises(fluid.core.EnforceNotMet):
        layers.mul(x, x)


def test_collective_operations_are_appended():
    x = layers.data("x", [4, 2], append_batch_size=False)
    summed = layers.collective._c_allreduce(x, reduce_type="max", use_calc_stream=True)
    gathered = layers.collective._c_allgather(x, 2)
    part = layers.collective._c_reducescatter(x, 2)
    layers.collective._c_broadcast(x, root=1)
    assert (summed.shape, gathered.shape, part.shape) == ([4, 2], [8, 2], [2, 2])
    assert op_types() == [
        "c_allreduce_max",
        "c_allgather",
        "c_reducescatter",
        "c_broadcast",
    ]
    with pytest.raises(TypeError, match="reduce_type"):
        layers.collective._c_allreduce(x, reduce_type="mean")
    with pytest.raises(ValueError, match="do not split"):
        layers.collective._c_reducescatter(x, 3)


def test_fetch_handlers():
    handler = fluid.executor.FetchHandler({"loss": None}, period_secs=1)
    assert handler.period_secs == 1
    with pytest.raises(ValueError, match="var_dict"):
        fluid.executor.FetchHandler()


def test_static_mode_begins_by_itself(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "train.py"
    script.write_text(
        "import numpy as np, paddle.fluid as fluid\n"
        "x = fluid.layers.data('x', [2])\n"
        "y = fluid.layers.fc(x, 3)\n"
        "exe = fluid.Executor(fluid.CPUPlace())\n"
        "exe.run(fluid.default_startup_program())\n"
        "out, = exe.run(feed={'x': np.ones((4, 2), 'float32')}, fetch_list=[y])\n"
        "print(out.shape)\n"
    )
    import os

    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "(4, 3)\n", done.stderr
    assert "going on in static mode" in done.stderr


def test_what_belongs_to_other_parts_says_so():
    with pytest.raises(NotImplementedError, match="measuring"):
        fluid.profiler
    with pytest.raises(NotImplementedError, match="pipelines"):
        fluid.optimizer.PipelineOptimizer
    assert static.Program is fluid.Program


def test_settings_have_the_defaults_of_paddle():
    build = fluid.BuildStrategy()
    assert not build.enable_sequential_execution and not build.fuse_elewise_add_act_ops
    assert not build.fuse_bn_act_ops and not build.fuse_relu_depthwise_conv
    assert not build.fuse_broadcast_ops and build.fuse_all_optimizer_ops
    assert build.enable_inplace and build.enable_backward_optimizer_op_deps
    assert not build.cache_runtime_context and build.fuse_bn_add_act_ops
    assert not build.enable_auto_fusion and not build.enable_addto
    assert build.reduce_strategy == fluid.BuildStrategy.ReduceStrategy.AllReduce
    kinds = fluid.BuildStrategy.GradientScaleStrategy
    assert build.gradient_scale_strategy == kinds.CoeffNumDevice
    assert build.memory_optimize is None and build.remove_unnecessary_lock
    assert not build.sync_batch_norm and build.num_trainers == 1
    assert build.trainer_id == 0 and build.trainers_endpoints == []
    build.trainers_endpoints.append("127.0.0.1:80")
    assert fluid.BuildStrategy().trainers_endpoints == []
    execution = fluid.ExecutionStrategy()
    assert execution.num_threads == 0 and execution.num_iteration_per_run == 1
    assert execution.num_iteration_per_drop_scope == 100
    assert not execution.use_thread_barrier
    assert "num_threads=0" in repr(execution)


def filled(kind, *args, shape=(200, 300)):
    """What a startup program fills a parameter with."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        attr = fluid.ParamAttr(name="filled", initializer=kind(*args))
        layers.create_parameter(list(shape), "float32", attr=attr)
        start()
    return value_of("filled")


def test_initializers_fill_in_startup_programs():
    from paddle.fluid import initializer

    for kind in (initializer.Constant, initializer.ConstantInitializer):
        np.testing.assert_array_equal(
            filled(kind, 2.5, shape=(2, 3)), np.full((2, 3), 2.5)
        )
    for kind in (initializer.Uniform, initializer.UniformInitializer):
        value = filled(kind, -0.5, 1.5)
        assert -0.5 <= value.min() < -0.49 and 1.49 < value.max() <= 1.5
        assert abs(value.mean() - 0.5) < 0.02
    for kind in (initializer.Normal, initializer.NormalInitializer):
        value = filled(kind, 1.0, 2.0)
        assert abs(value.mean() - 1.0) < 0.05 and abs(value.std() - 2.0) < 0.05
    for kind in (initializer.TruncatedNormal, initializer.TruncatedNormalInitializer):
        value = filled(kind, 0.0, 1.0)
        assert np.abs(value).max() <= 2.0 and abs(value.std() - 0.88) < 0.02
    for kind in (initializer.Xavier, initializer.XavierInitializer):
        limit = math.sqrt(6 / 500)
        assert 0.98 * limit < np.abs(filled(kind)).max() <= limit * 1.0001
        assert abs(filled(kind, False).std() - math.sqrt(2 / 500)) < 0.002
    for kind in (initializer.MSRA, initializer.MSRAInitializer):
        limit = math.sqrt(6 / 200)
        assert 0.98 * limit < np.abs(filled(kind)).max() <= limit * 1.0001
        assert abs(filled(kind, False).std() - math.sqrt(2 / 200)) < 0.002
    first, second, other = (
        filled(initializer.Normal, 0.0, 1.0, seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_values_are_saved_and_loaded(tmp_path):
    out = layers.fc(layers.data("x", [3]), 2, act="tanh")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    feed = {"x": drawn(4, 3)}
    (before,) = run([out], feed)
    fluid.io.save_persistables(executor, str(tmp_path / "values"))
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [out], executor)
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    weight.set(np.zeros((3, 2), "float32"), fluid.CPUPlace())
    fluid.io.load_persistables(executor, str(tmp_path / "values"))
    np.testing.assert_array_equal(run([out], feed)[0], before)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(
            str(tmp_path / "model"), executor
        )
        assert feeds == ["x"]
        got = executor.run(program, feed=feed, fetch_list=fetches)
        np.testing.assert_allclose(got[0], before, 1e-6)


def test_modes_of_fluid():
    assert not fluid.in_dygraph_mode()
    fluid.enable_dygraph()
    assert fluid.in_dygraph_mode() and fluid.framework.in_dygraph_mode()
    fluid.disable_dygraph()
    assert not fluid.in_dygraph_mode()
    roles = fluid.core.op_proto_and_checker_maker.OpRole
    assert (roles.Forward, roles.Backward, roles.Loss) == (0, 1, 256)
    assert issubclass(fluid.framework.Parameter, fluid.framework.Variable)
    assert fluid.Parameter is fluid.framework.Parameter
