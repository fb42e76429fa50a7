# SPDX-License-Identifier: Apache-2.0
"""Lines as users write them: operators, slices, layers, branches and loops, tables of
rows; each stands for several ops."""

from recipes import face
from recipes_math import broadcasting
from recipes_rows import table
from value import Reject, varied

_FUNCTIONS = (
    "F.relu({x})",
    "F.gelu({x})",
    "paddle.tanh({x})",
    "F.leaky_relu({x}, 0.1)",
    "F.softmax({x})",
    "F.sigmoid({x})",
    "{x} * 0.5 + 0.1",
    "{x} * {x}",
    "1.0 - {x}",
    "-{x}",
    "{x} / 3.0",
    "paddle.clip({x}, -1.0, 1.0)",
    "{x} + {x} * 0.1",
    "paddle.exp({x} * 0.1)",
    "paddle.square({x})",
    "{x}.detach()",
)


@face
def function(d):
    x = d.floats(rank=(1, 2, 3, 4))
    d.line(d.one_of(*_FUNCTIONS).format(x=x.name))


@face
def operator(d):
    x = d.floats()
    y = broadcasting(d, x)
    sign = d.one_of("+", "-", "*", "+", "*")
    d.line(f"{x.name} {sign} {y.name}")


@face
def chain(d):
    """Several elementwise operations that a plan makes one."""
    x = d.floats(rank=(1, 2, 3))
    for _ in range(d.one_of(2, 3, 4)):
        if d.chance(0.7):
            x = d.line(d.one_of(*_FUNCTIONS[:-1]).format(x=x.name))
        else:
            x = d.line(f"{x.name} {d.one_of('+', '-', '*')} {broadcasting(d, x).name}")


@face
def part(d):
    x = d.floats(rank=(2, 3), where=lambda v: v.size > 0)
    size = x.shape[1]
    start = d.rng.randrange(size)
    text = d.one_of(
        f"{x.name}[:, {start}]",
        f"{x.name}[:, {start}:]",
        f"{x.name}[:, ::-1]",
        f"{x.name}[:, {start}:{start + 1}]",
        f"{x.name}[..., 0]",
    )
    d.line(text)


@face
def matrix(d):
    x = d.floats(rank=2, where=lambda v: v.size > 0)
    width = d.one_of(1, 2, 3, 5)
    y = d.weight((x.shape[1], width))
    product = d.line(f"paddle.matmul({x.name}, {y.name})")
    if d.chance(0.6):
        d.line(f"{product.name} + {d.weight((width,)).name}")


@face
def frozen(d):
    """A parameter that no optimizer changes."""
    x = d.floats(rank=(1, 2, 3))
    weight = d.parameter(x.shape[-1:], trained=False)
    d.line(f"{x.name} * {weight.name}")


@face
def residual(d):
    """A value that several lines read and one adds up again."""
    x = d.floats(rank=(1, 2, 3))
    one, two = (f.format(x=x.name) for f in d.rng.sample(_FUNCTIONS[:-1], 2))
    y = d.line(one)
    z = d.line(two)
    d.line(f"{x.name} + {y.name} * {z.name}")


@face
def joined(d):
    x = d.floats(rank=2)
    y = d.floats(rank=2, where=lambda v: v.shape[0] == x.shape[0])
    both = d.line(f"paddle.concat([{x.name}, {y.name}], 1)")
    if both.shape[1] >= 2 and d.chance(0.5):
        cut = d.rng.randrange(1, both.shape[1])
        d.line(f"paddle.split({both.name}, [{cut}, {both.shape[1] - cut}], 1)", 2)


