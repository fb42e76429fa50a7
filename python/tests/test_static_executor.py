# SPDX-License-Identifier: Apache-2.0
"""Executor.run in all its spellings, scopes, and what a program says about itself."""

import copy

import numpy as np
import paddle
import pytest
from paddle import nn, static
from paddle.tensor.creation import computed_tensor
from static_check import fresh_programs, op_types, start, value_of  # noqa: F401

pytestmark = pytest.mark.usefixtures("fresh_programs")

X = np.arange(8, dtype="float32").reshape(2, 4)


def executor():
    return static.Executor(paddle.CPUPlace())


# ---- feed and fetch


def doubled():
    x = static.data("x", [None, 4])
    return x, x * 2.0


def test_fetches_by_name_and_by_variable():
    x, y = doubled()
    exe = executor()
    for fetch in ([y], [y.name], (y, x), y, [[y], [x]], y.name):
        values = exe.run(feed={"x": X}, fetch_list=fetch)
        np.testing.assert_array_equal(values[0], 2 * X)
    assert exe.run(feed={"x": X}) == []
    assert exe.run(feed={"x": X}, fetch_list=[]) == []


def test_feeds_in_other_forms():
    x, y = doubled()
    exe = executor()
    tensor = static.executor.LoDTensor()
    tensor.set(X)
    strange = np.asfortranarray(X)[::-1]
    for feed, wanted in (
        ({"x": X.tolist()}, X),
        ({"x": computed_tensor(X)}, X),
        ({x: X}, X),
        ({"x": tensor}, X),
        ([{"x": X}], X),
        ([{"x": X[:1]}, {"x": X[1:]}], X),
        ({"x": strange}, X[::-1]),
    ):
        (value,) = exe.run(feed=feed, fetch_list=[y])
        np.testing.assert_array_equal(value, 2 * wanted)
    frozen = X.copy()
    frozen.flags.writeable = False
    (value,) = exe.run(feed={"x": frozen}, fetch_list=[y])
    np.testing.assert_array_equal(value, 2 * X)


