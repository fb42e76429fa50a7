# SPDX-License-Identifier: Apache-2.0
"""Layer: attributes, traversal, hooks, state and printing."""

import copy
import warnings

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.utils import unique_name


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.register_buffer("steps", paddle.zeros([1]))
        self.register_buffer("scratch", paddle.ones([2]), persistable=False)

    def forward(self, x):
        return self.second(self.first(x))


def test_parameters_are_named_by_path_in_order():
    net = Net()
    names = [name for name, _ in net.named_parameters()]
    assert names == ["first.weight", "first.bias", "second.1.weight", "second.1.bias"]
    assert [p.shape for p in net.parameters()] == [[3, 4], [4], [4, 2], [2]]
    assert [n for n, _ in net.named_parameters(prefix="net")][0] == "net.first.weight"
    assert net.parameters(include_sublayers=False) == []


def test_own_names_follow_the_layers_class():
    with unique_name.guard():
        net = Net()
        assert net.full_name() == "net_0"
        assert net.first.full_name() == "linear_0"
        assert [p.name for p in net.parameters()] == [
            "linear_0.w_0",
            "linear_0.b_0",
            "linear_1.w_0",
            "linear_1.b_0",
        ]
        norm = nn.BatchNorm2D(3)
        assert norm.full_name() == "batch_norm2d_0"
        assert norm._mean.name == "batch_norm2d_0.w_1"
        assert norm._variance.name == "batch_norm2d_0.w_2"
        assert nn.Conv2D(1, 1, 1).weight.name == "conv2d_0.w_0"
        assert nn.Embedding(2, 2).weight.name == "embedding_0.w_0"
    with unique_name.guard("part_"):
        assert nn.Linear(1, 1).weight.name == "part_part_linear_0.w_0"


def test_unique_name_switch_gives_back_the_old_counter():
    old = unique_name.switch()
    try:
        assert unique_name.generate("a") == "a_0"
        assert unique_name.generate("a") == "a_1"
        assert unique_name.generate("b") == "b_0"
    finally:
        mine = unique_name.switch(old)
    assert mine("a") == "a_2"


def test_traversal_of_layers():
    net = Net()
    assert [n for n, _ in net.named_sublayers()] == [
        "first",
        "second",
        "second.0",
        "second.1",
    ]
    assert net.sublayers(include_self=True)[0] is net
    assert list(net.children()) == [net.first, net.second]
    assert [n for n, _ in net.named_children()] == ["first", "second"]


def test_a_shared_layer_is_counted_once():
    shared = nn.Linear(2, 2)
    net = nn.LayerList([shared, shared])
    assert len(net.parameters()) == 2
    assert len(net.sublayers()) == 1
    assert len(list(net.children())) == 1
    assert len(net.state_dict()) == 4


def test_buffers():
    net = Net()
    assert [n for n, _ in net.named_buffers()] == ["steps", "scratch"]
    assert [b.shape for b in net.buffers()] == [[1], [2]]
    assert "steps" in net.state_dict()
    assert "scratch" not in net.state_dict()
    assert "scratch" in net.to_static_state_dict()
    net.register_buffer("steps", None)
    assert net.steps is None
    assert "steps" not in net.state_dict()


def test_assignment_sorts_values_by_kind():
    layer = nn.Layer()
    layer.value = 3
    assert layer.value == 3
    layer.value = nn.Linear(1, 1)
    assert list(layer._sub_layers) == ["value"]
    layer.value = layer.create_parameter([2])
    assert list(layer._sub_layers) == []
    assert list(layer._parameters) == ["value"]
    layer.value = None
    assert layer.value is None
    assert list(layer._parameters) == ["value"]
    del layer.value
    assert not hasattr(layer, "value")
    layer.value = paddle.ones([2])
    assert list(layer._buffers) == ["value"]
    assert layer.state_dict() == {}
    layer.value = paddle.zeros([3])
    assert layer.value.shape == [3]
    layer.value = nn.ReLU()
    assert list(layer._buffers) == []


def test_assignment_of_a_wrong_kind_is_refused():
    linear = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="parameter 'weight' of Linear .* ndarray"):
        linear.weight = np.ones([2, 2])
    with pytest.raises(TypeError, match="parameter 'weight' of Linear"):
        linear.weight = paddle.ones([2, 2])
    net = Net()
    with pytest.raises(TypeError, match="sublayer 'first' of Net .* int"):
        net.first = 3
    with pytest.raises(TypeError, match="buffer 'steps' of Net .* str"):
        net.steps = "many"


