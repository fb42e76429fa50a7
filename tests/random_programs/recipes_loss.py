# SPDX-License-Identifier: Apache-2.0
"""Losses, softmax, norms, metrics, loss scaling."""

import numpy as np
from recipes import recipe
from value import Reject, Text, varied


@recipe("softmax", "log_softmax")
def softmax(d, op):
    x = d.floats(rank=(1, 2, 3), where=lambda v: v.size > 0)
    d.call(op, x, axis=d.axis(x))


def _classes(d, rank=(2, 2, 3)):
    return d.floats(rank=rank, where=lambda v: v.size > 0 and v.rank > 1)


@recipe("cross_entropy_loss")
def cross_entropy_loss(d, op):
    x = _classes(d)
    count = x.shape[-1]
    attrs = {"reduction": d.one_of("mean", "sum", "none")}
    weight = None
    if d.split:
        attrs["reduction"] = "none"
    if d.chance(0.3):
        attrs["soft_label"] = True
        label = d.floats(shape=x.shape)
        label = d.line(f"F.softmax({label.name}).detach()")
    else:
        shape = x.shape[:-1] + ((1,) if d.chance(0.5) else ())
        label = d.integers(shape, count)
        if d.chance(0.3):
            attrs["ignore_index"] = 0
        if d.chance(0.4):
            weight = d.line(f"F.sigmoid({d.weight((count,)).name}).detach() + 0.1")
    if d.chance(0.2):
        attrs["use_softmax"] = False
        x = d.line(f"F.softmax({x.name}) * 0.9 + 0.01")
    arguments = ", ".join(f"{k}={v!r}" for k, v in attrs.items())
    weight = weight.name if weight else None
    d.line(f"ops.cross_entropy_loss({x.name}, {label.name}, {weight}, {arguments})[0]")


@recipe("softmax_with_cross_entropy")
def softmax_with_cross_entropy(d, op):
    x = _classes(d)
    if d.chance(0.3):
        label = d.line(f"F.softmax({d.floats(shape=x.shape).name}).detach()")
        d.call(op, x, label, outputs=2, soft_label=True)
    else:
        label = d.integers((*x.shape[:-1], 1), x.shape[-1])
        ignore = d.one_of(-100, 0)
        d.call(op, x, label, outputs=2, ignore_index=ignore)


@recipe("cross_entropy", "cross_entropy2")
def old_cross_entropy(d, op):
    x = _classes(d)
    chances = d.line(f"F.softmax({x.name}) * 0.9 + 0.01")
    label = d.integers((*x.shape[:-1], 1), x.shape[-1])
    ignore = d.one_of(-100, 0)
    outputs = 2 if op == "cross_entropy2" else 1
    if outputs == 1 and d.chance(0.3):
        label = d.line(f"F.softmax({d.floats(shape=x.shape).name}).detach()")
        d.call(op, chances, label, soft_label=True)
    else:
        d.call(op, chances, label, outputs=outputs, ignore_index=ignore)


@recipe("nll_loss")
def nll_loss(d, op):
    x = d.floats(rank=(2, 4), where=lambda v: v.size > 0)
    chances = d.line(f"F.log_softmax({x.name}, 1)")
    label = d.integers((x.shape[0], *x.shape[2:]), x.shape[1])
    weight = None
    if d.chance(0.4):
        weight = d.line(f"F.sigmoid({d.weight((x.shape[1],)).name}).detach() + 0.1")
    reduction = "none" if d.split else d.one_of("mean", "sum", "none")
    d.call(op, chances, label, weight, outputs=2, reduction=reduction)


@recipe("mse_loss", "l1_loss", "smooth_l1", "kldiv_loss")
def pair_loss(d, op):
    x = d.floats(where=lambda v: v.size > 0)
    y = d.floats(shape=x.shape)
    if op == "kldiv_loss":
        y = d.probability(y)
    attrs = {"reduction": "none" if d.split else d.one_of("mean", "sum", "none")}
    if op == "smooth_l1":
        attrs["delta"] = d.number_in(0.3, 2)
    d.call(op, x, y, **attrs)


@recipe("log_loss", "bce_loss")
def probability_loss(d, op):
    x = d.probability(d.floats(where=lambda v: v.size > 0))
    d.call(op, x, d.probability(d.floats(shape=x.shape)))


@recipe("sigmoid_cross_entropy_with_logits")
def sigmoid_loss(d, op):
    x = d.floats(where=lambda v: v.size > 0)
    d.call(op, x, d.probability(d.floats(shape=x.shape)))


@recipe("huber_loss")
def huber_loss(d, op):
    x = d.floats(rank=(2, 3))
    y = d.floats(shape=x.shape)
    d.call(op, x, y, outputs=2, delta=d.number_in(0.3, 2))