def test_a_feed_is_never_written_and_a_fetch_is_a_copy():
    x = static.data("x", [None, 4])
    y = paddle.tanh(x)
    paddle.assign(y, x)
    feed = X.copy()
    exe = executor()
    first = exe.run(feed={"x": feed}, fetch_list=[x, y])
    np.testing.assert_array_equal(feed, X)
    second = exe.run(feed={"x": feed + 1}, fetch_list=[x, y])
    np.testing.assert_allclose(first[1], np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(second[0], np.tanh(X + 1), rtol=1e-6)


def test_tensors_instead_of_arrays():
    x, y = doubled()
    (value,) = executor().run(feed={"x": X}, fetch_list=[y], return_numpy=False)
    np.testing.assert_array_equal(np.array(value), 2 * X)


def test_shapes_may_change_from_run_to_run():
    x = static.data("x", [-1, 4])
    y = paddle.sum(x, axis=1)
    exe = executor()
    for rows in (1, 5, 3, 5, 1):
        (value,) = exe.run(feed={"x": np.ones((rows, 4), "float32")}, fetch_list=[y])
        np.testing.assert_array_equal(value, np.full(rows, 4.0, "float32"))


def test_a_program_may_grow_after_a_run():
    x, y = doubled()
    exe = executor()
    exe.run(feed={"x": X}, fetch_list=[y])
    z = y + 1.0
    (value,) = exe.run(feed={"x": X}, fetch_list=[z])
    np.testing.assert_array_equal(value, 2 * X + 1)


def test_errors_of_a_run():
    x, y = doubled()
    exe = executor()
    with pytest.raises(ValueError, match="no variable nowhere"):
        exe.run(feed={"x": X}, fetch_list=["nowhere"])
    with pytest.raises(TypeError, match="Variables or their names"):
        exe.run(feed={"x": X}, fetch_list=[3])
    with pytest.raises(TypeError, match="program must be a Program"):
        exe.run("main", feed={"x": X})
    with pytest.raises(TypeError, match="feed must be a dict"):
        exe.run(feed=3)
    with pytest.raises(TypeError, match="has no value"):
        exe.run(feed={"x": x}, fetch_list=[y])
    exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        exe.run(feed={"x": X}, fetch_list=[y])


def test_an_error_in_a_step_names_op_shapes_and_line():
    x = static.data("x", [None, None])
    y = static.data("y", [None, None])
    z = paddle.matmul(x, y)
    with pytest.raises(ValueError) as error:
        executor().run(feed={"x": X, "y": X}, fetch_list=[z])
    text = str(error.value)
    assert "test_static_executor.py:" in text
    assert "matmul_v2" in text
    assert "[2, 4]" in text


def test_other_names_of_running():
    x, y = doubled()
    program = static.default_main_program()
    build = static.BuildStrategy()
    build.fuse_all_optimizer_ops = False
    build.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
    with pytest.raises(AttributeError, match="fuse_everything"):
        build.fuse_everything = True
    threads = static.ExecutionStrategy()
    threads.num_threads = 2
    compiled = static.CompiledProgram(program, build).with_data_parallel(
        loss_name=y.name, exec_strategy=threads, places=static.cpu_places(2)
    )
    (value,) = executor().run(compiled, feed={"x": X}, fetch_list=[y])
    np.testing.assert_array_equal(value, 2 * X)
    parallel = static.ParallelExecutor(False, main_program=program)
    (value,) = parallel.run([y.name], feed={"x": X})
    np.testing.assert_array_equal(value, 2 * X)
    with pytest.raises(TypeError, match="takes a Program"):
        static.CompiledProgram("main")


def test_what_a_program_is_compiled_to_is_run_in_its_place():
    program, other = static.Program(), static.Program()
    for each, factor in ((program, 2.0), (other, 3.0)):
        with static.program_guard(each, static.Program()):
            x = static.data("x", [None, 2])
            static.default_main_program().global_block().append_op(
                "scale", {"X": x}, {"Out": "out"}, {"scale": factor}
            )
    executor = static.Executor(paddle.CPUPlace())
    feed = {"x": np.ones((1, 2), "float32")}

    def found(given):
        return executor.run(given, feed, ["out"])[0].ravel().tolist()

    assert program._graph is None and found(program) == [2.0, 2.0]
    program._graph = static.CompiledProgram(other)
    assert found(program) == [3.0, 3.0]
    with static.program_guard(program, static.Program()):
        assert found(None) == [3.0, 3.0]
    program._graph = None
    assert found(program) == [2.0, 2.0]
    with pytest.raises(TypeError, match="_graph takes a CompiledProgram or None"):
        program._graph = other


# ---- scopes


def test_scopes_keep_values_apart():
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 2)
    exe = executor()
    first, second = static.Scope(), static.Scope()
    exe.run(static.default_startup_program(), scope=first)
    with pytest.raises(RuntimeError, match="run the startup program first"):
        exe.run(feed={"x": X}, fetch_list=[y], scope=second)
    with static.scope_guard(second):
        start()
        assert static.global_scope() is second
        assert second.find_var("fc_0.w_0").get_tensor().shape() == [4, 2]
    assert second.find_var("nothing") is None
    a = exe.run(feed={"x": X}, fetch_list=[y], scope=first)[0]
    b = exe.run(feed={"x": X}, fetch_list=[y], scope=second)[0]
    assert not np.allclose(a, b)
    with pytest.raises(TypeError, match="takes a Scope"):
        with static.scope_guard("second"):
            pass


def test_values_of_a_scope_can_be_set_and_read():
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 2, bias_attr=False)
    start()
    tensor = static.global_scope().find_var("fc_0.w_0").get_tensor()
    tensor.set(np.ones((4, 2), "float32"), paddle.CPUPlace())
    (value,) = executor().run(feed={"x": X}, fetch_list=[y])
    np.testing.assert_array_equal(value, np.repeat(X.sum(1)[:, None], 2, 1))
    assert tensor._get_dims() == [4, 2]
    w = static.default_main_program().all_parameters()[0]
    w.set_value(np.zeros((4, 2), "float32"))
    assert not np.array(w.get_value()).any()
    assert not np.array(tensor).any()


# ---- programs


def test_clone_for_test_leaves_training_out():
    x = static.data("x", [None, 4])
    y = nn.functional.dropout(static.nn.fc(x, 3), 0.5)
    loss = paddle.mean(y)
    before = static.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(0.1).minimize(loss)
    after = static.default_main_program().clone(for_test=True)
    assert op_types(before) == op_types(after)
    assert "adam" not in op_types(after)
    whole = static.default_main_program().clone()
    assert op_types(whole) == op_types()
    assert [p.name for p in whole.all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]
    dropout = [op for op in after.global_block().ops if op.type == "dropout"][0]
    assert dropout.attr("is_test") is True
    start()
    exe = executor()
    kept = value_of("fc_0.w_0")
    a = exe.run(after, feed={"x": X}, fetch_list=[loss])
    b = exe.run(after, feed={"x": X}, fetch_list=[loss.name])
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(value_of("fc_0.w_0"), kept)


