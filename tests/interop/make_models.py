# SPDX-License-Identifier: Apache-2.0
"""Small models as real Paddle saves them, with inputs and the outputs it computes.

    PEER_PYTHON tests/interop/make_models.py python/tests/data/saved_models

Run it with Paddle 2.6.2, which writes DIR/paddle_2_6, or with 1.8.5, which writes
DIR/paddle_1_8. Beside every model lies NAME.npz: inputs under their names, outputs as
`output_0`, `output_1`, ... in the order of the fetches.
"""

import os
import sys

import numpy as np
import paddle

NEW = not paddle.__version__.startswith("1.")

if NEW:
    import paddle.static as static
    import paddle.static.nn as layers
    from paddle.base.proto import framework_pb2

    paddle.enable_static()
else:
    import paddle.fluid as static
    import paddle.fluid.layers as layers
    from paddle.fluid.proto import framework_pb2


def draw(name, *shape):
    """Values in [-1, 1), the same on every machine."""
    seed = sum(name.encode()) % 1000
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32")


# -- what both versions spell alike


def fc(x, size, act=None):
    if NEW:
        return layers.fc(x, size, activation=act)
    return layers.fc(x, size, act=act)


def data(name, shape, dtype="float32"):
    return static.data(name, shape, dtype)


def mlp():
    x = data("x", [None, 6])
    hidden = fc(x, 16, act="relu")
    hidden = fc(hidden, 8, act="tanh")
    logits = fc(hidden, 3)
    softmax = paddle.nn.functional.softmax if NEW else layers.softmax
    return [x], [softmax(logits), logits]


def pool(x, kind):
    if NEW:
        function = getattr(paddle.nn.functional, kind + "_pool2d")
        return function(x, 2, stride=2)
    return layers.pool2d(x, 2, kind, 2)


def cnn():
    image = data("image", [None, 1, 12, 12])
    x = layers.conv2d(image, 8, 3, padding=1, bias_attr=False)
    x = pool(layers.batch_norm(x, act="relu"), "max")
    x = layers.conv2d(x, 8, 3, padding=1, groups=8, act="relu")
    x = layers.conv2d(x, 12, 3, stride=2, act=None)
    x = layers.batch_norm(x, act="sigmoid")
    x = pool(x, "avg")
    return [image], [fc(x, 4, act="softmax")]


def embedding_new():
    ids = data("ids", [None, 5], "int64")
    dense = data("dense", [None, 3])
    wide = static.nn.embedding(ids, size=[50, 1])
    deep = static.nn.embedding(ids, size=[50, 8], padding_idx=0)
    deep = paddle.reshape(deep, [-1, 40])
    deep = fc(paddle.concat([deep, dense], axis=1), 10, act="relu")
    total = fc(deep, 1) + paddle.sum(wide, axis=1)
    return [ids, dense], [paddle.nn.functional.sigmoid(total)]


def embedding_old():
    ids = data("ids", [None, 5], "int64")
    one = data("one", [None, 1], "int64")
    dense = data("dense", [None, 3])
    wide = static.embedding(ids, size=[50, 1])
    deep = static.embedding(ids, size=[50, 8], padding_idx=0)
    single = layers.embedding(one, size=[20, 4])
    deep = layers.reshape(deep, [-1, 40])
    deep = fc(layers.concat([deep, single, dense], axis=1), 10, act="relu")
    total = layers.elementwise_add(fc(deep, 1), layers.reduce_sum(wide, dim=1))
    return [ids, one, dense], [layers.sigmoid(total)]


def sequence():
    """Rows of several lengths: an embedding, pooled over each row."""
    words = static.data("words", [None, 1], "int64", lod_level=1)
    x = layers.embedding(words, size=[30, 6])
    x = layers.concat(
        [layers.sequence_pool(x, "sum"), layers.sequence_pool(x, "average")], axis=1
    )
    return [words], [fc(x, 2, act="softmax")]


INPUTS = {
    "x": draw("x", 5, 6),
    "image": draw("image", 3, 1, 12, 12),
    "ids": np.arange(20).reshape(4, 5) * 7 % 50,
    "one": np.array([[3], [0], [19], [7]]),
    "dense": draw("dense", 4, 3),
    "words": np.array([[3], [1], [29], [4], [0], [8], [8]]),
}
SEQUENCE_OFFSETS = [0, 2, 6, 7]


def give_values(scope, program):
    """Every persistable gets values of its own, running means and variances too."""
    for variable in program.list_vars():
        if not variable.persistable or variable.name in ("feed", "fetch"):
            continue
        tensor = scope.find_var(variable.name).get_tensor()
        values = draw(variable.name, *np.array(tensor).shape)
        if np.array(tensor).dtype != np.float32:
            continue
        if variable.name.split(".")[-1] in ("w_2",) or "variance" in variable.name:
            values = np.abs(values) + 0.5
        tensor.set(values, paddle.CPUPlace() if NEW else static.CPUPlace())