@recipe("cos_sim")
def cos_sim(d, op):
    x = d.floats(rank=2)
    rows = x.shape[0] if d.split or d.chance(0.6) else 1
    y = d.floats(shape=(rows, *x.shape[1:]))
    x, y = d.positive(x), d.positive(y)
    a, b = x.array.astype("float64"), y.array.astype("float64")
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    # Of parallel vectors, as all of one number are, every gradient is zero because two
    # terms cancel inside of the kernel.
    if ((a * b).sum(1) > 0.99 * lengths).any():
        raise Reject
    d.call(op, x, y, outputs=3)


@recipe("label_smooth")
def label_smooth(d, op):
    x = d.floats(rank=(2, 3))
    prior = d.floats(shape=(1, x.shape[-1])) if d.chance(0.4) else None
    if prior is not None:
        prior = d.line(f"F.softmax({prior.name}).detach()")
    d.call(op, x, prior, epsilon=d.number_in(0, 0.5))


@recipe("norm")
def norm(d, op):
    x = d.floats(rank=(2, 3))
    d.call(op, d.positive(x), outputs=2, axis=d.axis(x))


@recipe("nce")
def nce(d, op):
    x = d.rows(rank=2)
    if d.split:
        raise Reject
    label = d.integers((x.shape[0], 1), 6)
    bias = d.weight((6, 1)) if d.chance(0.5) else None
    d.line(
        f"ops.nce({x.name}, {label.name}, {d.weight((6, x.shape[1])).name}, "
        f"{bias.name if bias else None}, num_total_classes=6, num_neg_samples=3, "
        f"sampler={d.one_of(0, 1)}, seed=7, is_sparse={d.chance(0.5)})[0]",
        random=True,
    )


@recipe("warpctc")
def warpctc(d, op):
    if d.split:
        raise Reject
    x = d.floats(shape=(5, d.batch, 4))
    label = d.constant(
        [[1 + d.rng.randrange(3) for _ in range(2)]] * d.batch, "'int32'"
    )
    times = d.constant([d.one_of(4, 5) for _ in range(d.batch)])
    sizes = d.constant([d.one_of(1, 2) for _ in range(d.batch)])
    d.line(
        f"ops.warpctc({x.name}, {label.name}, {times.name}, {sizes.name}, blank=0)[0]"
    )


@recipe("linear_chain_crf", "crf_decoding")
def crf(d, op):
    emission = d.floats(rank=2, where=lambda v: 1 < v.shape[0] and 1 < v.shape[1] < 6)
    if d.split:
        raise Reject
    rows, tags = emission.shape
    cut = d.rng.randrange(1, rows)
    lod = d.constant([0, cut, rows])
    transition = d.weight((tags + 2, tags))
    if op == "crf_decoding":
        label = d.constant([[d.rng.randrange(tags)] for _ in range(rows)])
        label = label if d.chance(0.5) else None
        d.call(op, emission, transition, label, None, lod)
        return
    label = d.constant([[d.rng.randrange(tags)] for _ in range(rows)])
    d.line(
        f"ops.linear_chain_crf({emission.name}, {transition.name}, {label.name}, None, "
        f"{lod.name})[3]"
    )


# ---- norms


@recipe("batch_norm")
def batch_norm(d, op):
    x = d.floats(rank=(2, 3, 4), where=lambda v: v.size > 0)
    test = d.split or d.chance(0.3)
    if not test:
        varied(x, [i for i in range(x.rank) if i != 1])
    channels = x.shape[1]
    mean = d.parameter((channels,), "zeros", trained=False)
    variance = d.parameter((channels,), "positive", trained=False)
    del d.values[-2:]  # the op changes them: they must not be its scale too
    scale = d.weight((channels,)) if d.chance(0.8) else None
    bias = d.weight((channels,)) if scale is not None else None
    attrs = dict(is_test=test, momentum=0.8, epsilon=d.one_of(1e-5, 1e-2))
    if d.chance(0.2):
        attrs["use_global_stats"] = True
    arguments = ", ".join(f"{k}={v}" for k, v in attrs.items())
    names = [v.name if v else "None" for v in (x, mean, variance, scale, bias)]
    d.line(f"ops.batch_norm({', '.join(names)}, {arguments})[0]")


@recipe("layer_norm")
def layer_norm(d, op):
    x = d.floats(rank=(2, 3, 4), where=lambda v: v.size > 0 and v.shape[-1] > 1)
    axis = d.rng.randrange(1, x.rank)
    size = 1
    for n in x.shape[axis:]:
        size *= n
    varied(x, range(axis, x.rank))
    scale = d.weight((size,)) if d.chance(0.7) else None
    bias = d.weight((size,)) if d.chance(0.7) else None
    names = [v.name if v else "None" for v in (x, scale, bias)]
    epsilon = d.one_of(1e-5, 1e-2)
    d.line(
        f"ops.layer_norm({', '.join(names)}, begin_norm_axis={axis}, "
        f"epsilon={epsilon})[0]"
    )


