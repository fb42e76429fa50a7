# SPDX-License-Identifier: Apache-2.0
"""py_func and Print: operations that Python carries out."""

import numpy as np
import paddle
import pytest
from paddle import static
from static_check import drawn, feed_of, fresh_programs, run, start

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")

X = drawn(3, 4)


def out_like(x, name="out"):
    block = static.default_main_program().current_block()
    return block.create_var(name=name, shape=x.shape, dtype=x.dtype)


def test_py_func_computes_and_differentiates():
    x = feed_of("x", X)
    hidden = static.nn.fc(x, 4, bias_attr=False)

    def backward(x, y, dy):
        return np.array(dy) * (1 - np.square(np.array(y)))

    out = static.py_func(np.tanh, hidden, out_like(hidden), backward)
    loss = paddle.sum(out)
    ((_, gradient),) = static.append_backward(loss)
    start()
    weight, y, dw = run(["fc_0.w_0", out, gradient], {"x": X})
    np.testing.assert_allclose(y, np.tanh(X @ weight), 1e-5)
    np.testing.assert_allclose(dw, X.T @ (1 - np.tanh(X @ weight) ** 2), 1e-4)


def test_py_func_takes_several_and_skips_what_backward_does_not_want():
    x = feed_of("x", X)
    a, b = static.nn.fc(x, 4, name="a"), static.nn.fc(x, 4, name="b")
    outs = [out_like(x, "product"), out_like(x, "sum")]

    def forward(a, b):
        a, b = a.numpy(), b.numpy()
        return a * b, (a + b).astype("float64")

    def backward(a, b, *gradients):
        assert len(gradients) == 2
        dp, ds = (g.numpy() for g in gradients)
        return dp * b.numpy() + ds, None

    made = static.py_func(forward, [a, b], outs, backward, outs)
    assert made is outs
    loss = paddle.sum(made[0]) + paddle.sum(made[1])
    gradients = static.gradients(loss, [a, b])
    start()
    got = run([a, b, *outs, *gradients], {"x": X})
    np.testing.assert_allclose(got[2], got[0] * got[1], 1e-6)
    np.testing.assert_allclose(got[3], got[0] + got[1], 1e-6)
    assert got[3].dtype == np.float32
    np.testing.assert_allclose(got[4], got[1] + 1, 1e-6)
    np.testing.assert_array_equal(got[5], np.zeros_like(X))


def test_py_func_without_outputs_and_without_gradient():
    x = feed_of("x", X)
    hidden = static.nn.fc(x, 2)
    seen = []
    assert static.py_func(lambda v: seen.append(np.array(v)), hidden, None) is None
    cut = static.py_func(lambda v: v * 2, hidden, out_like(hidden))
    assert cut.stop_gradient
    loss = paddle.mean(hidden) + paddle.mean(cut)
    paddle.optimizer.SGD(0.1).minimize(loss)
    start()
    value, doubled = run([hidden, cut], {"x": X})
    np.testing.assert_array_equal(seen[0], value)
    np.testing.assert_allclose(doubled, 2 * value, 1e-6)


def test_an_exception_of_the_function_is_raised_by_run():
    x = feed_of("x", X)

    def fails(value):
        raise KeyError("not today")

    out = static.py_func(fails, x, out_like(x))
    with pytest.raises(KeyError, match="not today") as caught:
        run([out], {"x": X})
    assert "test_static_python_ops.py" in "".join(caught.value.__notes__)


def test_py_func_says_what_is_wrong():
    x = feed_of("x", X)
    with pytest.raises(TypeError, match="must be a function"):
        static.py_func(3, x, out_like(x))
    with pytest.raises(TypeError, match="must be a function"):
        static.py_func(np.tanh, x, out_like(x), 3)
    with pytest.raises(TypeError, match="Variables"):
        static.py_func(np.tanh, X, out_like(x))
    with pytest.raises(ValueError, match="neither in x nor in out"):
        static.py_func(np.tanh, x, out_like(x), np.tanh, ["other"])
    block = static.default_main_program().global_block()
    with pytest.raises(ValueError, match="out_types is cut off"):
        attrs = {"forward_callable_id": 0, "out_types": [5, 2, 3]}
        block.append_op("py_func", {"X": x}, {"Out": out_like(x)}, attrs)
    fixed = block.create_var(name="fixed", shape=[3, 4], dtype="float32")
    wrong = static.py_func(lambda v: v[0:1], x, fixed)
    with pytest.raises(ValueError, match=r"fixed has shape \[3, 4\], but .* \[1, 4\]"):
        run([wrong], {"x": X})
    with static.program_guard(static.Program()):
        y = feed_of("y", X)
        few = static.py_func(lambda v: None, y, out_like(y, "few"))
        with pytest.raises(ValueError, match="returned 0 values"):
            run([few], {"y": X})


def test_print_prints_values_and_gradients(capfd):
    x = feed_of("x", np.ones((1, 3), "float32"))
    hidden = static.nn.fc(x, 3, bias_attr=False)
    shown = static.Print(hidden, message="the hidden layer:", summarize=2)
    assert (shown.shape, shown.dtype) == (hidden.shape, hidden.dtype)
    loss = paddle.sum(shown * 2.0)
    paddle.optimizer.SGD(0.1).minimize(loss)
    start()
    (value,) = run([hidden], {"x": np.ones((1, 3), "float32")})
    text = capfd.readouterr().out
    assert text.count("the hidden layer:") == 2
    assert f"Variable: {hidden.name}\n" in text and "@GRAD" in text
    assert "shape: [1, 3]" in text and "dtype: float32" in text
    assert np.array2string(value[0, :2], separator=" ")[1:-1] in text
    assert "[2. 2. ...]" in text


def test_print_in_one_phase_and_a_few_times(capfd):
    x = feed_of("x", X)
    out = static.Print(
        x,
        first_n=2,
        print_phase="forward",
        print_tensor_name=False,
        print_tensor_shape=False,
        print_tensor_type=False,
        summarize=-1,
    )
    executor = static.Executor(paddle.CPUPlace())
    for _ in range(3):
        (value,) = executor.run(feed={"x": X}, fetch_list=[out])
        np.testing.assert_array_equal(value, X)
    text = capfd.readouterr().out
    assert text.count("data: [") == 2
    assert "Variable" not in text and "shape" not in text and "..." not in text
    with pytest.raises(ValueError, match="print_phase"):
        static.Print(x, print_phase="never")
    with pytest.raises(TypeError, match="Variable"):
        static.Print(X)
