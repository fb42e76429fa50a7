# SPDX-License-Identifier: Apache-2.0
"""Models as this package saves them, for real Paddle to load.

    PYTHON tests/interop_peer/save_ours.py DIR

writes for each model NAME.pdmodel and .pdiparams, the folders NAME_each (a file for each
parameter) and NAME_combined, and NAME.npz with inputs and outputs; `training` is a
program with its optimizer by static.save, `traced` a layer by paddle.jit.save.
"""

import os
import sys

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import fluid, nn, static

RANDOM = np.random.RandomState(7)
INPUTS = {
    "x": RANDOM.uniform(-1, 1, (5, 6)).astype("float32"),
    "image": RANDOM.uniform(-1, 1, (3, 1, 12, 12)).astype("float32"),
    "signal": RANDOM.uniform(-1, 1, (2, 3, 9)).astype("float32"),
    "ids": (np.arange(20).reshape(4, 5) * 7 % 50).astype("int64"),
    "dense": RANDOM.uniform(-1, 1, (4, 3)).astype("float32"),
    "label": (np.arange(5).reshape(5, 1) % 3).astype("int64"),
}


def mlp():
    x = static.data("x", [None, 6])
    hidden = static.nn.fc(x, 16, activation="relu")
    hidden = F.gelu(nn.Linear(16, 8)(hidden))
    logits = nn.Linear(8, 3, bias_attr=False)(hidden)
    return [x], [F.softmax(logits), logits]


def cnn():
    image = static.data("image", [None, 1, 12, 12])
    x = F.relu(nn.BatchNorm2D(8)(nn.Conv2D(1, 8, 3, padding=1)(image)))
    x = F.max_pool2d(x, 2, stride=2)
    x = F.leaky_relu(nn.Conv2D(8, 8, 3, padding=1, groups=8)(x), 0.1)
    x = F.avg_pool2d(nn.Conv2D(8, 12, 3, bias_attr=False)(x), 2, stride=2)
    x = F.adaptive_avg_pool2d(x, 1)
    x = F.dropout(paddle.flatten(x, 1), 0.3)
    return [image], [F.softmax(nn.Linear(12, 4)(x))]


def signal():
    """What is one op here and several there."""
    x = static.data("signal", [None, 3, 9])
    x_ = F.max_pool1d(nn.Conv1D(3, 4, 3, padding=1)(x), 3, stride=3)
    flat = paddle.reshape(paddle.transpose(x_, [0, 2, 1]), [0, -1])
    norm = nn.LayerNorm(12)(flat)
    return [x], [norm, paddle.sum(norm, axis=1), paddle.max(flat)]


def embedding():
    ids = static.data("ids", [None, 5], "int64")
    dense = static.data("dense", [None, 3])
    wide = nn.Embedding(50, 1)(ids)
    deep = nn.Embedding(50, 8, padding_idx=0)(ids)
    deep = paddle.reshape(deep, [-1, 40])
    deep = F.relu(nn.Linear(43, 10)(paddle.concat([deep, dense], axis=1)))
    total = nn.Linear(10, 1)(deep) + paddle.sum(wide, axis=1)
    return [ids, dense], [F.sigmoid(total)]


def loss():
    x = static.data("x", [None, 6])
    label = static.data("label", [None, 1], "int64")
    logits = nn.Linear(6, 3)(x)
    cost = F.cross_entropy(logits, label)
    return [x, label], [cost, paddle.argmax(logits, axis=1)]


MODELS = {
    "mlp": mlp,
    "cnn": cnn,
    "signal": signal,
    "embedding": embedding,
    "loss": loss,
}


def move_statistics(scope, program):
    """Running means and variances that are not those of the beginning."""
    for variable in program.list_vars():
        if variable.persistable and not variable.trainable:
            tensor = scope.find_var(variable.name).get_tensor()
            values = np.array(tensor)
            values = values + RANDOM.uniform(0.1, 0.5, values.shape)
            tensor.set(values.astype("float32"))


def save_model(folder, name, model):
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    path = os.path.join(folder, name)
    with (
        static.program_guard(main, startup),
        static.scope_guard(scope),
        paddle.utils.unique_name.guard(),
    ):
        feeds, fetches = model()
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        move_statistics(scope, main)
        arrays = {v.name: INPUTS[v.name] for v in feeds}
        outputs = exe.run(
            main.clone(for_test=True), feed=dict(arrays), fetch_list=fetches
        )
        for i, output in enumerate(outputs):
            arrays[f"output_{i}"] = output
        np.savez(path + ".npz", **arrays)
        static.save_inference_model(path, feeds, fetches, exe)
        names = list(v.name for v in feeds)
        fluid.io.save_inference_model(path + "_each", names, fetches, exe, main)
        fluid.io.save_inference_model(
            path + "_combined", names, fetches, exe, main, "model", "params"
        )


def save_training(folder):
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    path = os.path.join(folder, "training")
    with (
        static.program_guard(main, startup),
        static.scope_guard(scope),
        paddle.utils.unique_name.guard(),
    ):
        x = static.data("x", [None, 6])
        y = static.data("y", [None, 1])
        cost = paddle.mean(F.square_error_cost(static.nn.fc(x, 1), y))
        paddle.optimizer.Adam(0.05).minimize(cost)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        feed = {"x": INPUTS["x"], "y": INPUTS["x"][:, :1]}
        for _ in range(3):
            exe.run(main, feed=feed, fetch_list=[cost])
        static.save(main, path)
        arrays = {
            v.name: np.array(scope.find_var(v.name).get_tensor())
            for v in main.list_vars()
            if v.persistable
        }
        np.savez(path + ".npz", **arrays)


def save_traced(folder):
    paddle.disable_static()
    net = nn.Sequential(
        nn.Conv2D(1, 6, 3, padding=1),
        nn.BatchNorm2D(6),
        nn.ReLU(),
        nn.MaxPool2D(2, 2),
        nn.Flatten(),
        nn.Linear(6 * 6 * 6, 4),
    )
    net(paddle.to_tensor(INPUTS["image"]))
    net.eval()
    path = os.path.join(folder, "traced")
    output = net(paddle.to_tensor(INPUTS["image"]))
    np.savez(path + ".npz", image=INPUTS["image"], output_0=output.numpy())
    spec = static.InputSpec([None, 1, 12, 12], "float32", "image")
    paddle.jit.save(net, path, input_spec=[spec])
    paddle.enable_static()


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    paddle.seed(5)
    paddle.enable_static()
    for name, model in MODELS.items():
        save_model(folder, name, model)
    save_training(folder)
    save_traced(folder)


if __name__ == "__main__":
    main()
