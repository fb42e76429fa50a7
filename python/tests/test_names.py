# SPDX-License-Identifier: Apache-2.0
"""Which names modules show: `__all__`, `dir()` and `from module import *`."""

import inspect
import types

import paddle
import pytest

GATHERED = [
    "paddle.autograd",
    "paddle.fluid",
    "paddle.fluid.dygraph",
    "paddle.fluid.layers",
    "paddle.io",
    "paddle.metric",
    "paddle.nn",
    "paddle.nn.functional",
    "paddle.nn.initializer",
    "paddle.optimizer",
    "paddle.static",
    "paddle.static.nn",
    "paddle.vision",
    "paddle.vision.transforms",
]


def names_of_star(module):
    names = {}
    exec(f"from {module} import *", names)
    return set(names) - {"__builtins__"}


def at(path):
    found = paddle
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("module", GATHERED)
def test_a_star_brings_what_all_lists(module):
    names = names_of_star(module)
    assert names == set(at(module).__all__)
    assert not {name for name in names if name.startswith("_")}
    assert {"explain", "on_first_use"}.isdisjoint(names)


def test_a_package_lists_what_its_modules_define():
    assert {"Linear", "ReLU", "LSTM", "functional"} <= set(paddle.nn.__all__)
    assert {"relu", "relu_", "tanh_", "conv2d"} <= set(paddle.nn.functional.__all__)
    assert "layer" not in paddle.nn.__all__
    assert not [
        name
        for name in paddle.nn.functional.__all__
        if isinstance(getattr(paddle.nn.functional, name), types.ModuleType)
    ]


def test_helpers_of_other_modules_are_not_listed():
    from paddle.tensor import creation, inplace, manipulation

    assert "computed_tensor" not in creation.__all__
    assert "in_place" not in inplace.__all__
    assert "check_in_place" not in manipulation.__all__
    assert not hasattr(paddle.Tensor, "check_in_place")


@pytest.mark.parametrize(
    "thing, name, signature",
    [
        (
            "fluid.optimizer.SGD",
            "SGD",
            "(learning_rate=0.001, parameter_list=None, regularization=None, "
            "grad_clip=None, name=None)",
        ),
        ("fluid.layers.noam_decay", "noam_decay", None),
        ("fluid.layers.elementwise_add", "elementwise_add", None),
        ("fluid.layers.reduce_sum", "reduce_sum", None),
    ],
)
def test_old_names_have_a_signature_of_their_own(thing, name, signature):
    found = at("paddle." + thing)
    assert found.__name__ == name
    shown = str(inspect.signature(found))
    assert "*" not in shown and shown == (signature or shown)


@pytest.mark.parametrize(
    "module, names",
    [
        ("paddle", "nn optimizer static distributed Model save load DataParallel"),
        ("paddle.static", "amp Program"),
        ("paddle.distributed", "fleet spawn all_reduce"),
        ("paddle.distributed.fleet", "utils dataset init"),
        ("paddle.fluid", "dataset layers DatasetFactory"),
        ("paddle.core", "LoDTensor VarDesc"),
    ],
)
def test_dir_shows_what_is_loaded_later(module, names):
    shown = dir(at(module))
    assert set(names.split()) <= set(shown)
    assert shown == sorted(set(shown))
    for name in names.split():
        assert getattr(at(module), name) is not None
