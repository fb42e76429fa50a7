# SPDX-License-Identifier: Apache-2.0
"""Programs that are built here and in fleet/plan/programs_test.cc, and have the same text
in both. The text is recorded in data/programs; `python built_programs.py` writes it anew.
"""

import pathlib

import paddle
from paddle import static
from paddle.nn import initializer
from paddle.regularizer import L1Decay, L2Decay

F = paddle.nn.functional
RECORDED = pathlib.Path(__file__).parent / "data" / "programs"


def classifier():
    """The network of README."""
    x = static.data("x", [None, 32])
    label = static.data("label", [None, 1], "int64")
    hidden = static.nn.fc(x, 128, activation="tanh")
    logits = static.nn.fc(hidden, 2)
    loss = F.cross_entropy(logits, label)
    paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)


def several_inputs():
    """fc of several inputs, one of which is flattened; leading dimensions stay."""
    x = static.data("x", [None, 2, 4])
    y = static.data("y", [None, 8])
    out = static.nn.fc([x, y], 5, activation="tanh")
    kept = static.nn.fc(x, 5, num_flatten_dims=2, bias_attr=False)
    loss = paddle.mean(out) + paddle.mean(kept) * 0.5
    paddle.optimizer.Momentum(0.01, 0.8, use_nesterov=True).minimize(loss)


def images():
    """Convolutions and batch norm, with decay and a clip over all gradients."""
    image = static.data("image", [None, 3, 16, 16])
    label = static.data("label", [None, 1], "int64")
    x = static.nn.conv2d(image, 8, 3, padding=1, bias_attr=False)
    x = static.nn.batch_norm(x, act="relu")
    x = F.max_pool2d(x, 2, 2)
    x = static.nn.conv2d(x, 16, [3, 2], 2, groups=2, act="sigmoid")
    x = static.nn.batch_norm(x, momentum=0.8, moving_mean_name="running_mean")
    logits = static.nn.fc(x, 10)
    loss = paddle.mean(F.softmax_with_cross_entropy(logits, label))
    paddle.optimizer.Momentum(
        0.1,
        weight_decay=L2Decay(1e-4),
        grad_clip=paddle.nn.ClipGradByGlobalNorm(2.0),
    ).minimize(loss)


def clicks():
    """A model of clicks: rows of two tables, one of them for servers."""
    ids = static.data("ids", [None, 26], "int64")
    user = static.data("user", [None, 1], "int64")
    dense = static.data("dense", [None, 13])
    label = static.data("label", [None, 1])
    rows = static.nn.sparse_embedding(ids, [1000, 8])
    rows = paddle.reshape(rows, [-1, 208])
    mine = static.nn.embedding(user, [50, 4], is_sparse=True, padding_idx=-1)
    mine = paddle.reshape(mine, [-1, 4])
    x = paddle.concat([rows, mine, dense], axis=1)
    start = paddle.ParamAttr(initializer=initializer.TruncatedNormal(std=0.1))
    x = static.nn.fc(x, 16, activation="relu", weight_attr=start)
    x = static.nn.fc(x, 1)
    loss = paddle.mean(F.binary_cross_entropy_with_logits(x, label, reduction="none"))
    paddle.optimizer.Adam(0.001, lazy_mode=True).minimize(loss)


def norms():
    """Every norm that makes its parameters."""
    x = static.data("x", [None, 4, 6, 6])
    x = static.nn.group_norm(x, 2)
    x = static.nn.instance_norm(x)
    x = static.nn.layer_norm(x, begin_norm_axis=2, act="relu")
    x = static.nn.layer_norm(x, scale=False, shift=False)
    x = static.nn.conv2d(
        x, 2, 3, padding="SAME", param_attr=initializer.KaimingNormal()
    )
    loss = paddle.mean(paddle.square(x))
    paddle.optimizer.RMSProp(0.01, momentum=0.5, centered=True).minimize(loss)


def own_attributes():
    """Parameters with names, rates, decays, clips and first values of their own."""
    x = static.data("x", [None, 8])
    first = paddle.ParamAttr(
        name="first",
        learning_rate=0.5,
        regularizer=L1Decay(0.01),
        initializer=initializer.Uniform(-0.5, 0.5),
    )
    second = paddle.ParamAttr(need_clip=False, initializer=initializer.XavierNormal())
    frozen = paddle.ParamAttr(trainable=False, initializer=initializer.Constant(0.5))
    x = static.nn.fc(x, 8, weight_attr=first, bias_attr=frozen, activation="relu")
    x = static.nn.fc(x, 8, weight_attr=second, name="middle")
    values = initializer.Assign([[0.1 * i] for i in range(8)])
    x = static.nn.fc(x, 1, weight_attr=paddle.ParamAttr(initializer=values))
    loss = paddle.mean(x)
    paddle.optimizer.Adagrad(
        0.1,
        weight_decay=0.001,
        grad_clip=paddle.nn.ClipGradByNorm(0.5),
        initial_accumulator_value=0.1,
    ).minimize(loss)


def kept_between():
    """Backward that computes values again between checkpoints."""
    x = static.data("x", [None, 8])
    checkpoints = []
    for _ in range(3):
        x = static.nn.fc(x, 8, activation="tanh")
        checkpoints.append(x)
        x = F.relu(static.nn.fc(x, 8))
    loss = paddle.mean(x)
    optimizer = paddle.fluid.optimizer.RecomputeOptimizer(
        paddle.optimizer.AdamW(0.001, weight_decay=0.01)
    )
    optimizer._set_checkpoints(checkpoints)
    optimizer.minimize(loss)


