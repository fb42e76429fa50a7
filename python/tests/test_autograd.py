# SPDX-License-Identifier: Apache-2.0
import gc
import weakref

import numpy as np
import paddle
import pytest
import torch
from op_check import check, floats
from paddle.autograd import PyLayer


def leaf(data):
    return paddle.to_tensor(data, dtype="float64", stop_gradient=False)


# ---- switches


def test_no_grad_as_a_block():
    x = leaf([1.0])
    with paddle.no_grad():
        assert not paddle.is_grad_enabled()
        assert (x * 2).stop_gradient
        with paddle.enable_grad():
            assert not (x * 2).stop_gradient
        assert (x * 2).stop_gradient
    assert not (x * 2).stop_gradient


def test_no_grad_ends_with_an_exception():
    with pytest.raises(KeyError):
        with paddle.no_grad():
            raise KeyError
    assert paddle.is_grad_enabled()


def test_no_grad_as_a_decorator():
    @paddle.no_grad()
    def with_call(x, scale=1):
        """Says something."""
        return x * scale

    @paddle.no_grad
    def without_call(x):
        return x * 2

    assert with_call(leaf([1.0]), scale=3).stop_gradient
    assert with_call.__doc__ == "Says something."
    assert without_call(leaf([1.0])).stop_gradient
    assert paddle.is_grad_enabled()


def test_no_grad_around_a_generator():
    @paddle.no_grad()
    def steps(x):
        try:
            got = yield x * 2
            yield (x * 3, got)
        except KeyError:
            yield paddle.is_grad_enabled()
        return 7

    x = leaf([1.0])
    generator = steps(x)
    assert next(generator).stop_gradient
    assert paddle.is_grad_enabled()
    result, got = generator.send("hello")
    assert result.stop_gradient and got == "hello"
    assert generator.throw(KeyError()) is False
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == 7


def test_set_grad_enabled():
    with paddle.set_grad_enabled(False):
        assert not paddle.is_grad_enabled()
    assert paddle.is_grad_enabled()
    with pytest.raises(TypeError, match="function"):
        paddle.no_grad(3)


# ---- backward


def test_backward_adds_up():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]
    assert isinstance(x.gradient(), np.ndarray)
    x.clear_grad()
    assert x.grad.tolist() == [0.0, 0.0]
    x.clear_gradient(set_to_zero=False)
    assert x.grad is None and x.gradient() is None


def test_backward_of_many_elements_starts_with_ones():
    x = leaf([1.0, 2.0])
    (x * x).backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_backward_with_a_given_gradient():
    x = leaf([1.0, 2.0])
    (x * x).backward(paddle.to_tensor([1.0, 10.0], dtype="float64"))
    assert x.grad.tolist() == [2.0, 40.0]


def test_backward_of_several_outputs():
    x = leaf([1.0, 2.0])
    y, z = x * x, x * 3
    paddle.autograd.backward([y, z], [None, paddle.to_tensor([2.0, 0.0], "float64")])
    assert x.grad.tolist() == [8.0, 4.0]


def test_backward_twice_needs_retain_graph():
    x = leaf([1.0])
    y = (x * x).exp()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == pytest.approx(2 * 2 * np.e)
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()


def test_backward_without_history_says_why():
    x = paddle.to_tensor([1.0])
    with pytest.raises(RuntimeError, match="stop_gradient=True"):
        (x * 2).backward()


def test_bad_arguments_of_backward():
    x = leaf([1.0, 2.0])
    with pytest.raises(ValueError, match=r"shape \[3\] but its output has \[2\]"):
        (x * 2).backward(paddle.ones([3], "float64"))
    with pytest.raises(TypeError, match="must be a Tensor"):
        paddle.autograd.backward(3)
    with pytest.raises(TypeError, match="must hold Tensors"):
        paddle.autograd.backward([3])
    with pytest.raises(ValueError, match="empty"):
        paddle.autograd.backward([])
    with pytest.raises(ValueError, match="1 outputs but 2"):
        paddle.autograd.backward([x * 2], [None, None])


def test_stop_gradient_and_detach_cut_the_graph():
    x, y = leaf([2.0]), leaf([3.0])
    y.stop_gradient = True
    z = x * y + (x * x).detach()
    z.backward()
    assert x.grad.tolist() == [3.0]
    assert y.grad is None


