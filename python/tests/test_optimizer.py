# SPDX-License-Identifier: Apache-2.0
"""What belongs to an optimizer besides its formula."""

import numpy as np
import paddle
import pytest
import torch
from optimizer_check import RATE, adam, follow, lamb, lars, numbers, parameter
from paddle import nn, optimizer
from paddle.regularizer import L1Decay, L2Decay

# ---- learning rates


def test_learning_rates_are_doubles():
    opt = optimizer.SGD(0.1, parameters=[parameter(np.ones(1, "float32"), "p")])
    assert opt.get_lr() == 0.1
    opt.set_lr(0.2)
    assert opt.get_lr() == 0.2
    opt.set_lr(1)
    assert opt.get_lr() == 1.0


def test_a_scheduler_gives_the_rate_of_each_step():
    p = parameter(np.zeros(1, "float64"), "p")
    scheduler = optimizer.lr.StepDecay(1.0, step_size=1, gamma=0.5)
    opt = optimizer.SGD(scheduler, parameters=[p])
    for expected in (-1.0, -1.5, -1.75):
        p.grad = paddle.to_tensor(np.ones(1, "float64"))
        opt.step()
        scheduler.step()
        assert p.numpy()[0] == expected
    assert opt.get_lr() == 0.125
    with pytest.raises(TypeError, match="comes from a StepDecay"):
        opt.set_lr(0.1)
    opt.set_lr_scheduler(optimizer.lr.ExponentialDecay(0.3, 0.9))
    assert opt.get_lr() == 0.3


def test_param_attr_multiplies_the_learning_rate():
    p, q = (parameter(np.zeros(1, "float64"), n) for n in "pq")
    q.optimize_attr = {"learning_rate": 0.25}
    opt = optimizer.SGD(1.0, parameters=[p, q])
    p.grad = q.grad = paddle.to_tensor(np.ones(1, "float64"))
    opt.step()
    assert (p.numpy()[0], q.numpy()[0]) == (-1.0, -0.25)


def test_adamw_asks_which_parameters_decay_and_how_fast_they_learn():
    p, q = (parameter(np.full(3, 2.0), n) for n in ("w", "bias"))
    opt = optimizer.AdamW(
        RATE,
        parameters=[p, q],
        weight_decay=0.5,
        apply_decay_param_fun=lambda name: name != "bias",
        lr_ratio=lambda parameter: 0.5 if parameter is q else 1.0,
    )
    follow(
        opt,
        [p, q],
        [adam(np.full(3, 2.0), RATE, decay=0.5), adam(np.full(3, 2.0), RATE / 2)],
        lambda p: 0.0,
    )


def test_lamb_and_lars_leave_out_what_they_are_told():
    for make, arguments, reference, plain in (
        (
            optimizer.Lamb,
            dict(exclude_from_weight_decay_fn=lambda p: p.name == "bias"),
            lamb,
            dict(decay=0.0, adapt=False),
        ),
        (
            optimizer.Lars,
            dict(exclude_from_weight_decay=["bias"]),
            lars,
            dict(decay=0.0),
        ),
    ):
        start = numbers((4,), 3, "float64")
        p, q = (parameter(start, n) for n in ("w", "bias"))
        opt = make(RATE, parameters=[p, q], **arguments)
        follow(
            opt,
            [p, q],
            [reference(start, RATE), reference(start, RATE, **plain)],
            lambda p: 0.0,
        )


def test_momentum_rescales_gradients():
    p = parameter(np.full(1, 2.0), "p")
    opt = optimizer.Momentum(1.0, 0.0, parameters=[p], rescale_grad=0.5)
    p.grad = paddle.to_tensor(np.full(1, 3.0))
    opt.step()
    assert p.numpy()[0] == 0.5


# ---- parameter groups


def test_groups_have_settings_of_their_own():
    start = numbers((4,), 3, "float64")
    p, q = (parameter(start, n) for n in "pq")
    opt = optimizer.Adam(
        RATE,
        parameters=[
            {"params": [p]},
            {"params": [q], "learning_rate": 0.5, "beta1": 0.5, "weight_decay": None},
        ],
        weight_decay=0.1,
    )
    first = adam(start, RATE)
    second = adam(start, RATE * 0.5, beta1=0.5)
    a, b = next(first), next(second)
    for t in range(4):
        g = numbers((4,), t, "float64")
        p.grad = q.grad = paddle.to_tensor(g)
        opt.step()
        opt.clear_grad()
        a, b = first.send(g + 0.1 * a), second.send(g)
        np.testing.assert_allclose(p.numpy(), a, rtol=1e-12)
        np.testing.assert_allclose(q.numpy(), b, rtol=1e-12)
    assert p.grad is None and q.grad is None
    assert {"p_moment1_0", "q_moment1_0"} <= set(opt.state_dict())