@face
def click_model(d):
    """Rows of several tables next to each other."""
    count = d.one_of(1, 2, 3)
    ids = d.feed((d.batch, count), "ids", 5, "int64")
    width = d.one_of(1, 2, 4)
    shared = d.chance(0.2) and table(d, 5, width)
    parts = []
    for i in range(count):
        sparse = d.chance(0.8)
        if not shared and d.chance(0.5):
            layer = d.layer(f"nn.Embedding(5, {width}, sparse={sparse})")
            parts.append(d.line(f"{layer}({ids.name}[:, {i}])"))
            continue
        weight = shared or d.parameter((5, width))
        parts.append(
            d.line(f"F.embedding({ids.name}[:, {i}], {weight.name}, sparse={sparse})")
        )
    names = ", ".join(p.name for p in parts)
    way = d.one_of(
        "paddle.concat([{}], 1)", "paddle.stack([{}], 1)", "paddle.add_n([{}])"
    )
    d.line(way.format(names))


@face
def rows_of_a_table(d):
    weight = table(d)
    ids = d.integers((d.batch, d.one_of(1, 2, 3)), weight.shape[0])
    rows = d.line(f"F.embedding({ids.name}, {weight.name}, sparse={d.chance(0.7)})")
    way = d.one_of(
        "paddle.sum({}, 1)",
        "paddle.flatten({}, 1)",
        "{}[:, 0]",
        "paddle.split({}, 1, 1)[0]",
        "paddle.transpose({}, [0, 2, 1])",
        "paddle.unsqueeze({}, 1)",
    )
    d.line(way.format(rows.name))


# ---- layers


@face
def linear_layers(d):
    x = d.floats(rank=2, where=lambda v: v.size > 0)
    layer = d.layer(f"nn.Linear({x.shape[1]}, {d.one_of(1, 3, 4)})")
    hidden = d.line(f"{layer}({x.name})")
    if d.chance(0.5):
        hidden = d.line(d.one_of(*_FUNCTIONS[:5]).format(x=hidden.name))
    if d.chance(0.5):
        layer = d.layer(f"nn.Linear({hidden.shape[1]}, 2, bias_attr=False)")
        d.line(f"{layer}({hidden.name})")


@face
def conv_layers(d):
    size = d.one_of(2, 3, 5)
    x = (
        d.rows(
            rank=4, where=lambda v: min(v.shape[2:]) >= 2 and v.shape[2] == v.shape[3]
        )
        if d.chance(0.3)
        else d.feed((d.batch, d.one_of(1, 2), size, size))
    )
    size = x.shape[2]
    kernel = d.one_of(1, min(3, size), size)
    layer = d.layer(
        f"nn.Conv2D({x.shape[1]}, {d.one_of(1, 2, 4)}, {kernel}, "
        f"padding={d.one_of(0, 1)}, stride={d.one_of(1, 1, 2)})"
    )
    y = d.line(f"{layer}({x.name})")
    if d.chance(0.4):
        varied(y, (0, 2, 3))
        layer = d.layer(f"nn.BatchNorm2D({y.shape[1]})")
        y = d.line(f"{layer}({y.name})")
    y = d.line(d.one_of("F.relu({})", "paddle.tanh({})").format(y.name))
    if min(y.shape[2:]) >= 2 and d.chance(0.6):
        y = d.line(
            d.one_of("F.max_pool2d({}, 2)", "F.avg_pool2d({}, 2)").format(y.name)
        )
    d.line(f"paddle.flatten({y.name}, 1)")


@face
def norm_layer(d):
    x = d.floats(rank=(2, 3), where=lambda v: v.size > 0 and v.shape[-1] > 1)
    varied(x, [x.rank - 1])
    d.line(f"{d.layer(f'nn.LayerNorm({x.shape[-1]})')}({x.name})")


@face
def recurrent_layer(d):
    x = d.rows(rank=3, where=lambda v: v.size > 0)
    kind = d.one_of("LSTM", "GRU", "SimpleRNN")
    way = d.one_of("forward", "bidirect")
    layer = d.layer(f"nn.{kind}({x.shape[2]}, {d.one_of(1, 3)}, direction={way!r})")
    d.line(f"{layer}({x.name})[0]")


@face
def attention_layer(d):
    x = d.feed((d.batch, d.one_of(1, 2, 3), 4))
    layer = d.layer(
        d.one_of(
            "nn.MultiHeadAttention(4, 2)",
            "nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0)",
        )
    )
    d.line(f"{layer}({x.name})")


