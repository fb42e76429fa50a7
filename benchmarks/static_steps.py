# SPDX-License-Identifier: Apache-2.0
"""Whole training steps as programs, `exe.run` with feed and fetch, against the same steps
in eager torch: the same weights and batches on both sides, whose losses must agree over
the first steps, or the ratio is void. The MLP also runs from C++ (static/mlp.cc), against
the sum of its matrix products in oneDNN.

    python benchmarks/static_steps.py [--peer-python PATH]

--peer-python names a Python that has the real paddlepaddle; the MLP is then also
measured against a program there, with the same losses.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from eager_steps import MODELS as EAGER
from eager_steps import (
    check_losses,
    make_batch,
    make_weights,
    paddle_parts,
    torch_step,
)
from measure import Row, best_in_turns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MLP = "static MLP 32-128-128-2, batch 128"
PEER_LOSSES = 20  # how many the real Paddle tells


def mlp(width, batch, steps, bar):
    return dict(
        layers=[
            ("linear", 32, width),
            ("tanh",),
            ("linear", width, width),
            ("tanh",),
            ("linear", width, 2),
        ],
        input=(batch, 32),
        loss="cross_entropy",
        optimizer=("SGD", 0.01, None),
        steps=steps,
        bar=bar,
    )


LINEAR, _, CNN = EAGER
MODELS = {
    MLP: mlp(128, 128, (200, 15), 0.40),
    "static MLP 32-32-32-2, batch 32": mlp(32, 32, (400, 15), 0.10),
    "static " + LINEAR: dict(EAGER[LINEAR], bar=0.08),
    "static " + CNN: dict(EAGER[CNN], bar=0.80),
}


# ---- ours
class Compiled:
    """A program of its own with its scope; a call is a step and gives the loss."""

    def __init__(self, paddle, build, feed):
        static = paddle.static
        paddle.enable_static()
        try:
            self.program, startup = static.Program(), static.Program()
            with static.program_guard(self.program, startup):
                self.loss, set_weights = build()
            self.executor = static.Executor(paddle.CPUPlace())
            # The real Paddle has its class elsewhere.
            self.scope = getattr(static, "Scope", None) or paddle.base.core.Scope
            self.scope = self.scope()
            self.executor.run(startup, scope=self.scope)
            set_weights(self.scope, paddle.CPUPlace())
        finally:
            paddle.disable_static()
        self.feed = feed
        self.fetch = [self.loss]

    def __call__(self):
        return self.executor.run(
            self.program, feed=self.feed, fetch_list=self.fetch, scope=self.scope
        )[0]


def set_parameters(parameters, weights):
    trained = [p for p in parameters if not p.stop_gradient]  # no running means

    def put(scope, place):
        for p, w in zip(trained, weights):
            scope.find_var(p.name).get_tensor().set(w, place)

    return put


def static_step(paddle, spec, weights, batch):
    x, y = batch
    if spec["loss"] != "mse":
        y = y.reshape(-1, 1)

    def build():
        data = paddle.static.data("x", [None, *x.shape[1:]], "float32")
        label = paddle.static.data("y", [None, *y.shape[1:]], str(y.dtype))
        model, loss_layer, optimizer = paddle_parts(paddle, spec)
        loss = loss_layer(model(data), label)
        optimizer.minimize(loss)
        return loss, set_parameters(model.parameters(), weights)

    return Compiled(paddle, build, {"x": x, "y": y})


# ---- ResNet-18 for small images, from either side's layers
def resnet18(nn, conv, norm):
    class Block(nn.Layer if hasattr(nn, "Layer") else nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.conv1 = conv(inside, outside, 3, stride, 1)
            self.norm1 = norm(outside)
            self.conv2 = conv(outside, outside, 3, 1, 1)
            self.norm2 = norm(outside)
            self.relu = nn.ReLU()
            self.short = None
            if stride != 1 or inside != outside:
                self.short = nn.Sequential(
                    conv(inside, outside, 1, stride, 0), norm(outside)
                )

        def forward(self, x):
            y = self.relu(self.norm1(self.conv1(x)))
            y = self.norm2(self.conv2(y))
            return self.relu(y + (x if self.short is None else self.short(x)))

    layers = [conv(3, 64, 7, 2, 3), norm(64), nn.ReLU()]
    layers.append(
        nn.MaxPool2D(3, 2, 1) if hasattr(nn, "MaxPool2D") else nn.MaxPool2d(3, 2, 1)
    )
    inside = 64
    for outside in (64, 128, 256, 512):
        for stride in (1 if outside == 64 else 2, 1):
            layers.append(Block(inside, outside, stride))
            inside = outside
    pool = nn.AdaptiveAvgPool2D if hasattr(nn, "MaxPool2D") else nn.AdaptiveAvgPool2d
    layers += [pool(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers)


def resnet_batch():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(16, 3, 32, 32)).astype("float32")
    return x, rng.integers(0, 10, (16, 1))


def resnet_torch(torch, keep=True):
    nn = torch.nn
    # With 5, an input of a ReLU is within 1e-6 of zero in the second step, and has
    # another sign on either side: gradients then differ by 1e-2.
    torch.manual_seed(6)
    model = resnet18(
        nn, lambda i, o, k, s, p: nn.Conv2d(i, o, k, s, p, bias=False), nn.BatchNorm2d
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_layer = nn.CrossEntropyLoss()
    x, y = resnet_batch()
    x, y = torch.from_numpy(x), torch.from_numpy(y[:, 0])

    def step():
        loss = loss_layer(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    if not keep:
        return step, None
    weights = [p.detach().numpy().copy() for p in model.parameters()]
    weights[-2] = weights[-2].T  # the last layer, as Paddle has it
    return step, weights


def resnet_ours(paddle, weights=None):
    nn = paddle.nn
    x, y = resnet_batch()

    def build():
        data = paddle.static.data("x", [None, 3, 32, 32], "float32")
        label = paddle.static.data("y", [None, 1], "int64")
        model = resnet18(
            nn,
            lambda i, o, k, s, p: nn.Conv2D(i, o, k, s, p, bias_attr=False),
            nn.BatchNorm2D,
        )
        loss = nn.CrossEntropyLoss()(model(data), label)
        paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9).minimize(loss)
        return loss, set_parameters(model.parameters(), weights or [])

    return Compiled(paddle, build, {"x": x, "y": y})


# ---- a chain of elementwise operations: gelu by hand, residual and scale
CHAIN = (256, 1024)
BLOCKS = 3
CHAIN_BAR = 0.35


def chain_loss(tanh, x, target, parameters):
    """From tensors of either side; three parameters a block."""
    for i in range(BLOCKS):
        weight, bias, gain = parameters[3 * i : 3 * i + 3]
        h = x * weight + bias
        gelu = 0.5 * h * (1.0 + tanh(0.7978845608 * (h + 0.044715 * (h * h * h))))
        x = x + gelu * gain
    return ((x - target) * (x - target)).mean()


def chain_values():
    rng = np.random.default_rng(11)
    x, target = (rng.normal(size=CHAIN).astype("float32") for _ in range(2))
    weights = []
    for _ in range(BLOCKS):
        for size in (CHAIN[1], CHAIN[1], 1):
            weights.append(rng.uniform(0.2, 0.8, size).astype("float32"))
    return x, target, weights


def chain_torch(torch):
    x, target, weights = chain_values()
    x, target = torch.from_numpy(x), torch.from_numpy(target)
    parameters = [torch.nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def step():
        loss = chain_loss(torch.tanh, x, target, parameters)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def chain_ours(paddle):
    x, target, weights = chain_values()

    def build():
        data = paddle.static.data("x", [None, CHAIN[1]], "float32")
        label = paddle.static.data("y", [None, CHAIN[1]], "float32")
        parameters = [
            paddle.create_parameter(list(w.shape), "float32") for w in weights
        ]
        loss = chain_loss(paddle.tanh, data, label, parameters)
        paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)
        return loss, set_parameters(parameters, weights)

    return Compiled(paddle, build, {"x": x, "y": target})


def chain_row(paddle, torch):
    name = "elementwise chain, 256x1024"
    ours, peer = chain_ours(paddle), chain_torch(torch)
    check_losses(name, ours, peer)
    times = best_in_turns([ours, peer], 10, 10)
    return Row(name, times[0] * 1e6, times[1] * 1e6, "us", CHAIN_BAR)


def resident(what):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(what):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {what}")


def print_peak(side):
    """In a process of its own: how much memory training ResNet-18 takes, with its
    parameters and all that an optimizer keeps, in MB."""
    if side == "torch":
        import torch

        torch.set_num_threads(1)
        before = resident("VmRSS")
        step, _ = resnet_torch(torch, keep=False)
    else:
        import paddle

        before = resident("VmRSS")
        step = resnet_ours(paddle)
    for _ in range(5):
        step()
    print(resident("VmHWM") - before)


def peak_of(side):
    done = subprocess.run(
        [sys.executable, __file__, "--peak", side],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return float(done.stdout)


# ---- from C++
def cpp_rows():
    import torch

    torch_home = Path(torch.__file__).parent
    libraries = ROOT / "build" / "release" / "lib"
    program = ROOT / "build" / "bench" / "mlp"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-std=c++20", "-O2", "-I", str(ROOT), "-o", str(program)]
    command += ["-isystem", str(torch_home / "include")]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    command += [str(HERE / "static" / "mlp.cc")]
    for folder in (libraries, torch_home / "lib"):
        command += [f"-L{folder}", f"-Wl,-rpath,{folder}"]
    command += ["-lfleet", "-lfleet_core", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [program, "128", "128", "20", "200"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    step, products = (float(word) for word in done.stdout.split()[:2])
    return [Row("MLP from C++, batch 128", step, products, "us", 1.3, "its GEMMs")]


# ---- the real Paddle
def peer_row(paddle, peer_python):
    """The MLP against the same program there, in a process of its own; ours is measured
    before and after, with one thread as the peer."""
    spec = MODELS[MLP]
    rng = np.random.default_rng(7)
    weights, batch = make_weights(spec["layers"], rng), make_batch(spec, rng)
    ours = static_step(paddle, spec, weights, batch)
    losses = [float(ours()) for _ in range(PEER_LOSSES)]
    times = best_in_turns([ours], *spec["steps"])
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # has our paddle
    done = subprocess.run(
        [peer_python, HERE / "real_paddle.py", "--static", MLP],
        capture_output=True,
        text=True,
        timeout=600,
        env=own,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the MLP in {peer_python}:\n{done.stderr}")
    peer = json.loads(done.stdout.splitlines()[-1])
    times += best_in_turns([ours], *spec["steps"])
    name = "the same against the real Paddle"
    told = iter(peer["losses"])
    check_losses(name, iter(losses).__next__, told.__next__, PEER_LOSSES)
    return Row(name, min(times) * 1e6, peer["seconds"] * 1e6, "us", 0.20, peer["name"])


def run(peer_python=None):
    import paddle
    import torch

    torch.set_num_threads(1)
    for name, spec in MODELS.items():
        rng = np.random.default_rng(7)
        weights, batch = make_weights(spec["layers"], rng), make_batch(spec, rng)
        ours = static_step(paddle, spec, weights, batch)
        start = time.perf_counter()
        ours()
        first = time.perf_counter() - start
        ours = static_step(paddle, spec, weights, batch)
        peer = torch_step(torch, spec, weights, batch)
        check_losses(name, ours, peer)
        repeat, turns = spec["steps"]
        times = best_in_turns([ours, peer], repeat, turns)
        yield Row(name, times[0] * 1e6, times[1] * 1e6, "us", spec["bar"])
        if name == MLP:
            yield Row("first step of it", first * 1e3, 50, "ms", 1.0, "allowed")
            if peer_python is not None:
                yield peer_row(paddle, peer_python)
    yield chain_row(paddle, torch)
    yield from cpp_rows()
    peer, weights = resnet_torch(torch)
    ours = resnet_ours(paddle, weights)
    check_losses("ResNet-18", ours, peer, steps=3)
    times = best_in_turns([ours, peer], 3, 6)
    name = "static ResNet-18, 32x32, batch 16"
    yield Row(name, times[0] * 1e3, times[1] * 1e3, "ms", 0.95)
    yield Row("memory of its steps", peak_of("ours"), peak_of("torch"), "MB", 0.8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", help="a Python with the real paddlepaddle")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        print_peak(args.peak)
    else:
        for row in run(args.peer_python):
            print(row, flush=True)