def test_a_global_norm_is_one_groups():
    p, q = (parameter(np.zeros(1), n) for n in "pq")
    opt = optimizer.SGD(
        1.0,
        parameters=[{"params": [p]}, {"params": [q], "grad_clip": None}],
        grad_clip=nn.ClipGradByGlobalNorm(1.0),
    )
    p.grad = q.grad = paddle.to_tensor(np.full(1, 4.0))
    opt.step()
    assert (p.numpy()[0], q.numpy()[0]) == (-1.0, -4.0)


# ---- which parameters take part


def test_only_parameters_with_a_gradient_move():
    moved, without, frozen = (parameter(np.ones(2), n) for n in "mwf")
    moved.grad = paddle.to_tensor(np.ones(2))
    frozen.grad = paddle.to_tensor(np.ones(2))
    frozen.stop_gradient = True
    opt = optimizer.Adam(RATE, parameters=[moved, without, frozen])
    opt.step()
    assert (moved.numpy() < 1.0).all()
    assert (without.numpy() == 1.0).all()
    assert (frozen.numpy() == 1.0).all()
    assert {name[0] for name in opt.state_dict()} == {"m"}


def test_without_parameters_it_complains_at_step_and_not_before():
    opt = optimizer.Adam(0.1)
    assert opt.get_lr() == 0.1
    assert opt.state_dict() == {}
    opt.clear_grad()
    with pytest.raises(ValueError, match="Adam has no parameters.*model.parameters"):
        opt.step()
    with pytest.raises(ValueError, match="has no parameters"):
        optimizer.SGD(0.1, parameters=[]).step()


def test_parameters_stay_where_they_are():
    p = parameter(numbers((3, 3), 0), "p")
    where = p._data_ptr()
    opt = optimizer.Adam(RATE, parameters=[p])
    for _ in range(3):
        p.grad = paddle.to_tensor(numbers((3, 3), 1))
        opt.step()
    assert p._data_ptr() == where


def test_gradients_are_released_or_zeroed():
    p = parameter(np.ones(2), "p")
    opt = optimizer.SGD(RATE, parameters=[p])
    p.grad = paddle.to_tensor(np.ones(2))
    opt.clear_grad(set_to_zero=True)
    np.testing.assert_array_equal(p.grad.numpy(), np.zeros(2))
    opt.clear_gradients()
    assert p.grad is None


# ---- minimize, backward, apply_gradients


def square_loss(p):
    return (p * p).sum()


def test_minimize_steps_from_the_gradients_of_backward():
    p = parameter(np.full(2, 3.0), "p")
    opt = optimizer.SGD(RATE, parameters=[p])
    loss = square_loss(p)
    loss.backward()
    operations, pairs = opt.minimize(loss)
    assert operations is None
    assert len(pairs) == 1 and pairs[0][0] is p
    np.testing.assert_allclose(p.numpy(), np.full(2, 3.0 - RATE * 6.0))
    np.testing.assert_allclose(pairs[0][1].numpy(), np.full(2, 6.0))


def test_minimize_runs_backward_when_nobody_did():
    p = parameter(np.full(2, 3.0), "p")
    opt = optimizer.SGD(RATE, parameters=[p])
    for expected in (3.0 * 0.8, 3.0 * 0.8**2):
        opt.minimize(square_loss(p))
        opt.clear_grad()
        np.testing.assert_allclose(p.numpy(), np.full(2, expected))
    with pytest.raises(TypeError, match="loss must be a Tensor"):
        opt.minimize(1.0)


def test_minimize_leaves_out_no_grad_set():
    p, q = (parameter(np.ones(1), n) for n in "pq")
    opt = optimizer.SGD(RATE, parameters=[p, q])
    loss = square_loss(p) + square_loss(q)
    loss.backward()
    opt.minimize(loss, no_grad_set={"q"})
    assert p.numpy()[0] < 1.0 and q.numpy()[0] == 1.0