def test_what_a_program_says_about_itself():
    x = static.data("x", [None, 4])
    with static.name_scope("encoder"), static.device_guard("cpu"):
        y = static.nn.fc(x, 3, activation="relu")
    program = static.default_main_program()
    assert program.num_blocks == 1
    block = program.global_block()
    assert block.idx == 0 and block.parent_idx == -1
    assert block.program is program
    assert {"x", "fc_0.w_0", y.name} <= set(block.vars)
    assert {v.name for v in program.list_vars()} == set(block.vars)
    op = block.ops[-1]
    assert (op.type, op.output("Out"), op.input_arg_names) == (
        "relu",
        [y.name],
        ["fc_0.tmp_1"],
    )
    assert op.attr("op_namescope") == "/encoder/"
    assert op.attr("op_device") == "cpu"
    assert "relu" in str(program) and "fc_0.w_0" in program.to_string(True)
    assert "test_static_executor.py" in program.to_string(True, with_details=True)
    assert "relu" in str(op) and "shape(-1, 3)" in str(y)
    assert y.block == block and y.op == op
    with pytest.raises(ValueError, match="not in this block"):
        block.var("nothing")
    with pytest.raises(ValueError, match="device_guard"):
        with static.device_guard("tpu"):
            pass
    with pytest.raises(ValueError, match="name_scope"):
        with static.name_scope(""):
            pass


def test_variables_can_be_declared():
    block = static.default_main_program().global_block()
    v = block.create_var(name="v", shape=[2, None], dtype="int64", persistable=True)
    assert (v.shape, v.dtype, v.persistable) == ([2, -1], paddle.int64, True)
    assert block.create_var(name="v") is v
    v.stop_gradient = True
    assert block.var("v").stop_gradient
    p = static.create_parameter([2, 3], "float32", name="p")
    assert p.is_parameter and p.trainable and not p.stop_gradient
    p.trainable = False
    assert p.stop_gradient


def test_operations_can_be_added_by_hand():
    x = static.data("x", [None, 4])
    block = static.default_main_program().global_block()
    y = block.create_var(name="y")
    op = block.append_op("scale", {"X": x}, {"Out": [y]}, {"scale": 3})
    assert y.shape == [-1, 4] and op.attr("scale") == 3.0
    op._set_attr("scale", 4.0)
    (value,) = executor().run(feed={"x": X}, fetch_list=["y"])
    np.testing.assert_array_equal(value, 4 * X)
    block._remove_op(0)
    assert block.ops == []
    with pytest.raises(TypeError, match="attribute 'scale'"):
        block.append_op("scale", {"X": x}, {"Out": y}, {"scale": "three"})


def test_variables_and_operations_refuse_what_they_do_not_know():
    block = static.default_main_program().global_block()
    with pytest.raises(TypeError, match="create_var has no argument 'error_clip'"):
        block.create_var(name="v", error_clip=1.0)
    with pytest.raises(ValueError, match="LOD_TENSOR.*not 'READER'"):
        block.create_var(name="v", type="READER")
    with pytest.raises(TypeError, match="append_op has no argument 'attributes'"):
        block.append_op("scale", attributes={})
    with pytest.raises(TypeError, match="create_parameter has no argument 'lr'"):
        block.create_parameter(name="p", shape=[2], lr=0.5)
    assert not block.has_var("v") and not block.has_var("p")


def test_what_is_said_of_a_parameter_is_kept():
    block = static.default_main_program().global_block()
    slow = block.create_parameter(
        name="slow", shape=[2], optimize_attr={"learning_rate": 0.5}, need_clip=False
    )
    fixed = block.create_parameter(name="fixed", shape=[2], trainable=False)
    assert not slow.need_clip and not fixed.trainable
    paddle.optimizer.SGD(0.1).minimize(paddle.sum(slow + fixed))
    start()
    before = [value_of("slow"), value_of("fixed")]
    executor().run()
    np.testing.assert_allclose(before[0] - value_of("slow"), [0.05, 0.05], rtol=1e-5)
    np.testing.assert_array_equal(before[1], value_of("fixed"))


def test_a_variable_is_filled_by_its_initializer():
    fill = paddle.nn.initializer.Constant(3.0)
    block = static.default_main_program().global_block()
    v = block.create_var(name="v", shape=[2], dtype="float32", initializer=fill)
    np.testing.assert_array_equal(executor().run(fetch_list=[v])[0], [3.0, 3.0])


