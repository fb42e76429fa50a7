# SPDX-License-Identifier: Apache-2.0
"""Conditional random fields: sums over all ways and the best one, against all ways
written out; their gradients, against finite differences."""

import itertools

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import _ops, static
from paddle.fluid import layers
from static_check import fresh_programs, op_types, run, start, value_of

assert fresh_programs  # a fixture

TAGS = 3
LENGTHS = [3, 1, 4, 2]
OFFSETS = np.cumsum([0, *LENGTHS])


def drawn(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


EMISSION = drawn(sum(LENGTHS), TAGS)
TRANSITION = drawn(TAGS + 2, TAGS, seed=1)
LABEL = np.random.default_rng(2).integers(0, TAGS, (sum(LENGTHS), 1))


def score(emission, transition, way):
    total = transition[0, way[0]] + transition[1, way[-1]]
    total += sum(emission[t, tag] for t, tag in enumerate(way))
    return total + sum(transition[a + 2, b] for a, b in zip(way, way[1:]))


def all_ways(rows):
    return itertools.product(range(TAGS), repeat=rows)


def cost(emission, transition, label):
    """Over all ways that there are."""
    scores = [score(emission, transition, w) for w in all_ways(len(emission))]
    return np.log(np.sum(np.exp(scores))) - score(emission, transition, label)


def best_way(emission, transition):
    return max(all_ways(len(emission)), key=lambda w: score(emission, transition, w))


def parts(array):
    return np.split(array, OFFSETS[1:-1])


def wanted_costs(emission=EMISSION, transition=TRANSITION):
    pairs = zip(parts(emission), parts(LABEL[:, 0]))
    return np.array([[cost(e, transition, label)] for e, label in pairs])


def wanted_tags(emission=EMISSION, transition=TRANSITION):
    ways = [best_way(e, transition) for e in parts(emission)]
    return np.concatenate(ways)[:, None]


def differences(function, array, step=1e-6):
    """The gradient of function(array), a number, by central differences."""
    grad = np.zeros_like(array)
    for i in np.ndindex(array.shape):
        old = array[i]
        array[i] = old + step
        above = function(array)
        array[i] = old - step
        grad[i] = (above - function(array)) / (2 * step)
        array[i] = old
    return grad


def padded(array, filler=0):
    """[rows, ...] as [sequences, longest, ...]."""
    shape = (len(LENGTHS), max(LENGTHS), *array.shape[1:])
    made = np.full(shape, filler, array.dtype)
    for i, part in enumerate(parts(array)):
        made[i, : len(part)] = part
    return made


def eager(emission=EMISSION, transition=TRANSITION, label=LABEL, lengths=None):
    """The costs, and the tensors that gradients go to."""
    e, w = paddle.to_tensor(emission), paddle.to_tensor(transition)
    e.stop_gradient = w.stop_gradient = False
    offsets = paddle.to_tensor(OFFSETS) if lengths is None else None
    if lengths is not None:
        lengths = paddle.to_tensor(lengths)
    label = paddle.to_tensor(label)
    found = _ops.linear_chain_crf(e, w, label, lengths, offsets)
    return found[-1], e, w


# ---- eagerly


def test_the_cost_is_over_all_ways():
    got, _, _ = eager()
    np.testing.assert_allclose(got.numpy(), wanted_costs(), 1e-12)
    single, _, _ = eager(EMISSION.astype("float32"), TRANSITION.astype("float32"))
    assert single.dtype is paddle.float32
    np.testing.assert_allclose(single.numpy(), wanted_costs(), 1e-5)


def test_gradients_are_those_of_finite_differences():
    weights = drawn(len(LENGTHS), 1, seed=3)
    got, e, w = eager()
    (got * paddle.to_tensor(weights)).sum().backward()
    by_emission = differences(
        lambda x: (wanted_costs(x, TRANSITION) * weights).sum(), EMISSION.copy()
    )
    np.testing.assert_allclose(e.grad.numpy(), by_emission, 1e-6, 1e-8)
    by_transition = differences(
        lambda x: (wanted_costs(EMISSION, x) * weights).sum(), TRANSITION.copy()
    )
    np.testing.assert_allclose(w.grad.numpy(), by_transition, 1e-6, 1e-8)


@pytest.mark.parametrize("column", [True, False])
def test_padded_rows_count_for_nothing(column):
    """Neither do the labels there, which may be anything."""
    lengths = np.array(LENGTHS)[:, None] if column else np.array(LENGTHS)
    label = padded(LABEL, -7) if column else padded(LABEL, 99)[:, :, 0]
    got, e, w = eager(padded(EMISSION, 1e3), TRANSITION, label, lengths)
    rows, e_rows, w_rows = eager()
    np.testing.assert_allclose(got.numpy(), rows.numpy(), 1e-12)
    got.sum().backward()
    rows.sum().backward()
    np.testing.assert_allclose(e.grad.numpy(), padded(e_rows.grad.numpy()), 1e-9)
    np.testing.assert_allclose(w.grad.numpy(), w_rows.grad.numpy(), 1e-9)


def test_many_sequences_give_the_same_as_each_alone():
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 6, 50)
    emission = drawn(50, 5, TAGS, seed=5)
    label = rng.integers(0, TAGS, (50, 5))
    got, e, w = eager(emission, TRANSITION, label, lengths)
    got.sum().backward()
    transitions = np.zeros_like(TRANSITION)
    for i in range(50):
        one = slice(i, i + 1)
        alone, e1, w1 = eager(emission[one], TRANSITION, label[one], lengths[one])
        alone.sum().backward()
        assert alone.numpy() == got.numpy()[i]
        np.testing.assert_array_equal(e.grad.numpy()[i], e1.grad.numpy()[0])
        transitions += w1.grad.numpy()
    np.testing.assert_allclose(w.grad.numpy(), transitions, 1e-10, 1e-12)