def test_changes_in_the_tables_of_members_are_seen():
    net = Net()
    net._sub_layers["first"] = nn.ReLU()
    assert isinstance(net.first, nn.ReLU)
    del net._sub_layers["first"]
    assert not hasattr(net, "first")
    net._sub_layers.update(first=nn.Tanh())
    assert isinstance(net.first, nn.Tanh)
    assert isinstance(net._sub_layers.pop("first"), nn.Tanh)
    assert net._sub_layers.pop("first", 3) == 3
    assert not hasattr(net, "first")
    scratch = net._buffers.setdefault("scratch", None)
    assert net.scratch is scratch
    assert net._buffers.popitem()[0] == "scratch"
    assert not hasattr(net, "scratch")
    net._buffers.clear()
    assert not hasattr(net, "steps")


def test_an_unknown_attribute_is_named():
    with pytest.raises(AttributeError, match="'Linear' has no attribute 'wieght'"):
        nn.Linear(1, 1).wieght  # noqa: B018


def test_dir_lists_members():
    names = dir(Net())
    assert {"first", "second", "steps", "scratch", "forward"} <= set(names)


def test_forgotten_super_init_is_explained():
    class Forgetful(nn.Layer):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    with pytest.raises(ValueError, match=r"super\(\).__init__\(\).*Forgetful"):
        Forgetful()

    class Idle(nn.Layer):
        def __init__(self):
            pass

        def forward(self, x):
            return x

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\).*Idle"):
        Idle()(1)


def test_forward_must_be_written():
    with pytest.raises(NotImplementedError, match="Layer has no forward"):
        nn.Layer()(1)


def test_unknown_arguments_are_type_errors():
    with pytest.raises(TypeError):
        nn.Linear(2, 2, bias=False)
    with pytest.raises(TypeError):
        nn.Linear(2, 2)(paddle.ones([1, 2]), scale=2)


def test_wrong_input_shape_names_op_and_shapes():
    with pytest.raises(ValueError) as error:
        nn.Linear(3, 4)(paddle.ones([2, 5]))
    assert "[2, 5]" in str(error.value) and "fc" in str(error.value)


def test_add_sublayer_and_add_parameter_check_names():
    layer = nn.Layer()
    inner = nn.Linear(1, 1)
    assert layer.add_sublayer("fc", inner) is inner
    assert layer.fc is inner
    weight = layer.create_parameter([2], is_bias=True)
    assert layer.add_parameter("w", weight) is weight
    assert layer.w is weight
    with pytest.raises(KeyError, match="already an attribute 'forward'"):
        layer.add_sublayer("forward", inner)
    with pytest.raises(KeyError, match="dot"):
        layer.add_parameter("a.b", weight)
    with pytest.raises(KeyError, match="empty"):
        layer.register_buffer("", paddle.ones([1]))
    with pytest.raises(TypeError, match="must be a string"):
        layer.add_sublayer(3, inner)
    with pytest.raises(TypeError, match="must be a Layer or None, but got int"):
        layer.add_sublayer("x", 3)
    with pytest.raises(TypeError, match="must be a Parameter or None, but got Tensor"):
        layer.add_parameter("x", paddle.ones([1]))
    with pytest.raises(TypeError, match="must be a Tensor or None, but got ndarray"):
        layer.register_buffer("x", np.ones(1))


def test_create_parameter_obeys_its_attribute():
    layer = nn.Layer()
    attr = paddle.ParamAttr(
        name="mine",
        initializer=nn.initializer.Constant(3.0),
        learning_rate=0.5,
        regularizer=paddle.regularizer.L2Decay(0.1),
        trainable=False,
        need_clip=False,
    )
    p = layer.create_parameter([2, 3], attr, dtype="float64")
    assert p.name == "mine"
    assert p.dtype == paddle.float64
    assert p.stop_gradient and not p.trainable
    assert p.persistable
    assert p.optimize_attr == {"learning_rate": 0.5}
    assert p.regularizer.coeff == 0.1
    assert p.need_clip is False
    assert p.is_distributed is False
    np.testing.assert_array_equal(p.numpy(), np.full([2, 3], 3.0))
    assert layer.create_parameter([2], attr=False) is None
    assert layer.create_parameter([1], attr="by_name").name == "by_name"
    ones = layer.create_parameter([2], attr=nn.initializer.Constant(1.0))
    np.testing.assert_array_equal(ones.numpy(), [1, 1])
    with pytest.raises(TypeError, match="attribute must be a ParamAttr"):
        layer.create_parameter([1], attr=3.5)
    with pytest.raises(ValueError, match="negative dimension"):
        layer.create_parameter([2, -1])