def test_only_what_is_fetched_runs_if_the_user_says_so():
    x, unused = static.data("x", [None, 4]), static.data("unused", [None, 1])
    y = static.nn.fc(x, 2)
    loss = paddle.mean(y)
    paddle.mean(unused)
    paddle.optimizer.SGD(0.1).minimize(loss)
    start()
    exe, before = executor(), value_of("fc_0.w_0")
    (pruned,) = exe.run(feed={"x": X}, fetch_list=[loss], use_prune=True)
    np.testing.assert_array_equal(value_of("fc_0.w_0"), before)
    feed = {"x": X, "unused": X[:, :1]}
    np.testing.assert_array_equal(exe.run(feed=feed, fetch_list=[loss])[0], pruned)
    assert not np.array_equal(value_of("fc_0.w_0"), before)
    # A program that has changed is looked at again.
    more = y * 2
    feed = {"x": X, "unused": X[:, :1]}
    twice, once = exe.run(feed=feed, fetch_list=[more, y.name], use_prune=True)
    np.testing.assert_allclose(twice, 2 * once)
    with pytest.raises(ValueError, match="depend on the data x"):
        exe.run(feed={}, fetch_list=[loss], use_prune=True)


def test_the_seed_of_a_program_fixes_its_parameters():
    values = []
    for seed in (7, 7, 8):
        main, first = static.Program(), static.Program()
        first.random_seed = seed
        with (
            static.program_guard(main, first),
            static.scope_guard(static.Scope()),
            paddle.utils.unique_name.guard(),
        ):
            static.nn.fc(static.data("x", [None, 4]), 3)
            executor().run(first)
            values.append(value_of("fc_0.w_0"))
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])


# ---- gradients


def test_gradients_of_and_by_several():
    x = static.data("x", [None, 4])
    y = static.data("y", [None, 4])
    a, b = paddle.exp(x) * y, paddle.square(x)
    start_of_b = static.data("g", [None, 4])
    da, db, none = static.gradients([a, b], [x, y, start_of_b], [None, start_of_b])
    assert none is None
    assert x.stop_gradient
    g = np.full_like(X, 0.5)
    values = executor().run(feed={"x": X, "y": X + 1, "g": g}, fetch_list=[da, db])
    np.testing.assert_allclose(values[0], np.exp(X) * (X + 1) + X, rtol=1e-5)
    np.testing.assert_allclose(values[1], np.exp(X), rtol=1e-5)


def test_append_backward_stops_where_it_should():
    x = static.data("x", [None, 4])
    hidden = static.nn.fc(x, 3)
    hidden.stop_gradient = True
    loss = paddle.mean(static.nn.fc(hidden, 2))
    pairs = static.append_backward(loss)
    assert [p.name for p, _ in pairs] == ["fc_1.w_0", "fc_1.b_0"]
    with pytest.raises(TypeError, match="must be a Variable"):
        static.append_backward(3.0)


# ---- parameters


def test_weight_norm():
    x = static.data("x", [None, 4])
    attr = static.WeightNormParamAttr(dim=1, name="w")
    y = static.nn.fc(x, 3, weight_attr=attr, bias_attr=False)
    loss = paddle.mean(paddle.square(y))
    paddle.optimizer.SGD(0.1).minimize(loss)
    start()
    v, g = value_of("w.weight_norm_v"), value_of("w.weight_norm_g")
    np.testing.assert_allclose(g, np.linalg.norm(v, axis=0), rtol=1e-5)
    (value,) = executor().run(feed={"x": X}, fetch_list=[y])
    np.testing.assert_allclose(value, X @ v, rtol=1e-4)
    assert not np.allclose(value_of("w.weight_norm_g"), g)


def test_copied_layers_have_parameters_of_their_own():
    x = static.data("x", [None, 4])
    layer = nn.Linear(4, 3)
    twin = copy.deepcopy(layer)
    a, b = layer(x), twin(x)
    assert len(static.default_main_program().all_parameters()) == 4
    start()
    values = executor().run(feed={"x": X}, fetch_list=[a, b])
    np.testing.assert_array_equal(values[0], values[1])


# ---- indexing


@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        (0, 2),
        slice(1, None),
        (slice(None), slice(0, 4, 2)),
        (slice(None), slice(None, None, -1)),
        (Ellipsis, 0),
        (None, 1),
        (slice(None), None),
        [1, 0, 1],
        (slice(None), [3, 0]),
        ([0, 1], [2, 3]),
    ],
)
def test_reading_by_index(index):
    x = static.data("x", [None, 4])
    y = x[index]
    (value,) = executor().run(feed={"x": X}, fetch_list=[y])
    np.testing.assert_array_equal(value, np.reshape(X[index], value.shape))
    assert value.shape == (np.shape(X[index]) or (1,))
    assert all(n in (-1, m) for n, m in zip(y.shape, value.shape))