@face
def dropout_layer(d):
    x = d.floats()
    d.line(f"F.dropout({x.name}, {d.one_of(0.2, 0.5)})", random=True)


# ---- losses


@face
def classifier(d):
    x = d.rows(rank=2, where=lambda v: v.shape[1] > 1)
    label = d.feed((d.batch, 1), "ids", x.shape[1], "int64")
    if d.chance(0.3):
        d.line(f"F.cross_entropy({x.name}, {label.name}, reduction='none')")
    else:
        d.term(f"F.cross_entropy({x.name}, {label.name})")


@face
def regression(d):
    x = d.rows(rank=2, where=lambda v: v.size > 0)
    label = d.feed(x.shape)
    way = d.one_of(
        "F.mse_loss({}, {})",
        "F.smooth_l1_loss({}, {})",
        "paddle.mean(F.square_error_cost({}, {}))",
        "F.binary_cross_entropy_with_logits({}, F.sigmoid({}))",
    )
    d.term(way.format(x.name, label.name))


# ---- branches and loops


def _condition(d):
    # A computed value might be on the other side of the number by a rounding error.
    x = d.floats(where=lambda v: v.size > 0 and v.name[0] in "wx")
    return f"paddle.mean({x.name}) > {d.number_in(-0.3, 0.3)}"


def always_used(d, weight):
    """What no branch reads has no gradient eagerly, and one of zeros in a program, which
    optimizers take as a step."""
    if weight.name[0] == "w":
        d.term(f"paddle.sum({weight.name}) * 0.1")


@face
def branch(d):
    if d.split:
        raise Reject
    x = d.floats(rank=(1, 2, 3))
    other = d.weight(x.shape[-1:])
    one, two = d.rng.sample(_FUNCTIONS[:-1], 2)
    one, two = one.format(x=x.name), two.format(x=x.name)
    if d.chance(0.5):
        one = f"{x.name} * {other.name}"
        always_used(d, other)
    d.line(f"static.nn.cond({_condition(d)}, lambda: {one}, lambda: {two})")


@face
def choice(d):
    if d.split:
        raise Reject
    x = d.floats(rank=(1, 2))
    one, two, three = (f.format(x=x.name) for f in d.rng.sample(_FUNCTIONS[:-1], 3))
    if d.chance(0.5):
        d.line(
            f"static.nn.case([({_condition(d)}, lambda: {one}), "
            f"({_condition(d)}, lambda: {two})], lambda: {three})"
        )
    else:
        index = d.feed((1,), "ids", 3, "int64", rows=False)
        d.line(
            f"static.nn.switch_case({index.name}, [lambda: {one}, lambda: {two}, "
            f"lambda: {three}])"
        )


@face
def loop(d):
    x = d.floats(rank=(1, 2))
    weight = d.weight(x.shape[-1:])
    turns = d.one_of(0, 1, 2, 3)
    always_used(d, weight)
    step = d.one_of(
        "paddle.tanh(y * {w}) + 0.1", "y * 0.5 + {w}", "F.sigmoid(y) - {w} * y"
    ).format(w=weight.name)
    counter = d.line("paddle.zeros([1], 'int64')")
    d.line(
        f"static.nn.while_loop(lambda i, y: i < {turns}, "
        f"lambda i, y: [i + 1, {step}], [{counter.name}, {x.name}])[1]"
    )


@face
def nested(d):
    """A branch inside of a loop."""
    if d.split:
        raise Reject
    x = d.floats(rank=(1, 2))
    counter = d.line("paddle.zeros([1], 'int64')")
    d.line(
        f"static.nn.while_loop(lambda i, y: i < {d.one_of(1, 3)}, lambda i, y: [i + 1, "
        "static.nn.cond(paddle.mean(y) > 0.05, lambda: y * 0.5, "
        f"lambda: paddle.tanh(y) + 0.2)], [{counter.name}, {x.name}])[1]"
    )
