# SPDX-License-Identifier: Apache-2.0
"""Whole training steps in eager mode: forward, loss, backward, update, clear.

The same weights and batches go through both sides; their losses must agree over the
first steps, or the ratio is void.
"""

import numpy as np
from measure import Row, best_in_turns

LOSS_TOLERANCE = 1e-4  # relative, at every one of the compared steps


# Adam divides by the size of a gradient: where that is as small as its rounding
# error, the sign of the error becomes a whole step. A larger epsilon keeps the two
# sides of the deep model together; it costs neither of them time.
CALM = 1e-3


# ---- what is trained
# A model is a list of layers; both sides build it from this list.
MODELS = {
    "LinearNet 10-10-1, Adam, batch 10": dict(
        layers=[("linear", 10, 10), ("linear", 10, 1)],
        input=(10, 10),
        loss="mse",
        optimizer=("Adam", 0.001, 1e-8),
        steps=(400, 15),
        bar=0.22,
    ),
    "MLP 32-128-128-2 tanh, SGD, 128": dict(
        layers=[
            ("linear", 32, 128),
            ("tanh",),
            ("linear", 128, 128),
            ("tanh",),
            ("linear", 128, 2),
        ],
        input=(128, 32),
        loss="cross_entropy",
        optimizer=("SGD", 0.01, None),
        steps=(200, 15),
        bar=0.50,
    ),
    "CNN 32x32, Adam, batch 32": dict(
        layers=[
            ("conv", 3, 32),
            ("relu",),
            ("pool",),
            ("conv", 32, 64),
            ("relu",),
            ("pool",),
            ("conv", 64, 64),
            ("relu",),
            ("flatten",),
            ("linear", 1024, 64),
            ("relu",),
            ("linear", 64, 10),
        ],
        input=(32, 3, 32, 32),
        loss="cross_entropy",
        optimizer=("Adam", 0.001, CALM),
        steps=(10, 8),
        bar=1.0,
    ),
}


def make_weights(layers, rng):
    weights = []
    for kind, *sizes in layers:
        if kind == "linear":
            fan_in, fan_out = sizes
            weights.append(rng.normal(0, fan_in**-0.5, (fan_in, fan_out)))
            weights.append(rng.normal(0, 0.1, fan_out))
        elif kind == "conv":
            channels, filters = sizes
            weights.append(
                rng.normal(0, (9 * channels) ** -0.5, (filters, channels, 3, 3))
            )
            weights.append(rng.normal(0, 0.1, filters))
    return [w.astype("float32") for w in weights]


def make_batch(spec, rng):
    x = rng.normal(size=spec["input"]).astype("float32")
    if spec["loss"] == "mse":
        return x, rng.normal(size=(len(x), spec["layers"][-1][2])).astype("float32")
    return x, rng.integers(0, spec["layers"][-1][2], len(x))


# ---- the two sides
def paddle_parts(paddle, spec, trained=None):
    """The model, the loss and the optimizer of a spec; `trained` picks the parameters of
    the model for an optimizer that has to know them."""
    nn = paddle.nn
    kinds = {
        "linear": lambda i, o: nn.Linear(i, o),
        "conv": lambda i, o: nn.Conv2D(i, o, 3),
        "relu": nn.ReLU,
        "tanh": nn.Tanh,
        "pool": lambda: nn.MaxPool2D(2, 2),
        "flatten": nn.Flatten,
    }
    model = nn.Sequential(*[kinds[kind](*a) for kind, *a in spec["layers"]])
    loss = nn.MSELoss() if spec["loss"] == "mse" else nn.CrossEntropyLoss()
    name, rate, epsilon = spec["optimizer"]
    more = {} if epsilon is None else {"epsilon": epsilon}
    if trained is not None:
        more["parameters"] = trained(model)
    optimizer = getattr(paddle.optimizer, name)(learning_rate=rate, **more)
    return model, loss, optimizer


def paddle_step(paddle, spec, weights, batch, wrap=lambda model: model):
    model, loss_layer, optimizer = paddle_parts(paddle, spec, lambda m: m.parameters())
    for p, w in zip(model.parameters(), weights):
        p.set_value(w)
    x, y = (paddle.to_tensor(a) for a in batch)
    model = wrap(model)

    def step():
        loss = loss_layer(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step


def torch_parts(torch, spec, device="cpu", **more):
    """Model, loss and optimizer of torch; `more` is for its optimizer."""
    nn = torch.nn
    kinds = {
        "linear": lambda i, o: nn.Linear(i, o),
        "conv": lambda i, o: nn.Conv2d(i, o, 3),
        "relu": nn.ReLU,
        "tanh": nn.Tanh,
        "pool": lambda: nn.MaxPool2d(2, 2),
        "flatten": nn.Flatten,
    }
    layers = [kinds[kind](*a) for kind, *a in spec["layers"]]
    model = nn.Sequential(*layers).to(device)
    loss = nn.MSELoss() if spec["loss"] == "mse" else nn.CrossEntropyLoss()
    name, rate, epsilon = spec["optimizer"]
    if epsilon is not None:
        more["eps"] = epsilon
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=rate, **more)
    return model, loss, optimizer


def set_torch_weights(torch, model, weights):
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights):
            w = torch.from_numpy(w)
            p.copy_(w.t() if p.dim() == 2 else w)


def torch_step(torch, spec, weights, batch, wrap=lambda model: model, device="cpu"):
    model, loss_layer, optimizer = torch_parts(torch, spec, device)
    set_torch_weights(torch, model, weights)
    x, y = (torch.from_numpy(a).to(device) for a in batch)
    model = wrap(model)

    def step():
        loss = loss_layer(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def check_losses(name, ours, peer, steps=20):
    """Both sides take the same first steps."""
    for i in range(steps):
        a, b = float(ours()), float(peer())
        if abs(a - b) > LOSS_TOLERANCE * abs(b):
            raise AssertionError(f"{name}: loss of step {i} is {a}, the peer's {b}")


def run():
    import paddle
    import torch

    torch.set_num_threads(1)
    rows = []
    for name, spec in MODELS.items():
        rng = np.random.default_rng(7)
        weights, batch = make_weights(spec["layers"], rng), make_batch(spec, rng)
        ours = paddle_step(paddle, spec, weights, batch)
        peer = torch_step(torch, spec, weights, batch)
        check_losses(name, ours, peer)
        repeat, turns = spec["steps"]
        times = best_in_turns([ours, peer], repeat, turns)
        rows.append(Row(name, times[0] * 1e6, times[1] * 1e6, "us", spec["bar"]))
    return rows


if __name__ == "__main__":
    for row in run():
        print(row)
