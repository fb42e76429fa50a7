# SPDX-License-Identifier: Apache-2.0
"""What the build makes of the definitions of ops: functions, twins, layers, help."""

import importlib
import inspect
import os
import pathlib
import subprocess
import sys

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import _ops

MODULES = sorted(
    path.stem
    for path in (pathlib.Path(paddle.__file__).parent / "_lib/generated").glob("*.py")
    if path.stem != "__init__"
)


def generated(module):
    return importlib.import_module("paddle._lib.generated." + module)


def home(module):
    """The module of the package that `module` is part of."""
    return importlib.import_module(generated(module).__name__)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_package_holds_what_was_made_for_it(module):
    made = generated(module)
    assert made.__all__
    for name in made.__all__:
        thing = getattr(home(module), name)
        assert thing is getattr(made, name)
        assert thing.__module__ == home(module).__name__ != made.__spec__.name
        assert thing.__name__ == name
        assert thing.__doc__ and thing.__doc__.endswith(".")
        assert name in home(module).__all__


@pytest.mark.parametrize(
    "function, signature",
    [
        (paddle.exp, "(x, name=None)"),
        (paddle.add, "(x, y, name=None)"),
        (paddle.addmm, "(input, x, y, beta=1.0, alpha=1.0, name=None)"),
        (paddle.var, "(x, axis=None, unbiased=True, keepdim=False, name=None)"),
        (paddle.logical_and, "(x, y, out=None, name=None)"),
        (paddle.index_sample, "(x, index)"),
        (paddle.scatter, "(x, index, updates, overwrite=True, name=None)"),
        (F.hardsigmoid, "(x, slope=0.1666667, offset=0.5, name=None)"),
        (F.smooth_l1_loss, "(input, label, reduction='mean', delta=1.0, name=None)"),
        (paddle.Tensor.add_, "(x, y, name=None)"),
        (paddle.Tensor.scale_, str(inspect.signature(paddle.scale))),
        (F.elu_, "(x, alpha=1.0, name=None)"),
        (paddle.nn.GELU, "(approximate=False, name=None)"),
        (paddle.nn.Hardsigmoid, "(name=None)"),
        (paddle.nn.Softmax, "(axis=-1, name=None)"),
        (paddle.nn.MSELoss, "(reduction='mean')"),
        (
            paddle.nn.NLLLoss,
            "(weight=None, ignore_index=-100, reduction='mean', name=None)",
        ),
        (paddle.tril, "(x, diagonal=0, name=None)"),
        (F.square_error_cost, "(input, label)"),
        (_ops.gelu, "(x, approximate=False)"),
    ],
)
def test_signatures_show_names_and_defaults(function, signature):
    shown = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in shown.parameters.values()]
    assert str(inspect.Signature(bare)) == signature


def test_types_are_those_of_slots_and_attributes():
    hints = paddle.gather.__annotations__
    assert hints["x"] == "Tensor" and hints["return"] == "Tensor"
    assert hints["axis"] == "int | None"
    assert paddle.concat.__annotations__["x"] == "list[Tensor]"
    assert paddle.add.__annotations__["y"] == "Tensor | float"


def test_help_of_an_op_is_its_definition():
    assert _ops.softsign.__doc__ == "softsign(X) -> Out"
    assert _ops.fc.__doc__ == "fc(Input, W, Bias?) -> Out"
    assert _ops.gelu.__doc__ == "gelu(X; approximate) -> Out"


def test_parameters_stand_for_attributes_in_any_order():
    x = paddle.to_tensor(np.float32([[1, 2], [3, 4]]))
    zero = paddle.zeros([2, 2])
    made = paddle.addmm(x, zero, zero, beta=2.0, alpha=3.0)
    assert made.numpy().tolist() == [[2, 4], [6, 8]]
    with_all = paddle.var(x, axis=0, unbiased=False, keepdim=True)
    assert with_all.numpy().tolist() == [[1, 1]]


def test_a_function_with_out_writes_there():
    x, y = paddle.to_tensor([True, False]), paddle.to_tensor([True, True])
    out = paddle.to_tensor([False, False])
    assert paddle.logical_and(x, y, out=out) is out
    assert out.numpy().tolist() == [True, False]


def test_what_an_op_is_always_given_is_no_parameter():
    x = paddle.ones([2, 2])
    assert paddle.tril(x).numpy().tolist() == [[1, 0], [1, 1]]
    assert paddle.triu(x, 1).numpy().tolist() == [[0, 1], [0, 0]]
    assert paddle.zeros_like(x, "int32").dtype is paddle.int32
    assert paddle.neg(x).numpy().tolist() == [[-1, -1], [-1, -1]]


def test_a_layer_of_a_loss_looks_at_its_reduction_when_it_is_made():
    with pytest.raises(ValueError, match="MSELoss: reduction must be one of 'mean'"):
        paddle.nn.MSELoss("average")
    assert repr(paddle.nn.SmoothL1Loss(delta=2.0)) == "SmoothL1Loss()"
    assert paddle.nn.SmoothL1Loss(delta=2.0).delta == 2.0


def test_a_layer_shows_its_arguments():
    assert repr(paddle.nn.Hardtanh(-2.0)) == "Hardtanh(min=-2.0, max=1.0)"
    assert repr(paddle.nn.ReLU()) == "ReLU()"


def test_an_engine_from_before_says_that_it_must_be_built_again(tmp_path):
    package = pathlib.Path(paddle.__file__).parent
    (tmp_path / "paddle" / "_lib").mkdir(parents=True)
    for part in package.iterdir():
        if part.name != "_lib":
            (tmp_path / "paddle" / part.name).symlink_to(part)
    for part in (package / "_lib").iterdir():
        if part.name != "generated":
            (tmp_path / "paddle" / "_lib" / part.name).symlink_to(part)
    done = subprocess.run(
        [sys.executable, "-c", "import paddle"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "or older than the package: run make in the source tree" in done.stderr
