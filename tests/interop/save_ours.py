# SPDX-License-Identifier: Apache-2.0
"""Models as this package saves them, for real Paddle to load.

    PYTHON tests/interop/save_ours.py DIR

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
from paddle.vision.ops import prior_box

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


def _deformed(x, masked):
    offset = static.nn.conv2d(x, 18, 3, padding=1)
    mask = F.sigmoid(static.nn.conv2d(x, 9, 3, padding=1)) if masked else None
    return static.nn.deform_conv2d(x, offset, mask, 4, 3, padding=1)


def _tagged(x):
    """Two sequences of up to two rows with six tags: their cost, and their best tags."""
    rows, lengths = paddle.reshape(x, [2, 2, 6]), paddle.to_tensor([2, 1])
    attr = paddle.ParamAttr(name="crfw")
    label = paddle.to_tensor([[1, 5], [0, 2]])
    cost = fluid.layers.linear_chain_crf(rows, label, attr, lengths)
    return cost, static.nn.crf_decoding(rows, attr, length=lengths)


# Functions of one or two float inputs, each a model of its own; what they save is for
# Paddle 2.6.
def _functions():
    image = {
        "conv2d_transpose": lambda x: nn.Conv2DTranspose(3, 4, 3, stride=2)(x),
        "conv2d_same": lambda x: nn.Conv2D(3, 4, 3, padding="SAME", stride=2)(x),
        "group_norm": lambda x: nn.GroupNorm(3, 3)(x),
        "instance_norm": lambda x: nn.InstanceNorm2D(3)(x),
        "batch_norm": lambda x: nn.BatchNorm2D(3)(x),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, [None, 3]),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, padding=1, exclusive=False),
        "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, padding=1, ceil_mode=True),
        "nearest": lambda x: F.interpolate(x, [12, 14], mode="nearest"),
        "bilinear": lambda x: F.interpolate(x, [12, 14], mode="bilinear"),
        "bicubic": lambda x: F.interpolate(x, [12, 14], mode="bicubic"),
        "pad": lambda x: F.pad(x, [1, 2, 0, 1]),
        "pixel_shuffle": lambda x: F.pixel_shuffle(paddle.tile(x, [1, 4, 1, 1]), 2),
        "prelu": lambda x: nn.PReLU(3)(x),
        "unfold": lambda x: F.unfold(x, 3, paddings=[1, 2]),
        "unfold_uneven": lambda x: F.unfold(x, 3, paddings=[1, 2, 3, 0]),
        "deform_conv2d": lambda x: _deformed(x, True),
        "deform_conv2d_v1": lambda x: _deformed(x, False),
        "prior_box": lambda x: prior_box(x, x, [2.0], [5.0], [2.0], flip=True)[0],
        "density_prior_box": lambda x: fluid.layers.density_prior_box(
            F.max_pool2d(x, 4), x, [2, 1], [3.0, 5.0], [1.0, 2.0]
        )[0],
        "multi_box_head": lambda x: static.nn.multi_box_head(
            [x], x, 8, 3, [[2.0]], min_sizes=[2.0], max_sizes=[4.0]
        )[1],
    }
    plain = {
        "abs": paddle.abs,
        "argsort": lambda x: paddle.argsort(x, axis=1),
        "atan2": lambda x: paddle.atan2(x, x + 2),
        "cast": lambda x: paddle.cast(x, "float64"),
        "clip": lambda x: paddle.clip(x, -0.5, 0.5),
        "cumsum": lambda x: paddle.cumsum(x, axis=1),
        "elu": F.elu,
        "exp": paddle.exp,
        "expand": lambda x: paddle.expand(paddle.unsqueeze(x, 1), [4, 2, 6]),
        "flip": lambda x: paddle.flip(x, [1]),
        "gather": lambda x: paddle.gather(x, paddle.to_tensor([2, 0])),
        "greater_than": lambda x: paddle.cast(x > 0, "float32"),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "l1_loss": lambda x: F.l1_loss(x, x * 2),
        "label_smooth": lambda x: F.label_smooth(x),
        "log_softmax": lambda x: F.log_softmax(x, axis=0),
        "logsumexp": lambda x: paddle.logsumexp(x, axis=1),
        "matmul": lambda x: paddle.matmul(x, x, transpose_y=True),
        "maximum": lambda x: paddle.maximum(x, x * x),
        "mean": lambda x: paddle.mean(x, axis=[0, 1], keepdim=True),
        "mse_loss": lambda x: F.mse_loss(x, x * 2, reduction="sum"),
        "norm": lambda x: paddle.norm(x, p=2, axis=1),
        "normalize": lambda x: F.normalize(x, axis=1),
        "pow": lambda x: paddle.pow(x, 3.0),
        "prod": lambda x: paddle.prod(x, axis=1),
        "roll": lambda x: paddle.roll(x, 2, axis=1),
        "rsqrt": lambda x: paddle.rsqrt(x * x + 1),
        "scale": lambda x: paddle.scale(x, 2.0, bias=1.0, bias_after_scale=False),
        "slice": lambda x: x[1:3, ::2],
        "softplus": F.softplus,
        "softshrink": F.softshrink,
        "split": lambda x: paddle.split(x, 2, axis=1)[1],
        "square_error_cost": lambda x: F.square_error_cost(x, x * 2),
        "squeeze": lambda x: paddle.squeeze(paddle.unsqueeze(x, [0, 2]), [2]),
        "stack": lambda x: paddle.stack([x, x + 1], axis=1),
        "strided_slice": lambda x: paddle.strided_slice(x, [1], [5], [0], [-2]),
        "swish": F.swish,
        "tanhshrink": F.tanhshrink,
        "tile": lambda x: paddle.tile(x, [2, 3]),
        "topk": lambda x: paddle.topk(x, 3)[1],
        "transpose": lambda x: paddle.transpose(x, [1, 0]),
        "tril": paddle.tril,
        "unstack": lambda x: paddle.unstack(x, axis=1)[2],
        "where": lambda x: paddle.where(x > 0, x, x * 0.1),
        "one_hot": lambda x: F.one_hot(paddle.argmax(x, axis=1), 6),
        "add_n": lambda x: paddle.add_n([x, x * 2, x * 3]),
        "full_like": lambda x: x + paddle.full_like(x, 2.5),
        "linear": lambda x: nn.Linear(6, 3)(x),
        "bilinear_layer": lambda x: F.linear(x, paddle.ones([6, 2])),
        "linear_chain_crf": lambda x: _tagged(x)[0],
        "crf_decoding": lambda x: _tagged(x)[1],
    }
    for name, function in image.items():
        yield name, "picture", [None, 3, 8, 8], function
    for name, function in plain.items():
        yield name, "matrix", [4, 6], function


INPUTS["picture"] = RANDOM.uniform(-1, 1, (2, 3, 8, 8)).astype("float32")
INPUTS["matrix"] = RANDOM.uniform(-1, 1, (4, 6)).astype("float32")


def save_functions(folder):
    """Saves each function as a model; where one cannot be built here, prints why."""
    os.makedirs(folder, exist_ok=True)
    for name, feed, shape, function in _functions():

        def model(feed=feed, shape=shape, function=function):
            x = static.data(feed, shape)
            return [x], [function(x)]

        try:
            save_model(folder, name, model, folders=False)
        except Exception as error:
            print(f"FAIL {name}: {type(error).__name__}: {error}")


def move_statistics(scope, program):
    """Running means and variances that are not those of the beginning."""
    for variable in program.list_vars():
        if variable.persistable and not variable.trainable:
            tensor = scope.find_var(variable.name).get_tensor()
            values = np.array(tensor)
            values = values + RANDOM.uniform(0.1, 0.5, values.shape)
            tensor.set(values.astype("float32"))


def save_model(folder, name, model, folders=True):
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
        if not folders:
            return
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
    save_functions(os.path.join(folder, "functions"))


if __name__ == "__main__":
    main()