def every_rule():
    """One layer for each update rule."""
    static.default_startup_program().random_seed = 7
    rules = [
        paddle.optimizer.Adam(0.1),
        paddle.optimizer.Adamax(0.1),
        paddle.optimizer.Adadelta(0.1, epsilon=1e-5, rho=0.9),
        paddle.optimizer.Lamb(0.1, lamb_weight_decay=0.02),
        paddle.optimizer.Lars(0.1, exclude_from_weight_decay=["b_0"]),
        paddle.optimizer.Ftrl(0.1, l1=0.01),
        paddle.optimizer.AdamW(
            0.1, apply_decay_param_fun=lambda name: "w_0" in name, lazy_mode=True
        ),
        paddle.optimizer.Momentum(0.1, rescale_grad=0.5, weight_decay=L1Decay(0.1)),
        paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByValue(0.5, -1.0)),
    ]
    x = static.data("x", [None, 4])
    for _ in rules:
        x = static.nn.fc(x, 4)
    pairs = static.append_backward(paddle.mean(x))
    for i, rule in enumerate(rules):
        rule.apply_gradients(pairs[2 * i : 2 * i + 2])


def branches():
    """cond, case and switch_case, nested, and differentiated."""
    x = static.data("x", [None, 4])
    flag = static.data("flag", [1], "bool")
    number = static.data("number", [1], "int64")
    h = static.nn.fc(x, 4)
    a, b = static.nn.cond(flag, lambda: (h * 2.0, F.relu(h)), lambda: (h + 1.0, x))

    def count():
        paddle.increment(number)

    static.nn.cond(flag, count)
    c = static.nn.case(
        [(flag, lambda: paddle.tanh(a)), (paddle.equal(number, number), lambda: b)],
        default=lambda: static.nn.cond(flag, lambda: a, lambda: -b),
    )
    d = static.nn.switch_case(
        number, [(3, lambda: c), (1, lambda: c * 0.5)], default=lambda: c - b
    )
    paddle.optimizer.SGD(0.1).minimize(paddle.mean(d))


def loops():
    """A loop that swaps two of the values that it carries, and one inside of it."""
    x = static.data("x", [2, 4])
    w = static.nn.fc(x, 4)
    i = paddle.full([1], 0, "int64")
    n = paddle.full([1], 3, "int64")

    def inner(i, a, b):
        j = paddle.full([1], 0, "int64")
        j, c = static.nn.while_loop(
            lambda j, c: paddle.less_than(j, i),
            lambda j, c: [j + 1, c * 0.5],
            [j, paddle.tanh(a)],
        )
        return [i + 1, b, c]

    i, a, b = static.nn.while_loop(
        lambda i, a, b: paddle.less_than(i, n), inner, [i, w, x]
    )
    paddle.optimizer.Momentum(0.1).minimize(paddle.mean(a) + paddle.mean(b))


def indices():
    """Ranges, numbers, lists, masks and variables as indices."""
    x = static.data("x", [4, 6, 3])
    i = static.data("i", [1], "int64")
    ids = static.data("ids", [None], "int64")
    mask = static.data("mask", [4], "bool")
    x[1:3]
    x[..., -1]
    x[0, :, None, ::2]
    x[::-1]
    x[i]
    x[1:i, 2]
    x[ids]
    x[:, ids, 0]
    x[[0, 2], [1, 1]]
    x[mask]
    x[x > 0.0]
    y = paddle.tanh(x)
    y[1, 2:4] = x[1, 0:2]
    y[x > 0.5] = 1.0 * x


def short_and_merged():
    """Mixed precision, gradient merge and recompute, one around the other."""
    image = static.data("image", [None, 3, 8, 8])
    label = static.data("label", [None, 1], "int64")
    x = static.nn.conv2d(image, 4, 3, act="relu")
    x = static.nn.fc(x, 8, activation="tanh")
    logits = static.nn.fc(x, 2)
    loss = F.cross_entropy(logits, label)
    optimizer = paddle.fluid.optimizer.RecomputeOptimizer(paddle.optimizer.Adam(0.01))
    optimizer._set_checkpoints([x])
    optimizer = paddle.fluid.optimizer.GradientMergeOptimizer(optimizer, 4)
    lists = static.amp.AutoMixedPrecisionLists(custom_black_list=["tanh"])
    static.amp.decorate(optimizer, lists, init_loss_scaling=1024.0).minimize(loss)


PROGRAMS = {
    built.__name__: built
    for built in (
        classifier,
        several_inputs,
        images,
        clicks,
        norms,
        own_attributes,
        kept_between,
        every_rule,
        branches,
        loops,
        indices,
        short_and_merged,
    )
}


def text_of(build):
    """What `build` adds to new programs, as text: the main program, then startup."""
    main, startup = static.Program(), static.Program()
    paddle.enable_static()
    try:
        with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
            build()
    finally:
        paddle.disable_static()
    return f"{main}{startup}"


def write():
    RECORDED.mkdir(exist_ok=True)
    for name, build in PROGRAMS.items():
        (RECORDED / f"{name}.txt").write_text(text_of(build), encoding="utf8")


if __name__ == "__main__":
    write()
