# SPDX-License-Identifier: Apache-2.0
"""Bad input: every mistake is a Python exception that names what is wrong.

What has a test at its own place:

    shapes that do not fit        below; test_layer.py, test_layers_loss.py
    element types that do not fit below; test_functional_loss.py
    unknown arguments             below; test_layer.py, test_math.py, test_io.py
    labels out of range           below; test_functional_loss.py
    indices out of range          below; test_indexing.py, test_manipulation.py
    NaN in a metric               test_metric.py: refuses what it cannot count
    empty batch                   below; test_functional_*.py, test_metric.py, test_io.py
    a dataset that raises         test_dataloader_ends.py: the worker's traceback
    a worker that is killed       test_dataloader_ends.py: a killed worker is named
    truncated and hostile files   test_save_load.py, test_paddle_files.py: bit flips, pickles
    damaged models                test_damaged_models.py
    disk full while saving        test_save_load.py, test_damaged_models.py: the old file
                                  stays whole
    optimizers' arguments         below; test_optimizer.py, test_lr.py, test_clip.py
"""

import subprocess
import sys

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import pytest
from paddle import optimizer


def ones(*shape, dtype="float32"):
    return paddle.ones(shape, dtype)


def ints(*values):
    return paddle.to_tensor(np.array(values, "int64"))


def scalar():
    """A tensor without dimensions, which only an array without them makes."""
    return paddle.to_tensor(np.array(1.0, "float32"))


def image():
    return ones(1, 3, 8, 8)


def filters(*shape):
    return ones(*(shape or (4, 3, 3, 3)))