def test_a_sequence_without_rows_costs_nothing():
    lengths = np.array([0, 2])
    got, e, _ = eager(padded(EMISSION)[:2], TRANSITION, padded(LABEL)[:2], lengths)
    got.sum().backward()
    assert got.numpy()[0] == 0 and not e.grad.numpy()[0].any()
    two = cost(padded(EMISSION)[1, :2], TRANSITION, padded(LABEL)[1, :2, 0])
    np.testing.assert_allclose(got.numpy()[1], two, 1e-12)


def test_forbidden_steps_and_large_scores_stay_finite():
    """As scripts forbid steps: by scores far below all others."""
    transition = TRANSITION.copy()
    transition[2 + 0, 1] = transition[0, 2] = -1e4
    emission = EMISSION * 100 + 5e3
    label = np.concatenate([best_way(e, transition) for e in parts(emission)])
    got, e, w = eager(emission, transition, label)
    got.sum().backward()
    for part, labels, value in zip(parts(emission), parts(label), got.numpy()):
        scores = np.array([score(part, transition, way) for way in all_ways(len(part))])
        top = scores.max()
        log_sum = top + np.log(np.exp(scores - top).sum())
        assert abs(value[0] - (log_sum - score(part, transition, labels))) < 1e-8
    assert np.isfinite(e.grad.numpy()).all() and np.isfinite(w.grad.numpy()).all()


def decode(emission, transition, label=None, lengths=None):
    offsets = paddle.to_tensor(OFFSETS) if lengths is None else None
    label = None if label is None else paddle.to_tensor(label)
    lengths = None if lengths is None else paddle.to_tensor(np.array(lengths))
    tensors = paddle.to_tensor(emission), paddle.to_tensor(transition)
    return _ops.crf_decoding(*tensors, label, lengths, offsets).numpy()


@pytest.mark.parametrize("seed", range(5))
def test_decoding_finds_the_best_of_all_ways(seed):
    emission = drawn(sum(LENGTHS), TAGS, seed=10 + seed)
    transition = drawn(TAGS + 2, TAGS, seed=20 + seed)
    wanted = wanted_tags(emission, transition)
    got = decode(emission, transition)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, wanted)
    together = decode(padded(emission, 9.0), transition, lengths=LENGTHS)
    np.testing.assert_array_equal(together, padded(wanted)[:, :, 0])
    right = decode(emission, transition, LABEL)
    np.testing.assert_array_equal(right, wanted == LABEL)
    right = decode(padded(emission), transition, padded(LABEL), LENGTHS)
    np.testing.assert_array_equal(right, padded((wanted == LABEL).astype(int))[:, :, 0])


