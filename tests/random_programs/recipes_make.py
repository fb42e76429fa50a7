# SPDX-License-Identifier: Apache-2.0
"""Ops that make values from nothing: constants and random numbers."""

from recipes import recipe
from value import Text

DTYPE = Text("DTYPE")


def _shape(d):
    return list(d.sizes(d.one_of(1, 2, 3)))


def trained(d, value):
    """What is made counts only together with something that is trained."""
    if value.floating and d.chance(0.7):
        d.line(f"{value.name} * {d.weight((1,)).name}")


@recipe("fill_constant")
def fill_constant(d, op):
    shape = _shape(d)
    if d.chance(0.3):
        made = d.call(
            op, d.constant(shape), None, value=d.number_in(-1, 1), dtype=DTYPE
        )
    else:
        made = d.call(op, shape=shape, value=d.number_in(-1, 1), dtype=DTYPE)
    trained(d, made)


@recipe("fill_any_like")
def fill_any_like(d, op):
    dtype = Text(d.one_of("DTYPE", "I64"))
    d.call(op, d.floats(), value=float(d.one_of(-1, 0, 2)), dtype=dtype)


@recipe("empty", "empty_like")
def empty(d, op):
    # What it holds is not said; only its shape is used.
    made = "ops.empty(shape=[2, 3], dtype=DTYPE)"
    if op == "empty_like":
        made = f"ops.empty_like({d.floats().name}, dtype=DTYPE)"
    trained(d, d.line(f"ops.fill_any_like({made}, value={d.number_in(-1, 1)})"))


@recipe(
    "fill_constant_batch_size_like",
    "uniform_random_batch_size_like",
    "gaussian_random_batch_size_like",
)
def batch_size_like(d, op):
    x = d.rows()
    shape = [-1, *d.sizes(1)]
    if op.startswith("fill"):
        trained(d, d.call(op, x, shape=shape, value=0.7, dtype=DTYPE))
        return
    value = d.line(f"ops.{op}({x.name}, shape={shape}, dtype=DTYPE, seed=3)", 1, True)
    trained(d, value)


@recipe("assign_value")
def assign_value(d, op):
    numbers = [d.number_in(-1, 1) for _ in range(3)]
    trained(d, d.call(op, shape=[3], dtype=DTYPE, values=numbers))


@recipe("range")
def range_(d, op):
    dtype = Text(d.one_of("DTYPE", "I64", "I32"))
    trained(d, d.call(op, start=0.0, end=float(d.one_of(1, 3, 5)), dtype=dtype))


@recipe("linspace")
def linspace(d, op):
    trained(d, d.call(op, start=-1.0, stop=1.0, num=d.one_of(1, 2, 5), dtype=DTYPE))


@recipe("eye")
def eye(d, op):
    columns = d.one_of(-1, 1, 4)
    trained(d, d.call(op, num_rows=d.one_of(1, 2, 3), num_columns=columns, dtype=DTYPE))


@recipe("gaussian_random", "uniform_random", "truncated_gaussian_random")
def random_floats(d, op):
    seed = d.one_of(0, 5)
    text = f"ops.{op}(shape={_shape(d)}, seed={seed}, dtype=DTYPE)"
    trained(d, d.line(text, random=True))


@recipe("randint")
def randint(d, op):
    d.line(
        f"ops.randint(shape={_shape(d)}, high=9, seed={d.one_of(0, 5)})", random=True
    )


@recipe("randperm")
def randperm(d, op):
    d.line(f"ops.randperm(n={d.one_of(1, 5)}, seed={d.one_of(0, 5)})", random=True)


@recipe("bernoulli")
def bernoulli(d, op):
    chance = d.probability(d.floats())
    trained(d, d.line(f"ops.bernoulli({chance.name})", random=True))


@recipe("poisson")
def poisson(d, op):
    rate = d.positive(d.floats())
    trained(d, d.line(f"ops.poisson({rate.name})", random=True))


@recipe("multinomial")
def multinomial(d, op):
    x = d.floats(rank=(1, 2), where=lambda v: v.size and v.shape[-1] > 1)
    chance = d.probability(x)
    d.line(
        f"ops.multinomial({chance.name}, num_samples=2, replacement={d.chance(0.5)})",
        random=True,
    )