# What is called, the exception, and words that its message must have: the op or
# function, and what is wrong with which argument or shape.
CASES = [
    # Shapes.
    (lambda: ones(2, 3) + ones(4, 5), ValueError, ["elementwise_add", "[2, 3]"]),
    (lambda: ones(2, 3) > ones(4, 5), ValueError, ["greater_than", "[4, 5]"]),
    (lambda: ones(2, 3) @ ones(4, 5), ValueError, ["matmul", "3 of X", "4 of Y"]),
    (lambda: paddle.concat([ones(2, 3), ones(4, 5)]), ValueError, ["concat", "x[1]"]),
    (lambda: paddle.concat([]), ValueError, ["concat", "empty list"]),
    (lambda: paddle.stack([ones(2), ones(3)]), ValueError, ["stack", "[3]", "[2]"]),
    (lambda: paddle.reshape(ones(2, 3), [4, 4]), ValueError, ["reshape", "16"]),
    (lambda: paddle.reshape(ones(2), [-1, -1]), ValueError, ["reshape", "-1"]),
    (lambda: paddle.transpose(ones(2, 3), [0, 0]), ValueError, ["perm [0, 0]"]),
    (lambda: paddle.expand(ones(2, 3), [3, 3]), ValueError, ["expand", "asks for 3"]),
    (lambda: paddle.split(ones(2, 3), 5), ValueError, ["split", "5 equal parts"]),
    (
        lambda: paddle.strided_slice(ones(4), [0, -1], [0, 0], [2, 2], [1, 1]),
        ValueError,
        ["strided_slice", "twice"],
    ),
    (lambda: paddle.diff(ones(4), n=0, axis=3), ValueError, ["diff", "axis is 3"]),
    (lambda: paddle.mean(ones(2, 3), axis=5), ValueError, ["axis is 5", "[-2, 1]"]),
    (lambda: F.softmax(ones(2, 3), axis=7), ValueError, ["softmax", "axis is 7"]),
    (lambda: F.linear(ones(2, 3), ones(4, 5)), ValueError, ["[2, 3]", "4"]),
    (lambda: F.linear(ones(2, 3), ones(3, 4), ones(2)), ValueError, ["bias [2]", "4"]),
    (lambda: nn.Linear(3, 4)(ones(4, 5)), ValueError, ["[4, 5]", "in_features 3"]),
    (lambda: F.mse_loss(ones(2, 3), ones(4, 5)), ValueError, ["mse_loss", "[4, 5]"]),
    (lambda: F.conv2d(ones(2, 3), filters()), ValueError, ["conv2d", "4 dimensions"]),
    (lambda: F.conv2d(image(), filters(4, 2, 3, 3)), ValueError, ["3 channels"]),
    (lambda: nn.BatchNorm2D(3)(ones(1, 4, 2, 2)), ValueError, ["4 channels", "3"]),
    (lambda: nn.LayerNorm(4)(ones(2, 3)), ValueError, ["layer_norm", "[2, 3]"]),
    (lambda: nn.GRU(3, 4)(ones(2, 5, 7)), ValueError, ["GRU", "[2, 5, 7]"]),
    (lambda: F.cross_entropy(ones(2, 3), ints(0, 1, 2)), ValueError, ["[3]", "[2]"]),
    (
        lambda: F.cross_entropy(ones(2, 3), ints(0, 1), weight=ones(2)),
        ValueError,
        ["cross_entropy", "weight [2]", "3 classes"],
    ),
    (
        lambda: paddle.metric.accuracy(ones(2, 3), ints(0, 1, 2).reshape([3, 1])),
        ValueError,
        ["accuracy", "[3, 1]"],
    ),
    # Element types.
    (
        lambda: paddle.matmul(ones(2, 3), ones(3, 2, dtype="float64")),
        ValueError,
        ["matmul", "float32", "float64"],
    ),
    (
        lambda: nn.Linear(3, 4)(ones(2, 3, dtype="int64")),
        ValueError,
        ["input is int64", "float32"],
    ),
    (lambda: paddle.meshgrid(ones(2), ints(1)), ValueError, ["meshgrid", "int64"]),
    (lambda: paddle.mean(ints(1, 2)), ValueError, ["reduce_mean", "int64"]),
    (
        lambda: F.cross_entropy(ones(2, 3), ones(2)),
        ValueError,
        ["label", "integer", "float32"],
    ),
    (lambda: F.embedding(ones(2), ones(3, 4)), ValueError, ["ids", "float32"]),
    (lambda: F.one_hot(ones(2), 3), ValueError, ["one_hot", "float32"]),
    (lambda: paddle.index_sample(ones(1, 2), ones(1, 1)), ValueError, ["float32"]),
    (lambda: paddle.gather(ones(2), ones(1)), ValueError, ["index must be int"]),
    (lambda: ones(2) & ones(2), ValueError, ["bitwise_and", "float32"]),
    (lambda: paddle.zeros([2], dtype="foo"), TypeError, ["'foo'", "float32"]),
    (lambda: paddle.cast(ones(2), None), ValueError, ["cast", "element type"]),
    (lambda: ones(2).to("tpu"), ValueError, ["to()", "'tpu'"]),
    # Kinds of arguments.
    (lambda: paddle.add(ones(2), "a"), TypeError, ["add()", "'y'", "str"]),
    (lambda: ones(2) + "a", TypeError, ["Tensor", "str"]),
    (lambda: F.relu("a"), TypeError, ["relu()", "'x'", "str"]),
    (lambda: paddle.mean(ones(2), axis="a"), TypeError, ["mean()", "axis"]),
    (lambda: paddle.ones("ab"), TypeError, ["ones()", "shape", "str"]),
    (lambda: paddle.ones([2.5]), TypeError, ["ones()", "shape", "float"]),
    (lambda: nn.Linear("a", 4), TypeError, ["'a'", "integers"]),
    (lambda: nn.Linear(3, 4)(np.ones((2, 3))), TypeError, ["Tensor", "ndarray"]),
    (lambda: nn.Sequential(nn.ReLU(), 3), TypeError, ["Layer", "int"]),
    (lambda: paddle.concat(ones(2)), TypeError, ["concat", "list of Tensors"]),
    # Arguments that do not exist.
    (lambda: paddle.mean(ones(2), foo=1), TypeError, ["mean()", "'foo'"]),
    (lambda: F.relu(ones(2), foo=1), TypeError, ["relu()", "'foo'"]),
    (lambda: nn.Linear(3, 4, foo=1), TypeError, ["Linear", "'foo'"]),
    (lambda: optimizer.Adam(foo=1), TypeError, ["Adam", "'foo'"]),
    (lambda: paddle.io.DataLoader([1], foo=1), TypeError, ["DataLoader", "'foo'"]),
    (lambda: paddle._ops.tanh(ones(2), foo=1), TypeError, ["tanh()", "'foo'"]),
    (lambda: paddle._ops.tanh(), TypeError, ["tanh()", "'x' is missing"]),
    (lambda: paddle._ops.tanh(1, 2, 3, 4, 5, 6), TypeError, ["tanh()", "at most"]),
    # Labels and indices.
    (lambda: F.cross_entropy(ones(2, 3), ints(0, 7)), ValueError, ["label 7", "row 1"]),
    (lambda: F.cross_entropy(ones(1, 3), ints(-3)), ValueError, ["label -3"]),
    (lambda: F.nll_loss(ones(2, 3), ints(0, 7)), ValueError, ["nll_loss", "label 7"]),
    (
        lambda: F.ctc_loss(ones(5, 1, 3), ints([9]), ints(5), ints(1)),
        ValueError,
        ["warpctc", "label 9"],
    ),
    (lambda: F.embedding(ints(0, 7), ones(3, 4)), ValueError, ["id 7", "[0, 3)"]),
    (lambda: F.embedding(ints(-1), ones(3, 4)), ValueError, ["id -1", "[0, 3)"]),
    (lambda: F.one_hot(ints(0, 7), 3), ValueError, ["one_hot", "index 7"]),
    (lambda: F.one_hot(ints(-1), 3), ValueError, ["one_hot", "index -1"]),
    (lambda: paddle.gather(ones(2), ints(7)), ValueError, ["gather", "7", "[0, 2)"]),
    (lambda: paddle.index_select(ones(2), ints(2)), ValueError, ["index_select", "2"]),
    (lambda: paddle.gather_nd(ones(2), ints([9])), ValueError, ["gather_nd", "9"]),
    (
        lambda: paddle.index_sample(ones(1, 2), ints([9])),
        ValueError,
        ["index_sample", "9"],
    ),
    (
        lambda: paddle.scatter(ones(2, 3), ints(0, 7), ones(2, 3)),
        ValueError,
        ["scatter", "7", "[0, 2)"],
    ),
    (
        lambda: paddle.take_along_axis(ones(1, 2), ints([9]), 1),
        ValueError,
        ["take_along_axis", "9"],
    ),
    (lambda: ones(2, 3)[5], IndexError, ["index 5", "[2, 3]"]),
    (lambda: ones(2, 3)[ints(0, 7)], IndexError, ["index 7", "[2, 3]"]),
    (lambda: ones(2, 3)[[0, 7]], IndexError, ["index 7", "[2, 3]"]),
    (lambda: ones(2, 3)[0, 0, 0], IndexError, ["too many", "2 dimensions"]),
    (lambda: ones(2, 3)["a"], IndexError, ["str"]),
    (lambda: ones(2, 3)[1.5], IndexError, ["float"]),
    (lambda: ones(2)[paddle.ones([3], "bool")], IndexError, ["mask", "[3]"]),
    (lambda: ones(2, 3).__setitem__(5, 1.0), IndexError, ["index 5"]),
    (lambda: ones(2, 3).__setitem__(0, ones(7)), ValueError, ["[3]", "[7]", "[2, 3]"]),
    (lambda: ones(2, 3).__setitem__(0, "a"), TypeError, ["Tensor"]),
    (lambda: ones(2, 3).item(17), IndexError, ["17", "6 elements"]),
    (lambda: paddle.topk(ones(2, 3), 7), ValueError, ["top_k", "k is 7", "3"]),
    (lambda: paddle.topk(ones(2, 3), 0), ValueError, ["top_k", "k is 0"]),
    # Sizes that make no sense.
    (lambda: paddle.zeros([-1, 2]), ValueError, ["[-1, 2]"]),
    (lambda: paddle.randn([-2]), ValueError, ["[-2]"]),
    (lambda: paddle.eye(-1), ValueError, ["eye()", "-1"]),
    (lambda: paddle.arange(0, 10, 0), ValueError, ["step is 0"]),
    (lambda: paddle.split(ones(2), 0), ValueError, ["split()", "is 0"]),
    (lambda: paddle.tile(ones(2), [-1]), ValueError, ["tile", "-1"]),
    (lambda: nn.Linear(-3, 4), ValueError, ["[-3, 4]"]),
    (lambda: nn.Embedding(-1, 2), ValueError, ["num_embeddings"]),
    (lambda: nn.Conv2D(3, 4, 0), ValueError, ["Conv2D", "kernel_size", "0"]),
    (lambda: nn.Conv2D(3, 4, 3, stride=0), ValueError, ["Conv2D", "stride", "0"]),
    (lambda: nn.Conv2D(3, 4, 3, dilation=-1), ValueError, ["Conv2D", "dilation"]),
    (lambda: nn.Conv2D(0, 4, 3), ValueError, ["Conv2D", "in_channels"]),
    (lambda: F.conv2d(image(), filters(4, 3, 0, 0)), ValueError, ["kernel_size 0"]),
    (lambda: F.conv2d(image(), filters(), stride=0), ValueError, ["stride 0"]),
    (lambda: F.conv2d(image(), filters(), groups=0), ValueError, ["groups is 0"]),
    (lambda: F.conv2d(image(), filters(4, 3, 9, 9)), ValueError, ["window of 9"]),
    (lambda: F.max_pool2d(image(), 0), ValueError, ["max_pool2d", "kernel_size 0"]),
    (lambda: F.max_pool2d(image(), 2, stride=0), ValueError, ["stride 0"]),
    (lambda: F.avg_pool2d(image(), 20), ValueError, ["window of 20", "8"]),
    (lambda: F.dropout(ones(2), p=-1), ValueError, ["dropout", "p is -1"]),
    (lambda: nn.Dropout(2.0), ValueError, ["Dropout", "2.0"]),
    (lambda: F.mse_loss(ones(2), ones(2), reduction="x"), ValueError, ["'x'", "mean"]),
    (lambda: F.maxout(ones(1, 4, 2), 2, axis=9), ValueError, ["maxout", "axis is 9"]),
    (lambda: paddle.diff(ones(4), n=2**40), ValueError, ["diff", "4 elements"]),
    (lambda: F.pixel_shuffle(image(), 2**62), ValueError, ["pixel_shuffle"]),
    (lambda: F.dropout(scalar(), axis=0), ValueError, ["dropout", "without dim"]),
    (lambda: paddle.norm(scalar(), axis=0), ValueError, ["p_norm", "without dim"]),
    (lambda: paddle.sum(scalar(), axis=-1), ValueError, ["without dim"]),
    # Sizes beyond memory or beyond 64 bits.
    (lambda: paddle.zeros([2**40, 2**40]), ValueError, ["overflow", "1099511627776"]),
    (lambda: paddle.zeros([2**62, 2]), ValueError, ["overflow"]),
    (lambda: paddle.zeros([2**33, 2**13]), MemoryError, ["fill_constant", "allocate"]),
    (lambda: paddle.zeros([2**70]), OverflowError, ["'shape'", "64 bits"]),
    (lambda: paddle.rand([2**40, 2**40]), ValueError, ["uniform_random", "overflow"]),
    (lambda: paddle.arange(0, 2**50), MemoryError, ["range", "allocate"]),
    (lambda: paddle.arange(0, 1e30), ValueError, ["range", "overflow"]),
    (lambda: paddle.tile(ones(2), [2**40] * 2), ValueError, ["tile", "overflow"]),
    (lambda: paddle.reshape(ones(8), [2**62, 8]), ValueError, ["reshape", "8"]),
    (lambda: F.one_hot(ints(1), 2**60), MemoryError, ["one_hot", "allocate"]),
    (lambda: nn.Linear(2**31, 2**31), ValueError, ["overflow"]),
    # Data that is none.
    (lambda: paddle.to_tensor([[1, 2], [3]]), ValueError, ["regular"]),
    (lambda: paddle.to_tensor("abc"), TypeError, ["to_tensor()", "str"]),
    (lambda: paddle.to_tensor(["a"]), TypeError, ["to_tensor()"]),
    (lambda: paddle.to_tensor(None), TypeError, ["to_tensor()", "NoneType"]),
    (lambda: paddle.to_tensor([1, None]), TypeError, ["to_tensor()"]),
    (lambda: paddle.to_tensor([2**63]), ValueError, ["int64"]),
    (lambda: paddle.to_tensor([ones(2), ones(3)]), ValueError, ["[2]", "[3]"]),
    (lambda: ones(2, 3).set_value(ones(4, 5)), ValueError, ["[2, 3]", "[4, 5]"]),
    (lambda: ones(2, 3).set_value("a"), TypeError, ["Tensor"]),
    (lambda: float(ones(2, 3)), ValueError, ["6 elements", "[2, 3]"]),
    # Devices, types and seeds of the process.
    (lambda: paddle.set_device("tpu"), ValueError, ["'tpu'", "'cpu'"]),
    (lambda: paddle.set_device(7), TypeError, ["7"]),
    (lambda: paddle.set_default_dtype("int32"), TypeError, ["floating-point"]),
    (lambda: paddle.seed("a"), TypeError, ["seed", "str"]),
    (lambda: paddle.set_rng_state(b"abc"), ValueError, ["size", "3"]),
    (lambda: paddle.get_rng_state("tpu"), ValueError, ["'tpu'"]),
    # Saving.
    (lambda: paddle.save(object(), "x"), TypeError, ["paddle.save", "object"]),
    (lambda: paddle.save({"a": {1}}, "x"), TypeError, ["obj['a']", "set"]),
    (lambda: paddle.save(ones(2), 7), TypeError, ["path", "int"]),
    (lambda: paddle.load("no/such/file"), FileNotFoundError, ["no/such/file"]),
]