def test_of_equal_ways_the_first_tags_win():
    got = decode(np.zeros_like(EMISSION), np.zeros_like(TRANSITION))
    np.testing.assert_array_equal(got, np.zeros_like(LABEL))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"Transition \[4, 3\] must have shape"):
        eager(transition=TRANSITION[:-1])
    with pytest.raises(ValueError, match=r"Label \[3, 1\] must have one tag"):
        eager(label=LABEL[:3])
    with pytest.raises(ValueError, match="Emission .* is no sequence"):
        _ops.linear_chain_crf(
            *(paddle.to_tensor(a) for a in (EMISSION, TRANSITION, LABEL))
        )
    with pytest.raises(ValueError, match="Length has 2 numbers for 4 sequences"):
        eager(padded(EMISSION), TRANSITION, padded(LABEL), np.array([1, 2]))
    with pytest.raises(ValueError, match="Length must have an integer type"):
        eager(padded(EMISSION), TRANSITION, padded(LABEL), np.array([1.0] * 4))
    with pytest.raises(ValueError, match=r"Length 5 of sequence 3 is outside \[0, 4\]"):
        eager(padded(EMISSION), TRANSITION, padded(LABEL), np.array([1, 2, 3, 5]))
    wrong = LABEL.copy()
    wrong[5] = 3
    with pytest.raises(ValueError, match=r"Label is 3 in row 1 of sequence 2"):
        eager(label=wrong)
    with pytest.raises(ValueError, match="no way through sequence 1"):
        eager(np.where(np.arange(10)[:, None] == 3, np.nan, EMISSION))
    with pytest.raises(RuntimeError, match="no second derivative"):
        got, e, _ = eager()
        paddle.grad(got.sum(), [e], create_graph=True)


# ---- in programs


def sequence(array, lengths=LENGTHS):
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


FEED = {"x": EMISSION.astype("float32"), "y": LABEL}


@pytest.mark.usefixtures("fresh_programs")
def test_a_program_costs_learns_and_decodes_sequences():
    x = layers.data("x", [TAGS], lod_level=1)
    x.stop_gradient = False
    y = layers.data("y", [1], dtype="int64", lod_level=1)
    attr = fluid.ParamAttr(
        name="crfw", initializer=fluid.initializer.NumpyArrayInitializer(TRANSITION)
    )
    costs = layers.linear_chain_crf(x, y, param_attr=attr)
    tags = static.nn.crf_decoding(x, param_attr=fluid.ParamAttr(name="crfw"))
    right = layers.crf_decoding(x, param_attr=attr, label=y)
    assert (costs.shape, costs.lod_level) == ([-1, 1], 0)
    assert (tags.shape, tags.lod_level, tags.dtype) == ([-1, 1], 1, paddle.int64)
    transitions = static.default_main_program().global_block().var("crfw")
    gradients = static.gradients([costs], [x, transitions])
    start()
    feed = {name: sequence(value) for name, value in FEED.items()}
    got = run([costs, tags, right, *gradients], feed)
    np.testing.assert_allclose(got[0], wanted_costs(), 1e-5)
    np.testing.assert_array_equal(got[1], wanted_tags())
    np.testing.assert_array_equal(got[2], wanted_tags() == LABEL)
    paddle.disable_static()
    alone, e, w = eager()
    alone.sum().backward()
    np.testing.assert_allclose(got[3], e.grad.numpy(), 1e-4, 1e-6)
    np.testing.assert_allclose(got[4], w.grad.numpy(), 1e-4, 1e-6)


@pytest.mark.usefixtures("fresh_programs")
def test_a_tagger_learns_its_labels_and_its_transitions():
    """Tags that emissions cannot tell, only the tag before."""
    rng = np.random.default_rng(6)
    label = np.tile([0, 1, 2, 1], 3)
    rows = rng.standard_normal((len(label), 4)).astype("float32")
    x = static.data("x", [None, 4], lod_level=1)
    y = static.data("y", [None, 1], "int64", lod_level=1)
    hidden = static.nn.fc(x, TAGS)
    attr = paddle.ParamAttr(name="crfw", learning_rate=2.0)
    loss = paddle.mean(layers.linear_chain_crf(hidden, y, param_attr=attr))
    found = layers.crf_decoding(hidden, param_attr=attr)
    test = static.default_main_program().clone(for_test=True)
    paddle.optimizer.SGD(0.1).minimize(loss)
    start()
    before = value_of("crfw")
    lengths = [4, 4, 4]
    feed = {"x": sequence(rows, lengths), "y": sequence(label[:, None], lengths)}
    losses = [run([loss], feed)[0].item() for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]
    assert not np.allclose(value_of("crfw"), before)
    (tags,) = run([found], {"x": feed["x"], "y": feed["y"]}, test)
    np.testing.assert_array_equal(tags[:, 0], label)