def test_apply_gradients_takes_other_gradients():
    p, q = (parameter(np.zeros(1), n) for n in "pq")
    opt = optimizer.SGD(1.0, parameters=[p, q])
    p.grad = q.grad = paddle.to_tensor(np.ones(1))
    opt.apply_gradients([(q, paddle.to_tensor(np.full(1, 5.0)))])
    assert (p.numpy()[0], q.numpy()[0]) == (0.0, -5.0)
    stranger = parameter(np.zeros(1), "stranger")
    with pytest.raises(ValueError, match="stranger does not belong"):
        opt.apply_gradients([(stranger, q.grad)])


def test_apply_gradients_tells_an_optimizer_its_parameters():
    p = parameter(np.zeros(1), "p")
    opt = optimizer.SGD(1.0)
    opt.apply_gradients([(p, paddle.to_tensor(np.ones(1)))])
    assert p.numpy()[0] == -1.0


# ---- kinds of parameters


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_trains_through_a_float_copy(dtype):
    p = paddle.to_tensor(np.ones(4, "float32")).astype(dtype)
    p.stop_gradient = False
    opt = optimizer.SGD(1e-4, parameters=[p])
    for _ in range(100):
        p.grad = paddle.to_tensor(np.ones(4, "float32")).astype(dtype)
        opt.step()
    # A single step is below the resolution of either type at 1.
    np.testing.assert_allclose(p.astype("float32").numpy(), np.full(4, 0.99), rtol=4e-3)
    assert (p.astype("float32").numpy() < 1.0).all()


def test_an_integer_cannot_be_trained():
    p = paddle.to_tensor(np.ones(2, "int64"))
    opt = optimizer.SGD(0.1, parameters=[p])
    with pytest.raises(ValueError, match="not of floating point"):
        opt.step()


def test_a_gradient_of_the_wrong_shape_changes_nothing():
    p, q = (parameter(np.ones(2), n) for n in "pq")
    opt = optimizer.SGD(0.1, parameters=[p, q])
    right = paddle.to_tensor(np.ones(2))
    wrong = paddle.to_tensor(np.ones(3))
    with pytest.raises(ValueError, match=r"gradient of q has shape \[3\]"):
        opt.apply_gradients([(p, right), (q, wrong)])
    np.testing.assert_array_equal(p.numpy(), np.ones(2))


def test_a_nan_reaches_the_parameter():
    p = parameter(np.ones(2), "p")
    p.grad = paddle.to_tensor(np.array([np.nan, 1.0]))
    optimizer.Adam(0.1, parameters=[p], grad_clip=nn.ClipGradByValue(1.0)).step()
    assert np.isnan(p.numpy()[0]) and not np.isnan(p.numpy()[1])


# ---- bad arguments


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda p: optimizer.SGD("0.1"), TypeError, "learning_rate must be"),
        (lambda p: optimizer.SGD(None), ValueError, "learning_rate is not set"),
        (lambda p: optimizer.SGD(0.1, parameters=p), TypeError, "a list of Tensors"),
        (lambda p: optimizer.SGD(0.1, parameters=[1]), TypeError, "type int"),
        (lambda p: optimizer.SGD(0.1, parameters=[p, p]), ValueError, "given twice"),
        (
            lambda p: optimizer.SGD(0.1, parameters=[{"params": [p], "betas": 1}]),
            ValueError,
            "cannot set .*betas",
        ),
        (
            lambda p: optimizer.SGD(0.1, parameters=[{"parameters": [p]}]),
            TypeError,
            "dict with 'params'",
        ),
        (lambda p: optimizer.SGD(0.1, weight_decay="x"), TypeError, "weight_decay"),
        (lambda p: optimizer.Adam(beta1=1.0), ValueError, "beta1 must be in"),
        (lambda p: optimizer.Adam(beta2=-0.1), ValueError, "beta2 must be in"),
        (lambda p: optimizer.Adam(epsilon=-1.0), ValueError, "epsilon"),
        (lambda p: optimizer.AdamW(weight_decay="x"), TypeError, "weight_decay"),
        (lambda p: optimizer.AdamW(lr_ratio=0.5), TypeError, "must be a function"),
        (lambda p: optimizer.Momentum(momentum=None), ValueError, "momentum"),
        (lambda p: optimizer.RMSProp(0.1, rho=-1.0), ValueError, "rho"),
        (lambda p: optimizer.SGD(0.1).set_lr("1"), TypeError, "must be a number"),
        (
            lambda p: optimizer.SGD(0.1).set_lr_scheduler(0.1),
            TypeError,
            "must be an LRScheduler",
        ),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make(parameter(np.ones(1), "p"))