@pytest.mark.parametrize("call, error, words", CASES)
def test_a_mistake_is_named(call, error, words):
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    # Nothing of the machinery below shows.
    for inner in ("frame #", "INTERNAL ASSERT", "enforce fail", "ATen", "torch"):
        assert inner not in message


def sgd(**arguments):
    return optimizer.SGD(**{"learning_rate": 0.1, "parameters": [], **arguments})


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: sgd(learning_rate=-1.0), ValueError, ["SGD", "-1.0"]),
        (lambda: sgd(learning_rate=float("nan")), ValueError, ["SGD", "nan"]),
        (lambda: sgd(learning_rate="a"), TypeError, ["learning_rate", "str"]),
        (lambda: sgd(learning_rate=None), ValueError, ["learning_rate"]),
        (lambda: sgd(parameters=7), TypeError, ["parameters", "int"]),
        (lambda: sgd(parameters="ab"), TypeError, ["parameters", "str"]),
        (lambda: sgd(parameters=ones(2)), TypeError, ["parameters", "Tensor"]),
        (lambda: sgd(parameters=[1, 2]), TypeError, ["parameters", "int"]),
        (lambda: sgd(weight_decay="a"), TypeError, ["weight_decay", "str"]),
        (lambda: sgd(grad_clip="a"), TypeError, ["grad_clip", "str"]),
        (lambda: sgd().set_lr("a"), TypeError, ["set_lr", "str"]),
        (lambda: sgd().set_lr(-1), ValueError, ["SGD", "-1"]),
        (lambda: sgd().set_state_dict(7), TypeError, ["set_state_dict", "int"]),
        (lambda: sgd(parameters=None).step(), ValueError, ["no parameters"]),
        (lambda: optimizer.Adam(beta1="a"), TypeError, ["Adam", "beta1", "str"]),
        (lambda: optimizer.Adam(beta1=2.0), ValueError, ["Adam", "beta1", "2.0"]),
        (lambda: optimizer.Adam(epsilon=-1.0), ValueError, ["epsilon"]),
        (lambda: optimizer.Momentum(momentum="a"), TypeError, ["momentum", "str"]),
        (lambda: nn.ClipGradByNorm("a"), TypeError, ["ClipGradByNorm", "str"]),
        (lambda: nn.ClipGradByGlobalNorm(-1.0), ValueError, ["clip_norm", "-1.0"]),
    ],
)
def test_nonsense_for_an_optimizer_is_named(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_state_that_does_not_fit_a_layer_is_left_out_with_a_warning():
    layer = nn.Linear(3, 4)
    before = layer.weight.numpy()
    state = {"weight": np.ones((9, 9), "float32"), "foo": np.ones(2, "float32")}
    with pytest.warns(UserWarning) as caught:
        missing, unexpected = layer.set_state_dict(state)
    text = " ".join(str(w.message) for w in caught)
    assert "[9, 9]" in text and "[3, 4]" in text and "bias is not found" in text
    assert (missing, unexpected) == (["weight", "bias"], ["foo"])
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    with pytest.raises(TypeError, match="Linear: set_state_dict takes a dict.*int"):
        layer.set_state_dict(7)


def test_a_state_that_does_not_fit_an_optimizer_is_refused():
    layer = nn.Linear(3, 4)
    adam = optimizer.Adam(parameters=layer.parameters())
    layer(ones(2, 3)).sum().backward()
    adam.step()
    state = adam.state_dict()
    key = next(k for k in state if k.startswith(layer.weight.name) and "moment" in k)
    state[key] = np.ones((7, 7), "float32")
    with pytest.raises(ValueError, match=r"\[7, 7\].*\[3, 4\]"):
        adam.set_state_dict(state)


def leaf(*shape):
    x = ones(*shape)
    x.stop_gradient = False
    return x


def test_a_leaf_that_wants_its_gradient_is_not_changed_in_place():
    x = leaf(3)
    with pytest.raises(ValueError, match="leaf.*paddle.no_grad"):
        x[0] = 1.0


def test_backward_twice_says_how_to_keep_the_graph():
    y = (leaf(3) ** 2).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_backward_notices_a_change_in_place():
    y = leaf(3) * 2
    z = y * y
    y[0] = 5.0
    with pytest.raises(RuntimeError, match="changed in place.*clone"):
        z.sum().backward()


def test_a_hook_returns_a_tensor_of_the_same_shape_or_nothing():
    for result, error in (("x", TypeError), (ones(7), RuntimeError)):
        y = leaf(3) * 2
        y.register_hook(lambda grad: result)
        with pytest.raises(error, match="hook"):
            y.sum().backward()


def test_a_gradient_has_the_shape_of_its_tensor():
    with pytest.raises(ValueError, match=r"\[2, 3\].*\[4, 5\]"):
        ones(2, 3).grad = ones(4, 5)
    x = ones(2)
    x.stop_gradient = 0
    assert x.stop_gradient is False
    with pytest.raises(TypeError, match="stop_gradient.*str"):
        x.stop_gradient = "no"


@pytest.mark.parametrize(
    "make, shape, out_shape",
    [
        (lambda: nn.Linear(3, 4), (0, 3), [0, 4]),
        (lambda: nn.Conv1D(3, 4, 3), (0, 3, 8), [0, 4, 6]),
        (lambda: nn.Conv2D(3, 4, 3), (0, 3, 8, 8), [0, 4, 6, 6]),
        (lambda: nn.Conv2DTranspose(3, 4, 3), (0, 3, 8, 8), [0, 4, 10, 10]),
        (lambda: nn.BatchNorm1D(3), (0, 3), [0, 3]),
        (lambda: nn.BatchNorm2D(3), (0, 3, 8, 8), [0, 3, 8, 8]),
        (lambda: nn.LayerNorm(3), (0, 3), [0, 3]),
        (lambda: nn.GRU(3, 4), (0, 5, 3), [0, 5, 4]),
        (lambda: nn.LSTM(3, 4), (0, 5, 3), [0, 5, 4]),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), (0, 3, 4), [0, 2]),
    ],
)
def test_an_empty_batch_goes_through_a_layer_and_back(make, shape, out_shape):
    layer, x = make(), leaf(*shape)
    out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    assert out.shape == out_shape
    out.sum().backward()
    assert x.grad.shape == list(shape)
    for parameter in layer.parameters():
        assert not parameter.trainable or not parameter.grad.numpy().any()


