# SPDX-License-Identifier: Apache-2.0
"""paddle.vision.models against networks written in torch, and known sizes."""

import numpy as np
import paddle
import pytest
import torch
from paddle.vision import models
from paddle.vision.models import resnet, weights
from torch import nn


class TorchBlock(nn.Module):
    """A residual block: convolutions (channels in, out, kernel, stride)."""

    def __init__(self, convs, shortcut):
        super().__init__()
        for i, (cin, cout, kernel, stride) in enumerate(convs, 1):
            conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
            self.add_module(f"conv{i}", conv)
            self.add_module(f"bn{i}", nn.BatchNorm2d(cout))
        self.count = len(convs)
        if shortcut:
            cin, cout, stride = shortcut
            self.downsample = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        out = x
        for i in range(1, self.count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            if i < self.count:
                out = torch.relu(out)
        return torch.relu(out + getattr(self, "downsample", nn.Identity())(x))


class TorchResNet(nn.Module):
    def __init__(self, blocks, bottleneck, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        cin = 64
        for stage, count in enumerate(blocks):
            width = 64 << stage
            cout = width * 4 if bottleneck else width
            layers = []
            for i in range(count):
                s = 2 if stage and i == 0 else 1
                convs = [(cin, width, 3, s), (width, width, 3, 1)]
                if bottleneck:
                    convs = [(cin, width, 1, 1), (width, width, 3, s)]
                    convs += [(width, cout, 1, 1)]
                shortcut = (cin, cout, s) if s != 1 or cin != cout else None
                layers.append(TorchBlock(convs, shortcut))
                cin = cout
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def torch_name(name):
    return name.replace("._mean", ".running_mean").replace("._variance", ".running_var")


def copy_weights(model, reference):
    """The weights of a paddle model into a torch one; every name must meet."""
    state = {}
    for name, value in model.state_dict().items():
        array = value.numpy()
        if array.ndim == 2:  # [in, out] here, [out, in] there
            array = array.T
        state[torch_name(name)] = torch.tensor(np.array(array))
    expected = {k for k in reference.state_dict() if "num_batches" not in k}
    assert set(state) == expected
    reference.load_state_dict(state, strict=False)


def check_against(model, reference, images, classes, tolerance=2e-4):
    """Output, loss gradients and evaluation agree with those of torch."""
    copy_weights(model, reference)
    labels = np.arange(len(images)) % classes
    model.train()
    reference.train()
    out = model(paddle.to_tensor(images))
    wanted = reference(torch.tensor(images))
    np.testing.assert_allclose(
        out.numpy(), wanted.detach().numpy(), rtol=tolerance, atol=tolerance
    )
    paddle.nn.functional.cross_entropy(out, paddle.to_tensor(labels)).backward()
    nn.functional.cross_entropy(wanted, torch.tensor(labels)).backward()
    grads = {name: p.grad for name, p in reference.named_parameters()}
    largest = max(float(grad.abs().max()) for grad in grads.values())
    checked = 0
    for name, parameter in model.named_parameters():
        if parameter.stop_gradient:
            continue
        expected = grads[name].numpy()
        found = parameter.grad.numpy()
        if found.ndim == 2:
            found = found.T
        # A bias before a batch norm has a gradient of nothing but rounding errors.
        atol = 20 * tolerance * np.abs(expected).max() + 1e-5 * largest
        np.testing.assert_allclose(found, expected, atol=atol, err_msg=name)
        checked += 1
    assert checked == len(grads)
    model.eval()
    reference.eval()
    copy_weights(model, reference)
    with paddle.no_grad():
        out = model(paddle.to_tensor(images))
    with torch.no_grad():
        wanted = reference(torch.tensor(images))
    np.testing.assert_allclose(
        out.numpy(), wanted.numpy(), rtol=tolerance, atol=tolerance
    )


def pictures(num, channels, size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((num, channels, size, size)).astype(np.float32)


def num_trainable(model):
    return sum(int(np.prod(p.shape)) for p in model.parameters() if not p.stop_gradient)


# -- ResNet


def test_resnet18_agrees_with_torch_forward_and_backward():
    paddle.seed(1)
    model = models.resnet18(num_classes=10)
    reference = TorchResNet((2, 2, 2, 2), bottleneck=False, classes=10)
    check_against(model, reference, pictures(4, 3, 32), 10)


def test_resnet50_agrees_with_torch_forward_and_backward():
    paddle.seed(2)
    # In double precision: fifty layers make rounding errors visible.
    model = models.resnet50(num_classes=5).to(dtype="float64")
    reference = TorchResNet((3, 4, 6, 3), bottleneck=True, classes=5).double()
    images = pictures(3, 3, 32).astype("float64")
    check_against(model, reference, images, 5, tolerance=1e-8)


def test_resnet18_has_paddles_names():
    def norm(name):
        return {f"{name}.{part}" for part in ("weight", "bias", "_mean", "_variance")}

    names = {"conv1.weight", "fc.weight", "fc.bias"} | norm("bn1")
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            prefix = f"layer{stage}.{block}"
            for i in (1, 2):
                names |= {f"{prefix}.conv{i}.weight"} | norm(f"{prefix}.bn{i}")
        if stage > 1:
            prefix = f"layer{stage}.0.downsample"
            names |= {f"{prefix}.0.weight"} | norm(f"{prefix}.1")
    model = models.resnet18()
    assert set(model.state_dict()) == names
    assert model.state_dict()["fc.weight"].shape == [512, 1000]


@pytest.mark.parametrize(
    "make, count",
    [
        (models.resnet18, 11_689_512),
        (models.resnet34, 21_797_672),
        (models.resnet50, 25_557_032),
        (models.resnet101, 44_549_160),
        (models.resnet152, 60_192_808),
        (models.mobilenet_v1, 4_231_976),
        (models.mobilenet_v2, 3_504_872),
        (models.LeNet, 61_610),
    ],
)
def test_the_number_of_parameters_is_the_known_one(make, count):
    assert num_trainable(make()) == count


def test_wide_resnets_are_twice_as_wide_inside():
    model = models.wide_resnet50_2(num_classes=0)
    assert num_trainable(model) == 68_883_240 - 2048 * 1000 - 1000
    assert model.layer1[0].conv2.weight.shape == [128, 128, 3, 3]
    model = resnet.ResNet(resnet.BottleneckBlock, 50, width=4, groups=32)
    assert num_trainable(model) == 25_028_904  # ResNeXt-50 32x4d


def test_resnet_without_its_last_layers():
    model = models.ResNet(resnet.BasicBlock, 18, num_classes=0)
    assert model(paddle.to_tensor(pictures(1, 3, 32))).shape == [1, 512, 1, 1]
    model = models.ResNet(resnet.BasicBlock, 18, 0, with_pool=False)
    assert model(paddle.to_tensor(pictures(1, 3, 64))).shape == [1, 512, 2, 2]


def test_resnet_refuses_what_it_cannot_build():
    with pytest.raises(ValueError, match="depth must be one of .*, not 20"):
        models.ResNet(resnet.BasicBlock, 20)
    with pytest.raises(ValueError, match="BasicBlock"):
        models.ResNet(resnet.BasicBlock, 18, groups=2)


# -- weights


def test_pretrained_names_the_file_to_place(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "WEIGHTS_HOME", str(tmp_path))
    path = str(tmp_path / "resnet18.pdparams")
    with pytest.raises(FileNotFoundError) as error:
        models.resnet18(True, num_classes=3)
    assert path in str(error.value) and "https://" in str(error.value)
    with pytest.raises(FileNotFoundError, match="mobilenet_v2_x0.25.pdparams"):
        models.mobilenet_v2(True, scale=0.25)


def test_pretrained_loads_the_file_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "WEIGHTS_HOME", str(tmp_path))
    saved = models.resnet18(num_classes=3)
    paddle.save(saved.state_dict(), str(tmp_path / "resnet18.pdparams"))
    model = models.resnet18(pretrained=True, num_classes=3)
    for name, value in saved.state_dict().items():
        np.testing.assert_array_equal(model.state_dict()[name].numpy(), value.numpy())


# -- the others


def test_lenet_agrees_with_torch():
    class TorchLeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(1, 6, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(6, 16, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            self.fc = nn.Sequential(
                nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)
            )

        def forward(self, x):
            return self.fc(self.features(x).flatten(1))

    paddle.seed(3)
    check_against(models.LeNet(), TorchLeNet(), pictures(4, 1, 28), 10)
    model = models.LeNet(num_classes=0)
    assert model(paddle.to_tensor(pictures(2, 1, 28))).shape == [2, 16, 5, 5]


def torch_conv(cin, cout, kernel=3, stride=1, groups=1, act=nn.ReLU6):
    conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), act())


class TorchInverted(nn.Module):
    def __init__(self, cin, cout, stride, factor):
        super().__init__()
        hidden = cin * factor
        self.around = stride == 1 and cin == cout
        layers = [torch_conv(cin, hidden, 1)] if factor != 1 else []
        layers.append(torch_conv(hidden, hidden, 3, stride, hidden))
        layers += [nn.Conv2d(hidden, cout, 1, bias=False), nn.BatchNorm2d(cout)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.around else self.conv(x)


class TorchMobileNetV2(nn.Module):
    def __init__(self, classes):
        super().__init__()
        plan = "1 16 1 1|6 24 2 2|6 32 3 2|6 64 4 2|6 96 3 1|6 160 3 2|6 320 1 1"
        features = [torch_conv(3, 32, 3, 2)]
        cin = 32
        for row in plan.split("|"):
            factor, cout, count, stride = map(int, row.split())
            for i in range(count):
                features.append(TorchInverted(cin, cout, 1 if i else stride, factor))
                cin = cout
        self.features = nn.Sequential(*features, torch_conv(320, 1280, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def test_mobilenet_v2_agrees_with_torch():
    paddle.seed(4)
    model = models.mobilenet_v2(num_classes=4)
    model.classifier[0].p = 0.0  # no dropout: both must see the same
    check_against(model, TorchMobileNetV2(4), pictures(4, 3, 64), 4, tolerance=1e-3)


def test_mobilenet_v2_keeps_channels_multiples_of_eight():
    model = models.mobilenet_v2(scale=0.35, num_classes=2)
    assert model.features[0][0].weight.shape[0] == 16  # 11.2 would lose over 10%
    assert model.last_channel == 1280
    assert models.MobileNetV2(1.4, 2).last_channel == 1792


class TorchMobileNetV1(nn.Module):
    def __init__(self, scale, classes):
        super().__init__()
        plan = "64 1,128 2,128 1,256 2,256 1,512 2" + ",512 1" * 5 + ",1024 2,1024 1"
        cin = int(32 * scale)
        layers = [torch_conv(3, cin, 3, 2, act=nn.ReLU)]
        for row in plan.split(","):
            cout, stride = map(int, row.split())
            cout = int(cout * scale)
            layers.append(torch_conv(cin, cin, 3, stride, cin, nn.ReLU))
            layers.append(torch_conv(cin, cout, 1, act=nn.ReLU))
            cin = cout
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        return self.fc(self.layers(x).mean((2, 3)))


def test_mobilenet_v1_agrees_with_torch():
    paddle.seed(5)
    model = models.mobilenet_v1(scale=0.25, num_classes=4)
    blocks = ["2_1", "2_2", "3_1", "3_2", "4_1", "4_2"]
    blocks += [f"5_{i}" for i in range(1, 7)] + ["6"]
    prefixes = ["conv1"]
    for name in blocks:
        prefixes += [f"conv{name}._depthwise_conv", f"conv{name}._pointwise_conv"]
    reference = TorchMobileNetV1(0.25, 4)
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    copied = {
        "fc.weight": torch.tensor(state.pop("fc.weight").T.copy()),
        "fc.bias": torch.tensor(state.pop("fc.bias")),
    }
    for i, prefix in enumerate(prefixes):
        copied[f"layers.{i}.0.weight"] = torch.tensor(
            state.pop(f"{prefix}._conv.weight")
        )
        for part in ("weight", "bias", "_mean", "_variance"):
            value = torch.tensor(state.pop(f"{prefix}._norm_layer.{part}"))
            copied[torch_name(f"layers.{i}.1.{part}")] = value
    assert not state
    reference.load_state_dict(copied, strict=False)
    images = pictures(4, 3, 64)
    out = model(paddle.to_tensor(images))
    wanted = reference(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "make, batch_norm, count",
    [
        (models.vgg11, False, 9_220_480),
        (models.vgg13, False, 9_404_992),
        (models.vgg16, False, 14_714_688),
        (models.vgg19, False, 20_024_384),
        (models.vgg16, True, 14_723_136),
    ],
)
def test_vgg_features_have_the_known_number_of_parameters(make, batch_norm, count):
    assert num_trainable(make(batch_norm=batch_norm, num_classes=0)) == count


def test_vgg11_agrees_with_torch():
    class TorchVGG(nn.Module):
        def __init__(self):
            super().__init__()
            layers, cin = [], 3
            for c in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
                if c == 0:
                    layers.append(nn.MaxPool2d(2))
                    continue
                layers += [nn.Conv2d(cin, c, 3, padding=1), nn.ReLU()]
                cin = c
            self.features = nn.Sequential(*layers)
            self.classifier = nn.Sequential(
                nn.Linear(25088, 4096),
                nn.ReLU(),
                nn.Identity(),
                nn.Linear(4096, 4096),
                nn.ReLU(),
                nn.Identity(),
                nn.Linear(4096, 10),
            )

        def forward(self, x):
            x = nn.functional.adaptive_avg_pool2d(self.features(x), 7)
            return self.classifier(x.flatten(1))

    paddle.seed(6)
    model = models.vgg11(num_classes=10)
    model.eval()
    reference = TorchVGG().eval()
    copy_weights(model, reference)
    images = pictures(2, 3, 64)
    with paddle.no_grad():
        out = model(paddle.to_tensor(images)).numpy()
    wanted = reference(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-5)


def test_the_models_are_names_of_the_package():
    for name in models.__all__:
        assert getattr(paddle.vision, name) is getattr(models, name)