def test_regularizers_say_what_they_are():
    assert str(L2Decay(0.1)) == "L2Decay, coeff=0.100000"
    assert str(L1Decay(0.1)) == "L1Decay, coeff=0.100000"


# ---- with layers


def linear_net(weights):
    net = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 1))
    for p, w in zip(net.parameters(), weights):
        p.set_value(w)
    return net


@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "Adagrad"])
def test_a_net_trains_as_in_torch(name):
    weights = [numbers(s, i) for i, s in enumerate([(10, 10), (10,), (10, 1), (1,)])]
    x, y = numbers((16, 10), 10), numbers((16, 1), 11)
    net = linear_net(weights)
    theirs = [torch.tensor(w, requires_grad=True) for w in weights]
    # The two packages have other defaults.
    ours_extra = dict(Adagrad=dict(epsilon=1e-10)).get(name, {})
    theirs_extra = dict(Momentum=dict(momentum=0.9)).get(name, {})
    opt = getattr(optimizer, name)(0.01, parameters=net.parameters(), **ours_extra)
    torch_name = {"Momentum": "SGD"}.get(name, name)
    reference = getattr(torch.optim, torch_name)(theirs, lr=0.01, **theirs_extra)
    tx, ty = torch.tensor(x), torch.tensor(y)
    for _ in range(30):
        loss = nn.functional.mse_loss(net(paddle.to_tensor(x)), paddle.to_tensor(y))
        loss.backward()
        opt.step()
        opt.clear_grad()
        out = (tx @ theirs[0] + theirs[1]) @ theirs[2] + theirs[3]
        their_loss = ((out - ty) ** 2).mean()
        their_loss.backward()
        reference.step()
        reference.zero_grad()
        assert float(loss.numpy().item()) == pytest.approx(their_loss.item(), rel=1e-4)


def test_param_attr_reaches_the_update():
    layer = nn.Linear(
        1,
        1,
        weight_attr=paddle.ParamAttr(learning_rate=0.5, regularizer=L2Decay(0.25)),
        bias_attr=paddle.ParamAttr(need_clip=False),
    )
    layer.weight.set_value(np.full((1, 1), 2.0, "float32"))
    layer.bias.set_value(np.zeros(1, "float32"))
    opt = optimizer.SGD(
        0.1,
        parameters=layer.parameters(),
        weight_decay=100.0,
        grad_clip=nn.ClipGradByNorm(1.0),
    )
    layer.weight.grad = paddle.to_tensor(np.full((1, 1), 4.0, "float32"))
    layer.bias.grad = paddle.to_tensor(np.full(1, 4.0, "float32"))
    opt.step()
    # The weight's own regularizer replaces the optimizer's; the bias is at zero.
    np.testing.assert_allclose(
        layer.weight.numpy(), [[2.0 - 0.05 * (1.0 + 0.25 * 2.0)]], rtol=1e-6
    )
    np.testing.assert_allclose(layer.bias.numpy(), [-0.4], rtol=1e-6)


def test_a_saved_optimizer_goes_on(tmp_path):
    def make():
        net = linear_net([numbers(s, 5) for s in [(10, 10), (10,), (10, 1), (1,)]])
        for i, p in enumerate(net.parameters()):
            p.name = f"p{i}"
        scheduler = optimizer.lr.StepDecay(0.1, 2)
        return net, optimizer.Adam(scheduler, parameters=net.parameters()), scheduler

    def train(net, opt, scheduler, steps):
        for t in steps:
            net(paddle.to_tensor(numbers((4, 10), t))).sum().backward()
            opt.step()
            opt.clear_grad()
            scheduler.step()

    first = make()
    train(*first, range(3))
    paddle.save(first[0].state_dict(), str(tmp_path / "net.pdparams"))
    paddle.save(first[1].state_dict(), str(tmp_path / "net.pdopt"))
    second = make()
    second[0].set_state_dict(paddle.load(str(tmp_path / "net.pdparams")))
    second[1].set_state_dict(paddle.load(str(tmp_path / "net.pdopt")))
    train(*first, range(3, 6))
    train(*second, range(3, 6))
    for a, b in zip(first[0].parameters(), second[0].parameters()):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert first[1].get_lr() == second[1].get_lr()