def test_param_attr_checks_its_arguments():
    with pytest.raises(TypeError, match="name must be a string"):
        paddle.ParamAttr(name=3)
    with pytest.raises(TypeError, match="initializer"):
        paddle.ParamAttr(initializer=0.5)
    with pytest.raises(TypeError, match="learning_rate must be a number"):
        paddle.ParamAttr(learning_rate="big")
    with pytest.raises(TypeError):
        paddle.ParamAttr(lr=1.0)


def test_trainable_is_the_opposite_of_stop_gradient():
    p = nn.Linear(1, 1).weight
    assert p.trainable and not p.stop_gradient
    p.trainable = False
    assert p.stop_gradient
    p.stop_gradient = False
    assert p.trainable
    with pytest.raises(ValueError, match="True or False"):
        p.trainable = "yes"


def test_create_parameter_at_the_top_level():
    p = paddle.create_parameter([2, 2], "float32", name="top")
    assert isinstance(p, paddle.Tensor)
    assert p.name == "top" and not p.stop_gradient
    with unique_name.guard():
        p = paddle.create_parameter([2], "float32", is_bias=True)
    assert p.name == "create_parameter_0.b_0"
    np.testing.assert_array_equal(p.numpy(), [0, 0])


def test_create_tensor_is_empty_and_named():
    with unique_name.guard():
        layer = nn.Linear(1, 1)
        tensor = layer.create_tensor(name="extra", persistable=True, dtype="int64")
    assert tensor.name == "linear_0.extra"
    assert tensor.persistable and tensor.size == 0 and tensor.dtype == paddle.int64
    assert layer.create_variable(dtype="float32").size == 0


def test_train_and_eval_reach_all_layers():
    net = Net()
    assert net.eval() is net
    assert not any(layer.training for layer in net.sublayers(include_self=True))
    net.train()
    assert all(layer.training for layer in net.sublayers(include_self=True))


def test_apply_goes_from_below():
    seen = []
    net = Net()
    assert net.apply(lambda layer: seen.append(type(layer).__name__)) is net
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_hooks_change_inputs_and_outputs_until_removed():
    layer = nn.Identity()
    calls = []

    def before(self, inputs):
        calls.append("before")
        assert self is layer
        return inputs[0] + 1

    def after(self, inputs, outputs):
        calls.append("after")
        return outputs * 10

    pre = layer.register_forward_pre_hook(before)
    post = layer.register_forward_post_hook(after)
    watch = layer.register_forward_post_hook(lambda *a: calls.append("watch"))
    assert layer(2) == 30
    assert calls == ["before", "after", "watch"]
    pre.remove()
    assert layer(2) == 20
    post.remove()
    watch.remove()
    watch.remove()
    assert layer(2) == 2
    with pytest.raises(TypeError, match="hook is a function"):
        layer.register_forward_pre_hook(3)


def test_state_dict_holds_the_tensors_themselves():
    net = Net()
    state = net.state_dict()
    assert list(state) == [
        "steps",
        "first.weight",
        "first.bias",
        "second.1.weight",
        "second.1.bias",
    ]
    assert state["first.weight"] is net.first.weight
    into = {}
    assert net.state_dict(destination=into, structured_name_prefix="m.") is into
    assert "m.first.weight" in into
    assert list(net.state_dict(include_sublayers=False)) == ["steps"]