def test_gradients_of_a_diamond():
    def diamond(x):
        y = x * x
        return (y + y * x).exp() / (1 + y)

    check(diamond, diamond, floats(4), second=True)


def test_long_chains():
    x = leaf([1.0])
    y = x
    for _ in range(20000):
        y = y + 0.0001
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y


def test_retain_grads():
    x = leaf([1.0, 2.0])
    y = x * x
    y.retain_grads()
    z = (y * 3).sum()
    z.backward()
    assert y.grad.tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [6.0, 12.0]


# ---- grad


def test_grad_leaves_dot_grad_alone():
    x, y = leaf([2.0]), leaf([3.0])
    dx, dy = paddle.grad(x * y, [x, y])
    assert (dx.item(), dy.item()) == (3.0, 2.0)
    assert x.grad is None and y.grad is None
    assert dx.stop_gradient


def test_grad_of_any_order():
    x = leaf([2.0])
    value = x**5
    expected = [5 * 16, 20 * 8, 60 * 4, 120 * 2, 120]
    for derivative in expected:
        (value,) = paddle.grad(value, x, create_graph=True)
        assert value.item() == pytest.approx(derivative)


def test_grad_with_given_outputs():
    x = leaf([1.0, 2.0])
    (dx,) = paddle.grad([x * x], [x], [paddle.to_tensor([1.0, 10.0], "float64")])
    assert dx.tolist() == [2.0, 40.0]


def test_grad_of_an_intermediate():
    x = leaf([2.0])
    y = x * x
    (dy,) = paddle.grad(y * y, y)
    assert dy.item() == 8.0


def test_gradient_penalty_trains_parameters():
    w = leaf([[0.5, -1.0], [2.0, 0.3]])
    x = leaf([[1.0, 2.0]])
    (dx,) = paddle.grad(paddle.tanh(x @ w), x, create_graph=True)
    (dx * dx).sum().backward()
    tw = torch.tensor(w.numpy(), requires_grad=True)
    tx = torch.tensor(x.numpy(), requires_grad=True)
    (tdx,) = torch.autograd.grad(torch.tanh(tx @ tw).sum(), tx, create_graph=True)
    (tdx * tdx).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), tw.grad.numpy(), rtol=1e-10)


def test_unreachable_inputs():
    x, y = leaf([1.0]), leaf([1.0])
    y.name = "lonely"
    with pytest.raises(RuntimeError, match=r"inputs\[1\] \(lonely.*allow_unused"):
        paddle.grad(x * 2, [x, y])
    dx, dy = paddle.grad(x * 2, [x, y], allow_unused=True)
    assert dx.item() == 2.0 and dy is None
    y.stop_gradient = True
    with pytest.raises(RuntimeError, match="stop_gradient=True"):
        paddle.grad(x * 2, [x, y])


def test_no_grad_vars():
    x = leaf([2.0])
    y = x * x
    z = y * x
    (dx,) = paddle.grad(z, x, no_grad_vars=[y], retain_graph=True)
    assert dx.item() == 4.0
    (dx,) = paddle.grad(z, x)
    assert dx.item() == 12.0


def test_bad_arguments_of_grad():
    x = leaf([1.0])
    with pytest.raises(ValueError, match="only_inputs"):
        paddle.grad(x * 2, x, only_inputs=False)
    with pytest.raises(TypeError, match="inputs must be"):
        paddle.grad(x * 2, "x")
    with pytest.raises(ValueError, match="empty"):
        paddle.grad(x * 2, [])
    with pytest.raises(RuntimeError, match="stop_gradient=True"):
        paddle.grad(paddle.ones([1]), x)


# ---- hooks


def test_hooks_see_and_change_gradients():
    x = leaf([1.0, 2.0])
    y = x * x
    seen = []
    y.register_hook(lambda grad: seen.append(grad.tolist()))
    y.register_hook(lambda grad: grad * 2)
    (y * 3).sum().backward()
    assert seen == [[3.0, 3.0]]
    assert x.grad.tolist() == [12.0, 24.0]