def place():
    return paddle.CPUPlace() if NEW else static.CPUPlace()


def build(model):
    """The model in programs and a scope of its own, ready to run."""
    unique = paddle.utils.unique_name if NEW else static.unique_name
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), unique.guard():
        feeds, fetches = model()
    exe = static.Executor(place())
    with static.scope_guard(scope):
        exe.run(startup)
        give_values(scope, main)
    return main, scope, exe, feeds, fetches


def keep_values(path, main, scope, exe, feeds, fetches):
    arrays = {variable.name: INPUTS[variable.name] for variable in feeds}
    given = dict(arrays)
    if "words" in given:
        tensor = static.create_lod_tensor(arrays["words"], [[2, 4, 1]], place())
        given["words"] = tensor
        arrays["words.lod"] = np.array(SEQUENCE_OFFSETS)
    with static.scope_guard(scope):
        outputs = exe.run(main.clone(for_test=True), feed=given, fetch_list=fetches)
    for i, output in enumerate(outputs):
        arrays["output_%d" % i] = np.asarray(output)
    np.savez_compressed(path + ".npz", **arrays)


def save_new(folder):
    models = {"mlp": mlp, "cnn": cnn, "embedding": embedding_new}
    for name, model in models.items():
        main, scope, exe, feeds, fetches = build(model)
        path = os.path.join(folder, name)
        keep_values(path, main, scope, exe, feeds, fetches)
        with static.scope_guard(scope):
            static.save_inference_model(path, feeds, fetches, exe, program=main)
    save_traced(folder)
    save_training(folder)


def save_traced(folder):
    """A layer by paddle.jit.save."""
    paddle.disable_static()

    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.conv = paddle.nn.Conv2D(1, 6, 3, padding=1)
            self.norm = paddle.nn.BatchNorm2D(6)
            self.pool = paddle.nn.MaxPool2D(2, 2)
            self.fc = paddle.nn.Linear(6 * 6 * 6, 4)

        def forward(self, image):
            x = self.pool(paddle.nn.functional.relu(self.norm(self.conv(image))))
            return self.fc(paddle.flatten(x, 1))

    net = Net()
    for name, value in net.state_dict().items():
        values = draw(name, *value.shape)
        value.set_value(np.abs(values) + 0.5 if "variance" in name else values)
    net.eval()
    path = os.path.join(folder, "traced")
    output = net(paddle.to_tensor(INPUTS["image"]))
    np.savez_compressed(path + ".npz", image=INPUTS["image"], output_0=output.numpy())
    spec = paddle.static.InputSpec([None, 1, 12, 12], "float32", "image")
    paddle.jit.save(net, path, input_spec=[spec])
    paddle.enable_static()


def save_training(folder):
    """A program with its optimizer, by static.save; `after` is a parameter two steps
    later, from where the optimizer's state counts."""
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = data("x", [None, 6])
        y = data("y", [None, 1])
        loss = paddle.mean(paddle.nn.functional.square_error_cost(fc(x, 1), y))
        paddle.optimizer.Adam(0.05).minimize(loss)
    exe = static.Executor(place())
    feed = {"x": INPUTS["x"], "y": draw("y", 5, 1)}
    path = os.path.join(folder, "training")
    with static.scope_guard(scope):
        exe.run(startup)
        for _ in range(3):
            exe.run(main, feed=feed, fetch_list=[loss])
        static.save(main, path)
        losses = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
        after = np.array(scope.find_var("fc_0.w_0").get_tensor())
    np.savez_compressed(path + ".npz", losses=losses, after=after, **feed)


def save_old(folder):
    models = {
        "mlp": mlp,
        "cnn": cnn,
        "embedding": embedding_old,
        "sequence": sequence,
    }
    for name, model in models.items():
        main, scope, exe, feeds, fetches = build(model)
        path = os.path.join(folder, name)
        keep_values(path, main, scope, exe, feeds, fetches)
        names = [variable.name for variable in feeds]
        with static.scope_guard(scope):
            static.io.save_inference_model(path, names, fetches, exe, main)
            static.io.save_inference_model(
                path + "_combined",
                names,
                fetches,
                exe,
                main,
                model_filename="model",
                params_filename="params",
            )


def drop_call_stacks(path):
    """Takes out where the ops were made: paths of the machine that ran this."""
    with open(path, "rb") as file:
        program = framework_pb2.ProgramDesc.FromString(file.read())
    for block in program.blocks:
        for op in block.ops:
            kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
            del op.attrs[:]
            op.attrs.extend(kept)
    with open(path, "wb") as file:
        file.write(program.SerializeToString())


def main():
    folder = os.path.join(sys.argv[1], "paddle_2_6" if NEW else "paddle_1_8")
    os.makedirs(folder, exist_ok=True)
    if NEW:
        save_new(folder)
    else:
        save_old(folder)
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".pdmodel") or name in ("__model__", "model"):
                drop_call_stacks(os.path.join(path, name))


if __name__ == "__main__":
    main()