def test_set_state_dict_copies_in_place():
    one, other = Net(), Net()
    weight = other.first.weight
    address = weight._data_ptr()
    arrays = {k: v.numpy() for k, v in one.state_dict().items()}
    assert other.set_state_dict(arrays) == ([], [])
    assert other.first.weight is weight
    assert weight._data_ptr() == address
    assert not weight.stop_gradient
    for key, value in one.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[key].numpy(), value.numpy())
    arrays["first.weight"][:] = 7
    assert not (weight.numpy() == 7).any()

    third = Net()
    third.set_dict(one.state_dict())
    np.testing.assert_array_equal(third.first.weight.numpy(), one.first.weight.numpy())
    one.first.weight.set_value(np.zeros([3, 4], "float32"))
    assert (third.first.weight.numpy() != 0).any()


def test_set_state_dict_by_parameter_names():
    one, other = nn.Linear(2, 3), nn.Linear(2, 3)
    by_name = {
        other.weight.name: one.weight.numpy(),
        other.bias.name: np.arange(3, dtype="float32"),
    }
    assert other.load_dict(by_name, use_structured_name=False) == ([], [])
    np.testing.assert_array_equal(other.weight.numpy(), one.weight.numpy())
    np.testing.assert_array_equal(other.bias.numpy(), [0, 1, 2])


def test_set_state_dict_names_what_does_not_fit():
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy()
    state = {
        "weight": np.zeros([3, 3], "float32"),
        "bias": np.ones([3], "float32"),
        "extra": np.ones([1]),
        "StructuredToParameterName@@": {"weight": "linear_0.w_0"},
    }
    with pytest.warns(
        UserWarning,
        match=r"weight receives a shape \[3, 3\], but the "
        r"expected shape is \[2, 3\]",
    ):
        missing, unexpected = layer.set_state_dict(state)
    assert (missing, unexpected) == (["weight"], ["extra"])
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    np.testing.assert_array_equal(layer.bias.numpy(), [1, 1, 1])
    with pytest.warns(UserWarning, match="bias is not found in the provided dict"):
        missing, _ = layer.set_state_dict({"weight": before})
    assert missing == ["bias"]
    with pytest.warns(UserWarning, match="neither a Tensor nor an array"):
        layer.set_state_dict({"weight": "oops", "bias": np.ones([3])})


def test_state_dict_hook_sees_the_state():
    layer = nn.Linear(1, 1)

    def drop_bias(state):
        del state["bias"]

    handle = layer.register_state_dict_hook(drop_bias)
    assert list(layer.state_dict()) == ["weight"]
    assert list(layer.state_dict(use_hook=False)) == ["weight", "bias"]
    handle.remove()
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_clear_gradients():
    layer = nn.Linear(2, 1)
    layer(paddle.ones([3, 2])).sum().backward()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[3], [3]])
    layer.clear_gradients()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[0], [0]])
    layer.clear_gradients(set_to_zero=False)
    assert layer.weight.grad is None


def test_to_casts_floating_point_members_in_place():
    net = Net()
    net.register_buffer("count", paddle.zeros([1], "int64"))
    weight, value = net.first.weight, net.first.weight.numpy()
    assert net.to(dtype="float64") is net
    assert net.first.weight is weight
    assert weight.dtype == paddle.float64 and not weight.stop_gradient
    assert net.steps.dtype == paddle.float64 and net.count.dtype == paddle.int64
    np.testing.assert_array_equal(weight.numpy(), value.astype("float64"))
    out = net(paddle.ones([1, 3], "float64"))
    out.sum().backward()
    assert weight.grad.dtype == paddle.float64
    net.float()
    assert weight.dtype == paddle.float32
    assert weight.grad.dtype == paddle.float32
    net.to(device="cpu")
    net.double()
    assert net.first.bias.dtype == paddle.float64
    assert net.astype("float32").first.bias.dtype == paddle.float32


def test_default_dtype_is_the_parameters_dtype():
    paddle.set_default_dtype("float64")
    try:
        assert nn.Linear(1, 1).weight.dtype == paddle.float64
    finally:
        paddle.set_default_dtype("float32")
    assert nn.Linear(1, 1).weight.dtype == paddle.float32


def test_a_copy_has_memory_of_its_own():
    net = Net()
    twin = copy.deepcopy(net)
    assert twin.first.weight is not net.first.weight
    assert twin.first.weight.name != net.first.weight.name
    np.testing.assert_array_equal(twin.first.weight.numpy(), net.first.weight.numpy())
    twin.first.weight.set_value(np.zeros([3, 4], "float32"))
    assert (net.first.weight.numpy() != 0).any()
    assert not twin.first.weight.stop_gradient