def test_reading_by_variables():
    x = static.data("x", [None, 4])
    i = static.data("i", [1], "int64")
    ids = static.data("ids", [None], "int64")
    picks = [x[i], x[ids], x[x > 3.0], x[:, i : i + 2]]
    feed = {"x": X, "i": np.array([1]), "ids": np.array([1, 1, 0])}
    values = executor().run(feed=feed, fetch_list=picks)
    wanted = [X[1], X[[1, 1, 0]], X[X > 3.0], X[:, 1:3]]
    for value, want in zip(values, wanted):
        np.testing.assert_array_equal(value, want)


def test_writing_by_index():
    x = static.data("x", [2, 4])
    y = x * 1.0
    y[0, 1:3] = 9.0
    y[1] = x[0]
    (value,) = executor().run(feed={"x": X}, fetch_list=[y])
    wanted = X.copy()
    wanted[0, 1:3] = 9.0
    wanted[1] = X[0]
    np.testing.assert_array_equal(value, wanted)


def test_functions_in_place():
    x = static.data("x", [None, 4])
    y = x * 1.0
    y.add_(paddle.ones([1]))
    counter = paddle.full([1], 2, "int64")
    paddle.increment(counter, 3)
    z = paddle.zeros([1])
    paddle.assign(np.array([4.0], "float32"), z)
    values = executor().run(feed={"x": X}, fetch_list=[y, counter, z])
    np.testing.assert_array_equal(values[0], X + 1)
    assert values[1] == [5] and values[2] == [4.0]


def test_gradients_through_changes_in_place():
    x = static.data("x", [2, 4])
    x.stop_gradient = False
    y = paddle.tanh(x) * 1.0
    y.multiply_(y)
    y[0] = 3.0
    (dx,) = static.gradients([paddle.sum(y * y)], [x])
    (value,) = executor().run(feed={"x": X / 4}, fetch_list=[dx])
    t = np.tanh(X / 4)
    wanted = 4 * t**3 * (1 - t**2)
    wanted[0] = 0
    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-6)


def test_rows_of_a_gradient_outlive_what_they_were_cut_from():
    """The gradient of a look-up shows memory of a gradient before it."""
    found = []
    for sparse in (False, True):
        with static.program_guard(static.Program(), static.Program()):
            ids, x = static.data("ids", [None, 3], "int64"), static.data("x", [None, 5])
            fill = nn.initializer.Constant(0.02)
            attr = paddle.ParamAttr(name=f"table_{sparse}", initializer=fill)
            rows = static.nn.embedding(ids, [60, 4], is_sparse=sparse, param_attr=attr)
            both = paddle.concat([paddle.reshape(rows, [-1, 12]), x], axis=1)
            weight = paddle.ParamAttr(initializer=nn.initializer.Constant(0.1))
            loss = paddle.mean(static.nn.fc(both, 1, weight_attr=weight) ** 2)
            paddle.optimizer.SGD(0.1).minimize(loss)
            exe = executor()
            exe.run(static.default_startup_program())
            rng = np.random.default_rng(0)
            for _ in range(4):
                feed = {
                    "ids": rng.integers(0, 60, (8, 3)),
                    "x": rng.standard_normal((8, 5)).astype("float32"),
                }
                exe.run(feed=feed, fetch_list=[loss])
        table = static.global_scope().find_var(f"table_{sparse}").get_tensor()
        found.append(np.array(table))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("slots", [2, 26])
def test_look_ups_in_one_table_add_their_gradients(slots):
    """Rows of several look-ups, of which some are the same, train as dense ones."""
    found = []
    for sparse in (False, True):
        with static.program_guard(static.Program(), static.Program()):
            ids = [static.data(f"ids{i}", [None, 1], "int64") for i in range(slots)]
            fill = nn.initializer.Constant(0.5)
            attr = paddle.ParamAttr(name=f"shared_{sparse}", initializer=fill)
            rows = [
                static.nn.embedding(i, [20, 4], is_sparse=sparse, param_attr=attr)
                for i in ids
            ]
            loss = paddle.mean(paddle.concat(rows, axis=1) ** 2)
            paddle.optimizer.Adagrad(0.1).minimize(loss)
            exe = executor()
            exe.run(static.default_startup_program())
            rng = np.random.default_rng(0)
            for _ in range(4):
                drawn = rng.integers(0, 20, (slots, 8, 1))
                feed = {f"ids{i}": drawn[i] for i in range(slots)}
                exe.run(feed=feed, fetch_list=[loss])
        table = static.global_scope().find_var(f"shared_{sparse}").get_tensor()
        found.append(np.array(table))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