@pytest.mark.parametrize("label_shape", [(0,), (0, 1)])
def test_the_mean_cross_entropy_of_an_empty_batch_is_zero(label_shape):
    logits = leaf(0, 3)
    loss = F.cross_entropy(logits, paddle.zeros(label_shape, "int64"))
    assert loss.shape == [1] and loss.item() == 0.0
    loss.backward()
    assert logits.grad.shape == [0, 3]


def test_an_empty_loader_yields_nothing():
    class Empty(paddle.io.Dataset):
        def __getitem__(self, index):
            raise IndexError(index)

        def __len__(self):
            return 0

    assert list(paddle.io.DataLoader(Empty(), batch_size=2)) == []


def test_a_failed_call_leaves_the_process_working():
    """After every mistake above, in one process, the next step is right. Here the
    checks that tests add to every op call are off."""
    code = """
import numpy as np, paddle, sys
sys.path.insert(0, sys.argv[1])
import test_bad_input
for call, error, words in test_bad_input.CASES:
    try:
        call()
    except error:
        continue
    raise SystemExit(f"no error where it should be {words}")
x = paddle.to_tensor(np.ones((2, 3), "float32"), stop_gradient=False)
paddle.nn.functional.cross_entropy(x, paddle.to_tensor([0, 1])).backward()
assert abs(float(x.grad.abs().sum()) - 4 / 3) < 1e-6
print("done")
"""
    folder = __file__.rsplit("/", 1)[0]
    run = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stdout == "done\n", run.stderr