def test_printing_shows_the_tree():
    text = repr(Net())
    assert text == (
        "Net(\n"
        "  (first): Linear(in_features=3, out_features=4, dtype=float32)\n"
        "  (second): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Linear(in_features=4, out_features=2, dtype=float32)\n"
        "  )\n"
        ")"
    )


def test_printing_a_parameter():
    p = nn.Linear(1, 2, weight_attr=nn.initializer.Constant(0.5)).weight
    assert repr(p).startswith("Parameter containing:\nTensor(shape=[1, 2]")
    assert "stop_gradient=False" in str(p)


# ---- containers


def test_sequential_runs_in_order_and_can_be_indexed():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    x = paddle.ones([4, 2])
    expected = net[2](net[1](net[0](x))).numpy()
    np.testing.assert_array_equal(net(x).numpy(), expected)
    assert len(net) == 3
    assert net[-1] is net[2]
    assert isinstance(net[:2], nn.Sequential) and len(net[:2]) == 2
    assert net[1:][0] is net[1]
    assert list(net)[0] is net[0]
    net[1] = nn.ReLU()
    assert isinstance(net[1], nn.ReLU)
    del net[0]
    assert len(net) == 2
    with pytest.raises(IndexError, match="index 5 is out of range of 2"):
        net[5]


def test_sequential_with_names():
    net = nn.Sequential(("fc", nn.Linear(2, 3)), ("act", nn.ReLU()))
    assert list(net.state_dict()) == ["fc.weight", "fc.bias"]
    assert net["act"] is net[1]
    assert net.fc is net[0]
    net.add_sublayer("out", nn.Linear(3, 1))
    assert net(paddle.ones([1, 2])).shape == [1, 1]
    with pytest.raises(ValueError, match="pair"):
        nn.Sequential(("fc", nn.Linear(2, 3), 1))
    with pytest.raises(TypeError, match="must be a Layer"):
        nn.Sequential(3)


def test_layer_list_behaves_as_a_list():
    layers = nn.LayerList([nn.Linear(1, i + 1) for i in range(3)])
    assert [layer.weight.shape[1] for layer in layers] == [1, 2, 3]
    assert len(layers) == 3 and layers[-1] is layers[2]
    layers.append(nn.ReLU())
    layers.insert(0, nn.Tanh())
    assert [type(layer).__name__ for layer in layers] == [
        "Tanh",
        "Linear",
        "Linear",
        "Linear",
        "ReLU",
    ]
    assert list(layers.state_dict())[:2] == ["1.weight", "1.bias"]
    assert len(layers[1:4]) == 3
    layers[0] = nn.Sigmoid()
    del layers[1]
    assert [type(layer).__name__ for layer in layers] == [
        "Sigmoid",
        "Linear",
        "Linear",
        "ReLU",
    ]
    layers.extend([nn.GELU()])
    assert len(layers) == 5
    with pytest.raises(IndexError):
        layers[9]
    with pytest.raises(TypeError):
        layers["0"]


def test_layer_dict_behaves_as_a_dict():
    layers = nn.LayerDict({"a": nn.Linear(1, 1), "b": nn.ReLU()})
    assert list(layers) == ["a", "b"] and "a" in layers and len(layers) == 2
    layers["c"] = nn.Tanh()
    layers.update([("d", nn.Linear(1, 2))])
    assert list(layers.keys()) == ["a", "b", "c", "d"]
    assert len(layers.parameters()) == 4
    assert isinstance(layers.pop("b"), nn.ReLU)
    del layers["c"]
    assert [k for k, _ in layers.items()] == ["a", "d"]
    assert len(list(layers.values())) == 2
    layers.clear()
    assert len(layers) == 0


def test_parameter_list():
    make = nn.Layer().create_parameter
    params = nn.ParameterList([make([2]), make([3])])
    params.append(make([4]))
    assert [p.shape for p in params] == [[2], [3], [4]]
    assert params[-1].shape == [4]
    assert list(params.state_dict()) == ["0", "1", "2"]
    params[0] = make([5])
    assert params[0].shape == [5]
    with pytest.raises(TypeError, match="takes Parameters, not int"):
        params[0] = 3


def test_no_warning_for_a_plain_load():
    layer = nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.set_state_dict(nn.Linear(2, 2).state_dict())
