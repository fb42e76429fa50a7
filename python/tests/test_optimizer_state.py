# SPDX-License-Identifier: Apache-2.0
"""The state of optimizers: names, shapes, and training that goes on from it."""

import warnings

import numpy as np
import paddle
import pytest
from optimizer_check import RATE, RULES, numbers, parameter
from paddle import optimizer

STATE_NAMES = {
    "SGD": [],
    "Momentum": ["velocity"],
    "Adam": ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"],
    "AdamW": ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"],
    "Adagrad": ["moment"],
    "Adamax": ["moment", "inf_norm", "beta1_pow_acc"],
    "RMSProp": ["momentum", "mean_square", "mean_grad"],
    "Adadelta": ["_avg_squared_grad", "_avg_squared_update"],
    "Lamb": ["moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc"],
    "Lars": ["velocity"],
    "Ftrl": ["squared", "linear"],
}


def take_steps(opt, p, first, last):
    for t in range(first, last):
        p.grad = paddle.to_tensor(numbers(p.shape, t, str(p.numpy().dtype)))
        opt.step()
        opt.clear_grad()


@pytest.mark.parametrize("name", STATE_NAMES)
def test_state_has_paddles_names_and_shapes(name):
    p = parameter(numbers((3, 2), 0), "linear_0.w_0")
    opt = RULES[name][0](RATE, parameters=[p])
    assert opt.state_dict() == {}
    take_steps(opt, p, 0, 1)
    state = opt.state_dict()
    assert list(state) == [f"linear_0.w_0_{slot}_0" for slot in STATE_NAMES[name]]
    for key, value in state.items():
        assert list(value.shape) == ([1] if "pow_acc" in key else [3, 2])
        assert value.name == key
        assert str(value.numpy().dtype) == "float32"


def test_powers_of_the_betas_are_those_of_the_next_step():
    p = parameter(np.ones(1), "p")
    opt = optimizer.Adam(RATE, parameters=[p])
    take_steps(opt, p, 0, 2)
    state = opt.state_dict()
    np.testing.assert_allclose(state["p_beta1_pow_acc_0"].numpy(), [0.9**3])
    np.testing.assert_allclose(state["p_beta2_pow_acc_0"].numpy(), [0.999**3])


@pytest.mark.parametrize("as_arrays", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_training_goes_on_from_a_state_to_the_bit(rule, as_arrays):
    make, arguments, _, _ = RULES[rule]
    p = parameter(numbers((3, 2), 0), "p")
    opt = make(RATE, parameters=[p], **arguments)
    take_steps(opt, p, 0, 3)

    # The state is set before the new optimizer's first step.
    other = parameter(p.numpy(), "p")
    resumed = make(RATE, parameters=[other], **arguments)
    state = opt.state_dict()
    if as_arrays:
        state = {key: value.numpy() for key, value in state.items()}
    resumed.set_state_dict(state)
    take_steps(opt, p, 3, 6)
    take_steps(resumed, other, 3, 6)
    np.testing.assert_array_equal(p.numpy(), other.numpy())


def test_a_scheduler_is_part_of_the_state():
    def make():
        scheduler = optimizer.lr.ExponentialDecay(0.5, 0.9)
        p = parameter(np.ones(1), "p")
        return scheduler, optimizer.Adam(scheduler, parameters=[p])

    scheduler, opt = make()
    scheduler.step()
    scheduler.step()
    state = opt.state_dict()
    assert state == {"LR_Scheduler": scheduler.state_dict()}
    other, restored = make()
    restored.set_state_dict(state)
    assert other.last_epoch == 2
    assert restored.get_lr() == opt.get_lr()


@pytest.mark.parametrize("nothing", [None, {}])
def test_setting_no_state_changes_nothing(nothing):
    p = parameter(np.ones(2), "p")
    opt = optimizer.Adam(RATE, parameters=[p])
    opt.set_state_dict(nothing)
    assert opt.state_dict() == {}
    take_steps(opt, p, 0, 1)
    before = {k: v.numpy() for k, v in opt.state_dict().items()}
    opt.set_state_dict(nothing)
    for key, value in opt.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])


def test_state_of_another_shape_is_refused():
    opt = optimizer.Adam(RATE, parameters=[parameter(np.ones((3, 2)), "w")])
    with pytest.raises(
        ValueError, match=r"moment1 of w has shape \[2, 3\], expected \[3, 2\]"
    ):
        opt.set_state_dict({"w_moment1_0": np.zeros((2, 3))})


def test_state_that_fits_nowhere_is_reported():
    opt = optimizer.Adam(RATE, parameters=[parameter(np.ones(2), "w")])
    with pytest.warns(UserWarning, match="no place for 1 of 2 entries.*v_moment1_0"):
        opt.set_state_dict({"w_moment1_0": np.ones(2), "v_moment1_0": np.ones(2)})
    np.testing.assert_array_equal(opt.state_dict()["w_moment1_0"].numpy(), np.ones(2))


def test_state_of_paddles_second_optimizer_is_understood():
    # Paddle ends the names with _1 when the parameter had an optimizer before.
    opt = optimizer.Momentum(RATE, parameters=[parameter(np.ones(2), "w_0")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.set_state_dict({"w_0_velocity_1": np.full(2, 5.0)})
    np.testing.assert_array_equal(
        opt.state_dict()["w_0_velocity_0"].numpy(), np.full(2, 5.0)
    )


def test_state_waits_for_parameters():
    p = parameter(np.zeros(1), "p")
    opt = optimizer.Momentum(1.0, momentum=0.5)
    opt.set_state_dict({"p_velocity_0": np.full(1, 4.0)})
    assert list(opt.state_dict()) == ["p_velocity_0"]
    opt.apply_gradients([(p, paddle.to_tensor(np.ones(1)))])
    assert p.numpy()[0] == -3.0