def test_hooks_of_leaves():
    x = leaf([1.0, 2.0])
    handle = x.register_hook(lambda grad: grad * 10)
    (x * 1).sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]
    assert handle.remove()
    assert not handle.remove()
    x.clear_grad()
    (x * 1).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_a_hook_that_raises_is_heard():
    x = leaf([1.0])
    y = x * 2

    def hook(grad):
        raise KeyError("from the hook")

    y.register_hook(hook)
    with pytest.raises(KeyError, match="from the hook"):
        y.backward()


def test_bad_hooks():
    with pytest.raises(TypeError, match="function"):
        leaf([1.0]).register_hook(3)
    with pytest.raises(RuntimeError, match="stop_gradient"):
        paddle.ones([1]).register_hook(print)


# ---- PyLayer


class Tanh(PyLayer):
    @staticmethod
    def forward(ctx, x, keep_output=True):
        y = paddle.tanh(x)
        ctx.save_for_backward(y if keep_output else x)
        ctx.keep_output = keep_output
        return y

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensor()
        y = saved if ctx.keep_output else paddle.tanh(saved)
        return dy * (1 - y * y)


@pytest.mark.parametrize("keep_output", [True, False])
def test_py_layer_with_two_derivatives(keep_output):
    check(
        lambda x: Tanh.apply(x, keep_output=keep_output),
        torch.tanh,
        floats(3, 4),
        second=True,
        program=False,  # what Python computes is no op
    )


class MulAdd(PyLayer):
    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.save_for_backward(x, None, y)
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return x * y * factor, x + y, "note"

    @staticmethod
    def backward(ctx, dproduct, dsum):
        x, nothing, y = ctx.saved_tensor()
        assert nothing is None
        assert dsum is None
        return dproduct * y * ctx.factor, dproduct * x * ctx.factor


def test_py_layer_with_several_outputs():
    x, y = leaf([2.0]), leaf([3.0])
    product, _, note = MulAdd.apply(x, y, 10)
    assert note == "note"
    product.backward()
    assert (x.grad.item(), y.grad.item()) == (30.0, 20.0)


def test_py_layer_without_gradients():
    x = paddle.ones([2])
    assert Tanh.apply(x).stop_gradient
    with paddle.no_grad():
        assert Tanh.apply(leaf([1.0])).stop_gradient


def test_py_layer_outputs_without_gradient():
    class Split(PyLayer):
        @staticmethod
        def forward(ctx, x):
            whole, rest = paddle.floor(x), x * 1
            ctx.mark_non_differentiable(whole)
            return whole, rest, x.astype("int64")

        @staticmethod
        def backward(ctx, dwhole, drest, dint):
            return drest * 7

    x = leaf([1.5])
    whole, rest, integer = Split.apply(x)
    assert whole.stop_gradient and integer.stop_gradient
    rest.backward()
    assert x.grad.tolist() == [7.0]


def test_py_layer_that_returns_its_input():
    class Same(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 5

    x = leaf([1.0])
    y = Same.apply(x)
    assert y is not x
    y.backward()
    assert x.grad.tolist() == [5.0]


def test_py_layer_frees_what_it_kept():
    x = leaf([1.0])
    y = Tanh.apply(x)
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is None


def test_py_layer_backward_twice():
    x = leaf([1.0])
    y = Tanh.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()


def test_mistakes_in_a_py_layer():
    def layer(result):
        class Layer(PyLayer):
            @staticmethod
            def forward(ctx, x, y):
                return x + y

            @staticmethod
            def backward(ctx, dy):
                if isinstance(result, Exception):
                    raise result
                return result

        return Layer.apply(leaf([1.0, 2.0]), leaf([1.0, 2.0]))

    with pytest.raises(ValueError, match="returned 1 gradients, but forward took 2"):
        layer(None).backward()
    with pytest.raises(TypeError, match="returned str"):
        layer(("a", None)).backward()
    with pytest.raises(RuntimeError, match="shape"):
        layer((paddle.ones([3], "float64"), None)).backward()
    with pytest.raises(KeyError, match="mine"):
        layer(KeyError("mine")).backward()
    with pytest.raises(TypeError, match="save_for_backward"):
        paddle.autograd.PyLayerContext().save_for_backward(3)
    with pytest.raises(NotImplementedError, match="forward"):
        PyLayer.apply(leaf([1.0]))