@recipe("group_norm", "instance_norm")
def group_norm(d, op):
    x = d.floats(rank=(3, 4), where=lambda v: v.size > 0 and v.shape[-1] > 1)
    varied(x, range(2, x.rank))
    channels = x.shape[1]
    scale = d.weight((channels,)) if d.chance(0.7) else None
    bias = d.weight((channels,)) if scale is not None else None
    names = [v.name if v else "None" for v in (x, scale, bias)]
    more = "epsilon=0.001"
    if op == "group_norm":
        groups = d.rng.choice(
            [g for g in range(0, channels + 1) if g and channels % g == 0]
        )
        more += f", groups={d.one_of(0, groups)}"
    d.line(f"ops.{op}({', '.join(names)}, {more})[0]")


@recipe("prelu")
def prelu(d, op):
    x = d.floats(rank=(2, 3, 4), where=lambda v: v.size > 0)
    shape = d.one_of((1,), (x.shape[1],))
    d.call(op, x, d.weight(shape))


# ---- metrics and loss scaling


def _as_the_model(d, value, dtype):
    """A value that is `dtype` in every model, as one of the model's own type."""
    d.values.remove(value)  # others must not mix types
    d.line(f"ops.cast({value.name}, paddle.{dtype}, DTYPE)")


@recipe("accuracy")
def accuracy(d, op):
    x = _classes(d, 2)
    if d.split:
        raise Reject
    label = d.integers((x.shape[0], 1), x.shape[1])
    best, index = d.call("top_k_v2", x, outputs=2, k=1)
    share, _, _ = d.call(op, best, index, label, outputs=3)
    _as_the_model(d, share, "float32")


@recipe("auc")
def auc(d, op):
    if d.split:
        raise Reject
    x = d.floats(rank=2, where=lambda v: v.size > 0)
    score = d.line(
        f"F.softmax(paddle.concat([{x.name}[:, :1], {x.name}[:, :1] * 0.5], 1))"
    )
    label = d.integers((x.shape[0], 1), 2)
    stats = d.constant([0] * 17), d.constant([0] * 17)
    area, _, _ = d.call(
        op, score, label, *stats, outputs=3, num_thresholds=16, slide_steps=0
    )
    _as_the_model(d, area, "float64")


@recipe("check_finite_and_unscale")
def unscale(d, op):
    x = d.floats()
    scale = d.line(f"paddle.full([1], {d.number_in(1, 9)}, 'float32')")
    d.line(f"ops.{op}([{x.name}], {scale.name})[0][0]")
    d.values.remove(scale)  # others must not mix types


@recipe("update_loss_scaling")
def update_loss_scaling(d, op):
    x = d.floats()
    found = d.line(f"paddle.full([1], {d.chance(0.5)}, 'bool')")
    scale = d.line("paddle.full([1], 8.0, 'float32')")
    good = d.line("paddle.full([1], 1, 'int32')")
    d.line(
        f"paddle.cast(ops.{op}([{x.name}], {found.name}, {scale.name}, {good.name}, "
        f"{good.name}, incr_every_n_steps=2, decr_every_n_nan_or_inf=1, "
        "incr_ratio=2.0, decr_ratio=0.5)[1], DTYPE)"
    )
    d.values.remove(scale)  # others must not mix types


@recipe("dropout")
def dropout(d, op):
    x = d.floats()
    test = d.split or d.chance(0.3)
    mode = d.one_of("upscale_in_train", "downscale_in_infer")
    attrs = dict(dropout_prob=d.one_of(0.0, 0.3, 0.5, 1.0), is_test=test)
    attrs["dropout_implementation"] = mode
    if d.chance(0.2) and x.rank:
        attrs["axis"] = [d.rng.randrange(x.rank)]
    arguments = ", ".join(f"{k}={v!r}" for k, v in attrs.items())
    d.line(f"ops.dropout({x.name}, {arguments})[0]", random=not test)


@recipe("one_hot_v2", "one_hot")
def one_hot(d, op):
    shape = (d.batch, 1) if op == "one_hot" else (d.batch, *d.sizes(1))
    ids = d.integers(shape, 5)
    d.line(f"paddle.cast(ops.{op}({ids.name}, depth=5), DTYPE)")


@recipe("sequence_mask")
def sequence_mask(d, op):
    sizes = d.integers((d.batch,), 5)
    dtype = Text(d.one_of("I64", "DTYPE"))
    d.call(op, sizes, maxlen=5, out_dtype=dtype)