@pytest.mark.usefixtures("fresh_programs")
def test_padded_sequences_in_a_program():
    longest = max(LENGTHS)
    x = static.data("x", [None, longest, TAGS])
    y = static.data("y", [None, longest], "int64")
    n = static.data("n", [None], "int64")
    attr = paddle.ParamAttr(
        name="crfw", initializer=paddle.nn.initializer.Assign(TRANSITION)
    )
    costs = layers.linear_chain_crf(x, y, param_attr=attr, length=n)
    tags = static.nn.crf_decoding(x, attr, length=n)
    right = static.nn.crf_decoding(x, attr, label=y, length=n)
    assert (costs.shape, tags.shape) == ([-1, 1], [-1, longest])
    start()
    feed = {
        "x": padded(EMISSION.astype("float32")),
        "y": padded(LABEL)[:, :, 0],
        "n": np.array(LENGTHS),
    }
    got = run([costs, tags, right], feed)
    np.testing.assert_allclose(got[0], wanted_costs(), 1e-5)
    np.testing.assert_array_equal(got[1], padded(wanted_tags())[:, :, 0])
    equal = (wanted_tags() == LABEL).astype("int64")
    np.testing.assert_array_equal(got[2], padded(equal)[:, :, 0])


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("with_lengths", [False, True])
def test_a_tagger_is_saved_and_loaded(tmp_path, with_lengths):
    shape = [None, max(LENGTHS), 4] if with_lengths else [None, 4]
    x = static.data("x", shape, lod_level=0 if with_lengths else 1)
    y = static.data("y", [*shape[:-1], 1], "int64", lod_level=0 if with_lengths else 1)
    n = static.data("n", [None], "int64") if with_lengths else None
    hidden = static.nn.fc(x, TAGS, num_flatten_dims=2 if with_lengths else 1)
    attr = paddle.ParamAttr(name="crfw")
    layers.linear_chain_crf(hidden, y, param_attr=attr, length=n)
    tags = static.nn.crf_decoding(hidden, attr, length=n)
    start()
    rows = drawn(sum(LENGTHS), 4, seed=7, dtype="float32")
    feed = {"x": padded(rows) if with_lengths else sequence(rows)}
    if with_lengths:
        feed["n"] = np.array(LENGTHS)
    executor = static.Executor(paddle.CPUPlace())
    inputs = [x, n] if with_lengths else [x]
    static.save_inference_model(str(tmp_path / "tagger"), inputs, [tags], executor)
    unused = {"y": padded(LABEL) if with_lengths else sequence(LABEL)}
    (wanted,) = run([tags], {**feed, **unused})
    with static.scope_guard(static.Scope()):
        loaded = static.load_inference_model(str(tmp_path / "tagger"), executor)
        program, names, fetches = loaded
        assert set(names) == set(feed) and "linear_chain_crf" not in op_types(program)
        (got,) = executor.run(program, feed, fetches)
    np.testing.assert_array_equal(got, wanted)
    assert len(set(wanted.ravel())) > 1


@pytest.mark.usefixtures("fresh_programs")
def test_mistakes_in_programs_are_named():
    x = static.data("x", [None, TAGS])
    y = static.data("y", [None, 1], "int64")
    with pytest.raises(ValueError, match="Emission .* is no sequence"):
        layers.linear_chain_crf(x, y)
    with pytest.raises(ValueError, match=r"input must have shape \[rows, tags\]"):
        layers.linear_chain_crf(static.data("z", [None, 4, TAGS]), y)
    with pytest.raises(ValueError, match="the program has no parameter 'crf'"):
        static.nn.crf_decoding(x, paddle.ParamAttr(name="crf"))
    with pytest.raises(ValueError, match="the program has no parameter None"):
        static.nn.crf_decoding(x, None)
    with pytest.raises(TypeError, match="input must be a Variable"):
        layers.linear_chain_crf(EMISSION, y)
