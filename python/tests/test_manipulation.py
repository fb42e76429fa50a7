# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest
import torch
from op_check import check, floats
from paddle.tensor import manipulation as m

X = floats(2, 3, 4)


def tensor(data, **kwargs):
    return paddle.to_tensor(data, **kwargs)


# ---- shapes


@pytest.mark.parametrize("perm", [[2, 0, 1], [0, 1, 2], [-1, 1, 0]])
def test_transpose(perm):
    check(lambda x: m.transpose(x, perm), lambda x: x.permute(perm), X, second=True)


@pytest.mark.parametrize(
    "shape, want",
    [
        ([6, 4], [6, 4]),
        ((0, -1), [2, 12]),
        ([-1], [24]),
        ([4, 0, -1], [4, 3, 2]),
        ([1, 2, 3, 4, 1], [1, 2, 3, 4, 1]),
    ],
)
def test_reshape(shape, want):
    check(lambda x: m.reshape(x, shape), lambda x: x.reshape(want), X, second=True)


def test_reshape_of_a_transposed_tensor():
    check(
        lambda x: m.reshape(m.transpose(x, [2, 1, 0]), [4, 6]),
        lambda x: x.permute(2, 1, 0).reshape(4, 6),
        X,
    )


def test_reshape_takes_tensors_for_the_shape():
    x = tensor(X)
    assert m.reshape(x, tensor([4, -1])).shape == [4, 6]
    assert m.reshape(x, tensor([4, 6], dtype="int32")).shape == [4, 6]
    assert m.reshape(x, [tensor([4]), 6]).shape == [4, 6]
    assert m.reshape(x, np.array([4, 6])).shape == [4, 6]
    assert m.reshape(x, [paddle.full([1], 6, "int32"), -1]).shape == [6, 4]


def test_reshape_says_what_does_not_fit():
    x = tensor(X)
    with pytest.raises(ValueError, match=r"reshape2\(X float64 \[2, 3, 4\]\).*24"):
        m.reshape(x, [5, 5])
    with pytest.raises(ValueError, match="more than one -1"):
        m.reshape(x, [-1, -1])
    with pytest.raises(ValueError, match="0 at position 3"):
        m.reshape(x, [2, 3, 4, 0])
    with pytest.raises(TypeError, match="'shape' must hold integers, but got float"):
        m.reshape(x, [2.5, 3])
    with pytest.raises(TypeError, match="'shape'"):
        m.reshape(x, None)
    with pytest.raises(TypeError, match="'x' must be a Tensor"):
        m.reshape([1, 2], [2])


@pytest.mark.parametrize("start, stop", [(0, -1), (1, 2), (0, 1), (-2, -1), (1, 1)])
def test_flatten(start, stop):
    check(lambda x: m.flatten(x, start, stop), lambda x: x.flatten(start, stop), X)


def test_flatten_in_the_wrong_order():
    with pytest.raises(ValueError, match="start_axis 2 lies behind stop_axis 0"):
        m.flatten(tensor(X), 2, 0)
    with pytest.raises(ValueError, match="stop_axis is 3"):
        m.flatten(tensor(X), 0, 3)


@pytest.mark.parametrize(
    "axis, want",
    [(None, [3]), (0, [3, 1]), (1, [1, 3, 1]), ([0, 2], [3]), ((0, 1), [3, 1])],
)
def test_squeeze_leaves_what_is_not_one(axis, want):
    check(lambda x: m.squeeze(x, axis), lambda x: x.reshape(want), floats(1, 3, 1))


@pytest.mark.parametrize(
    "axis, want",
    [(0, [1, 2, 3]), (-1, [2, 3, 1]), ([0, 2], [1, 2, 1, 3]), ([0, 0], [1, 1, 2, 3])],
)
def test_unsqueeze(axis, want):
    check(lambda x: m.unsqueeze(x, axis), lambda x: x.reshape(want), floats(2, 3))


def test_axes_out_of_range():
    x = tensor(X)
    with pytest.raises(ValueError, match=r"squeeze2.*axis is 3"):
        m.squeeze(x, 3)
    with pytest.raises(ValueError, match=r"unsqueeze2.*axis is -5"):
        m.unsqueeze(x, -5)
    with pytest.raises(ValueError, match=r"transpose2.*perm \[0, 1\]"):
        m.transpose(x, [0, 1])
    with pytest.raises(ValueError, match="names dimension 1 twice"):
        m.transpose(x, [0, 1, 1])
    with pytest.raises(ValueError, match=r"concat.*axis is 3"):
        m.concat([x, x], 3)
    with pytest.raises(ValueError, match=r"flip.*axis is 3"):
        m.flip(x, 3)


def test_in_place_shapes_change_the_tensor_itself():
    x = tensor(X)
    assert m.reshape_(x, [6, 4]) is x
    assert x.shape == [6, 4]
    assert m.unsqueeze_(x, 0).shape == [1, 6, 4]
    assert m.squeeze_(x).shape == [6, 4]
    assert m.flatten_(x).shape == [24]
    np.testing.assert_array_equal(x.numpy(), X.ravel())


def test_in_place_keeps_the_gradient():
    x = tensor(X, stop_gradient=False)
    y = x * 3.0
    m.reshape_(y, [24])
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(X.shape, 3.0))


def test_in_place_on_a_leaf_that_wants_a_gradient():
    x = tensor(X, stop_gradient=False)
    with pytest.raises(ValueError, match="reshape_.*no_grad"):
        m.reshape_(x, [24])
    with paddle.no_grad():
        m.reshape_(x, [24])
    assert x.shape == [24] and x.is_leaf and not x.stop_gradient


@pytest.mark.parametrize("source, destination", [(0, 2), (-1, 0), ([0, 1], [2, 0])])
def test_moveaxis(source, destination):
    check(
        lambda x: m.moveaxis(x, source, destination),
        lambda x: torch.moveaxis(x, source, destination),
        X,
    )


def test_moveaxis_refuses_bad_axes():
    with pytest.raises(ValueError, match="source"):
        m.moveaxis(tensor(X), 3, 0)
    with pytest.raises(ValueError, match="once"):
        m.moveaxis(tensor(X), [0, 0], [1, 2])


# ---- joining and splitting


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis):
    check(
        lambda a, b: m.concat([a, b, a], axis),
        lambda a, b: torch.cat([a, b, a], axis),
        X,
        floats(2, 3, 4, seed=1),
        second=True,
    )


def test_concat_of_different_lengths_and_a_tensor_axis():
    check(
        lambda a, b: m.concat((a, b), paddle.full([1], 1, "int64")),
        lambda a, b: torch.cat([a, b], 1),
        floats(2, 3),
        floats(2, 5),
        program=False,  # shapes cannot depend on values there
    )


def test_concat_names_the_part_that_does_not_fit():
    a, b = paddle.zeros([2, 3]), paddle.zeros([2, 4])
    with pytest.raises(ValueError, match=r"x\[1\] has 4 in dimension 1"):
        m.concat([a, b])
    with pytest.raises(ValueError, match="empty list"):
        m.concat([])
    with pytest.raises(TypeError, match="list of Tensors"):
        m.concat(a)
    with pytest.raises(TypeError, match="must be a Tensor, but got int"):
        m.concat([a, 3])
    with pytest.raises(ValueError, match="int64"):
        m.concat([a, paddle.zeros([2, 3], "int64")])
    with pytest.raises(ValueError, match="as many dimensions"):
        m.concat([a, paddle.zeros([0])])


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_stack(axis):
    check(
        lambda a, b: m.stack([a, b], axis),
        lambda a, b: torch.stack([a, b], axis),
        floats(2, 3),
        floats(2, 3, seed=1),
        second=True,
    )


def test_stack_of_unequal_shapes():
    with pytest.raises(ValueError, match=r"x\[1\] has shape \[3\], but x\[0\]"):
        m.stack([paddle.zeros([2]), paddle.zeros([3])])


@pytest.mark.parametrize(
    "how, sizes",
    [(3, [2, 2, 2]), ([1, 2, 3], [1, 2, 3]), ((1, -1), [1, 5]), ([-1, 4], [2, 4])],
)
def test_split(how, sizes):
    check(
        lambda x: m.split(x, how, axis=1),
        lambda x: torch.split(x, sizes, 1),
        floats(2, 6),
        second=True,
    )


def test_split_uses_only_the_parts_that_are_used():
    x = tensor(floats(4, 2), stop_gradient=False)
    first, _ = m.split(x, 2)
    (first * 2.0).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[2, 2], [2, 2], [0, 0], [0, 0]])


def test_split_refuses_what_does_not_fit():
    x = paddle.zeros([4, 5])
    with pytest.raises(ValueError, match="size 5 cannot be split into 2"):
        m.split(x, 2, axis=1)
    with pytest.raises(ValueError, match="does not fit dimension 0"):
        m.split(x, [1, 2])
    with pytest.raises(ValueError, match="does not fit"):
        m.split(x, [-1, -1])
    with pytest.raises(ValueError, match="positive"):
        m.split(x, 0)
    with pytest.raises(TypeError, match="num_or_sections"):
        m.split(x, "two")


def test_chunk_unbind_unstack():
    check(lambda x: m.chunk(x, 2, 2), lambda x: x.chunk(2, 2), X)
    check(lambda x: m.unbind(x, 1), lambda x: x.unbind(1), X, second=True)
    check(lambda x: m.unstack(x, -1, 4), lambda x: x.unbind(-1), X)
    with pytest.raises(ValueError, match="num is 3 but dimension 2 has 4"):
        m.unstack(tensor(X), 2, 3)


# ---- copies


@pytest.mark.parametrize("shape", [[2, 3], [4, 2, 3], [-1, 3]])
def test_expand(shape):
    check(lambda x: m.expand(x, shape), lambda x: x.expand(shape), floats(2, 1))
    check(
        lambda x: m.broadcast_to(x, shape),
        lambda x: x.expand(shape),
        floats(2, 1),
        second=True,
    )


def test_expand_takes_tensors_for_the_shape():
    x = tensor(floats(2, 1))
    assert m.expand(x, tensor([2, 3])).shape == [2, 3]
    assert m.expand(x, [tensor([2]), 5]).shape == [2, 5]


def test_expand_as():
    check(
        lambda x, y: m.expand_as(x, y) + 0.0 * y,
        lambda x, y: x.expand_as(y) + 0.0 * y,
        floats(1, 3),
        floats(2, 4, 3),
    )
    with pytest.raises(ValueError, match="does not expand"):
        m.expand_as(paddle.zeros([2]), paddle.zeros([3]))


def test_an_expanded_tensor_can_be_written_to():
    x = m.expand(paddle.zeros([1, 3]), [2, 3])
    x[0, 1] = 5.0
    np.testing.assert_array_equal(x.numpy(), [[0, 5, 0], [0, 0, 0]])


def test_expand_says_what_does_not_fit():
    with pytest.raises(ValueError, match=r"expand_v2.*asks for 4 .* has 3"):
        m.expand(paddle.zeros([3]), [2, 4])
    with pytest.raises(ValueError, match="fewer dimensions"):
        m.expand(paddle.zeros([2, 3]), [3])


@pytest.mark.parametrize(
    "times, full",
    [([2], [1, 2]), ([2, 3], [2, 3]), ([2, 1, 3], [2, 1, 3]), ([1, 1], [1, 1])],
)
def test_tile(times, full):
    check(
        lambda x: m.tile(x, times),
        lambda x: x.repeat(full),
        floats(2, 3),
        second=True,
    )


def test_tile_bad_input():
    with pytest.raises(ValueError, match="tile"):
        m.tile(paddle.zeros([2]), [-2])
    with pytest.raises(TypeError, match="repeat_times"):
        m.tile(paddle.zeros([2]), [1.5])


def test_repeat_interleave():
    for axis in (0, 1, -1):
        check(
            lambda x: m.repeat_interleave(x, 2, axis),
            lambda x: x.repeat_interleave(2, axis),
            floats(2, 3),
        )
    check(
        lambda x: m.repeat_interleave(x, 3),
        lambda x: x.repeat_interleave(3),
        floats(2, 3),
    )
    counts = np.array([2, 0, 1])
    check(
        lambda x: m.repeat_interleave(x, tensor(counts), 1),
        lambda x: x.repeat_interleave(torch.from_numpy(counts), 1),
        floats(2, 3),
    )
    with pytest.raises(ValueError, match="repeats"):
        m.repeat_interleave(tensor(floats(2, 3)), tensor([1, 2]), 1)


def test_flip_and_reverse():
    check(lambda x: m.flip(x, [0, 2]), lambda x: x.flip([0, 2]), X, second=True)
    check(lambda x: m.reverse(x, 1), lambda x: x.flip([1]), X)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, -1])
def test_rot90(k):
    check(lambda x: m.rot90(x, k, [1, 2]), lambda x: torch.rot90(x, k, [1, 2]), X)
    check(lambda x: m.rot90(x, k), lambda x: torch.rot90(x, k), floats(2, 3))


def test_roll():
    check(lambda x: m.roll(x, 5), lambda x: x.roll(5), X)
    check(lambda x: m.roll(x, [1, -2], [0, 2]), lambda x: x.roll([1, -2], [0, 2]), X)


# ---- slices


@pytest.mark.parametrize(
    "axes, starts, ends, index",
    [
        ([0], [1], [2], np.s_[1:2]),
        ([1, 2], [0, 1], [2, 100], np.s_[:, 0:2, 1:]),
        ([-1], [-3], [-1], np.s_[..., -3:-1]),
        ([1], [2], [1], np.s_[:, 2:1]),
    ],
)
def test_slice(axes, starts, ends, index):
    check(lambda x: m.slice(x, axes, starts, ends), lambda x: x[index], X, second=True)


def test_slice_takes_tensors():
    x = tensor(X)
    want = X[:, 1:3]
    for starts, ends in [
        ([tensor([1])], [3]),
        (tensor([1]), tensor([3], dtype="int32")),
        ([1], tensor([3])),
    ]:
        got = m.slice(x, [1], starts, ends)
        np.testing.assert_array_equal(got.numpy(), want)


def test_slice_bad_input():
    with pytest.raises(ValueError, match=r"slice\(Input .*axes is 3"):
        m.slice(tensor(X), [3], [0], [1])
    with pytest.raises(ValueError, match="equally long"):
        m.slice(tensor(X), [0, 1], [0], [1])
    with pytest.raises(TypeError, match="'starts'"):
        m.slice(tensor(X), [0], ["a"], [1])


@pytest.mark.parametrize(
    "starts, ends, strides", [([0], [5], [2]), ([-1], [-10], [-2]), ([3], [0], [-1])]
)
def test_strided_slice(starts, ends, strides):
    x = floats(5, 2)
    t = tensor(x, stop_gradient=False)
    key = slice(starts[0], ends[0], strides[0])
    got = m.strided_slice(t, [0], starts, ends, strides)
    np.testing.assert_array_equal(got.numpy(), x[key])
    weight = floats(*got.shape, seed=3)
    (got * tensor(weight)).sum().backward()
    want = np.zeros_like(x)
    want[key] = weight
    np.testing.assert_array_equal(t.grad.numpy(), want)


def test_strided_slice_over_several_axes():
    check(
        lambda x: m.strided_slice(x, [0, 2], [0, 1], [2, 4], [1, 2]),
        lambda x: x[0:2, :, 1:4:2],
        X,
        second=True,
    )
    with pytest.raises(ValueError, match="stride"):
        m.strided_slice(tensor(X), [0], [0], [1], [0])


def test_crop():
    check(lambda x: m.crop(x, [1, -1, 2], [0, 1, 2]), lambda x: x[:1, 1:, 2:4], X)
    assert m.crop(tensor(X), tensor([1, 2, 2])).shape == [1, 2, 2]
    with pytest.raises(ValueError, match="does not lie in X"):
        m.crop(tensor(X), [2, 3, 4], [0, 0, 1])


# ---- indices


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_gather(axis, dtype):
    index = np.array([1, 0, 1], dtype)
    check(
        lambda x, i: m.gather(x, i, axis),
        lambda x, i: x.index_select(axis or 0, i),
        X,
        index,
        second=True,
    )


def test_gather_takes_a_column_of_indices():
    got = m.gather(tensor(X), tensor([[1], [0]]))
    np.testing.assert_array_equal(got.numpy(), X[[1, 0]])


def test_gather_index_select_bad_input():
    x = tensor(X)
    with pytest.raises(ValueError, match=r"gather\(X float64 \[2, 3, 4\], Index"):
        m.gather(x, tensor([2]))
    with pytest.raises(ValueError, match=r"index -1 .* outside \[0, 2\)"):
        m.gather(x, tensor([-1]))
    with pytest.raises(ValueError, match="int32 or int64"):
        m.gather(x, tensor([0.0]))
    with pytest.raises(ValueError, match="axis is 3"):
        m.gather(x, tensor([0]), 3)
    with pytest.raises(ValueError, match="one dimension"):
        m.index_select(x, tensor([[0, 1]]))


def test_index_select():
    index = np.array([2, 2, 0])
    check(
        lambda x, i: m.index_select(x, i, 1),
        lambda x, i: x.index_select(1, i),
        X,
        index,
    )


@pytest.mark.parametrize(
    "index", [[[0], [1], [0]], [[1, 2], [0, -1]], [[[0, 1, 2]], [[1, 2, 3]]]]
)
def test_gather_nd(index):
    columns = tuple(torch.tensor(index)[..., i] for i in range(np.shape(index)[-1]))
    check(lambda x: m.gather_nd(x, tensor(index)), lambda x: x[columns], X, second=True)


def test_gather_nd_out_of_range():
    with pytest.raises(ValueError, match="gather_nd"):
        m.gather_nd(tensor(X), tensor([[2, 0]]))
    with pytest.raises(ValueError, match="at most 3"):
        m.gather_nd(tensor(X), tensor([[0, 0, 0, 0]]))


def test_index_sample():
    index = np.array([[0, 2, 2], [1, 1, 0]])
    check(m.index_sample, lambda x, i: x.gather(1, i), floats(2, 3), index)
    with pytest.raises(ValueError, match="equally many rows"):
        m.index_sample(tensor(floats(3, 3)), tensor(index))


def test_scatter_overwrites_or_adds():
    x = np.ones((3, 2), "float32")
    index = tensor([2, 1, 0, 1])
    updates = np.array([[1, 1], [2, 2], [3, 3], [4, 4]], "float32")
    got = m.scatter(tensor(x), index, tensor(updates), overwrite=False)
    np.testing.assert_array_equal(got.numpy(), [[3, 3], [6, 6], [1, 1]])
    # If there are several updates for a row, the last stays on the CPU, and any on
    # a GPU.
    index, updates = tensor([2, 0, 1]), updates[1:]
    got = m.scatter(tensor(x), index, tensor(updates))
    np.testing.assert_array_equal(got.numpy(), [[3, 3], [4, 4], [2, 2]])
    y = tensor(x)
    assert m.scatter_(y, index, tensor(updates)) is y
    np.testing.assert_array_equal(y.numpy(), got.numpy())


def test_scatter_gradient():
    index = np.array([2, 0])

    def with_torch(x, u):
        return x.index_copy(0, torch.from_numpy(index), u)

    check(
        lambda x, u: m.scatter(x, tensor(index), u),
        with_torch,
        floats(4, 2),
        floats(2, 2, seed=1),
        second=True,
    )


def test_scatter_bad_input():
    x, u = paddle.zeros([3, 2]), paddle.zeros([2, 2])
    with pytest.raises(ValueError, match=r"updates \[2, 2\] must have shape \[1, 2\]"):
        m.scatter(x, tensor([0]), u)
    with pytest.raises(ValueError, match="scatter"):
        m.scatter(x, tensor([0, 3]), u)
    with pytest.raises(ValueError, match="updates are int64"):
        m.scatter(x, tensor([0, 1]), paddle.zeros([2, 2], "int64"))


def test_scatter_nd():
    index = np.array([[1, 1], [0, 1], [1, 1]])

    def with_torch(x, u):
        i = torch.from_numpy(index)
        return x.index_put((i[:, 0], i[:, 1]), u, accumulate=True)

    check(
        lambda x, u: m.scatter_nd_add(x, tensor(index), u),
        with_torch,
        floats(3, 5, 2),
        floats(3, 2, seed=1),
        second=True,
    )
    got = m.scatter_nd(tensor(index), tensor(floats(3)), [2, 2])
    want = np.zeros((2, 2))
    np.add.at(want, tuple(index.T), floats(3))
    np.testing.assert_allclose(got.numpy(), want)
    with pytest.raises(ValueError, match="updates"):
        m.scatter_nd(tensor(index), tensor(floats(2)), [2, 2])


def test_take_along_axis():
    index = np.array([[0, 2], [1, 1]])
    check(
        lambda x, i: m.take_along_axis(x, i, 1),
        lambda x, i: x.gather(1, i),
        floats(2, 3),
        index,
        second=True,
    )
    got = m.take_along_axis(tensor(floats(2, 3)), tensor([[1]]), 1)
    np.testing.assert_array_equal(got.numpy(), floats(2, 3)[:, 1:2])
    with pytest.raises(ValueError, match="as many dimensions"):
        m.take_along_axis(tensor(floats(2, 3)), tensor([1]), 1)
    with pytest.raises(ValueError, match="take_along_axis"):
        m.take_along_axis(tensor(floats(2, 3)), tensor([[3]]), 1)


@pytest.mark.parametrize("reduce", ["assign", "add", "mul"])
def test_put_along_axis(reduce):
    index = np.array([[0, 2], [1, 0]])

    def with_torch(x, v):
        i = torch.from_numpy(index)
        if reduce == "assign":
            return x.scatter(1, i, v)
        kind = {"add": "sum", "mul": "prod"}[reduce]
        return x.scatter_reduce(1, i, v, kind)

    check(
        lambda x, v: m.put_along_axis(x, tensor(index), v, 1, reduce),
        with_torch,
        floats(2, 3),
        floats(2, 2, seed=1),
    )


def test_put_along_axis_with_a_number():
    got = m.put_along_axis(paddle.zeros([2, 3]), tensor([[0], [2]]), 5.0, 1)
    np.testing.assert_array_equal(got.numpy(), [[5, 0, 0], [0, 0, 5]])
    with pytest.raises(ValueError, match="reduce is 'median'"):
        m.put_along_axis(paddle.zeros([2]), tensor([0]), 5.0, 0, "median")


# ---- types and facts


def test_cast_keeps_the_gradient():
    check(lambda x: m.cast(x, "float32"), lambda x: x.float(), X)
    check(lambda x: m.cast(x, "float64"), lambda x: x.double(), X)
    assert m.cast(tensor(X), paddle.int32).dtype == paddle.int32
    assert m.cast(tensor([0.0, 2.5]), "bool").numpy().tolist() == [False, True]


def test_cast_to_the_same_type_is_no_alias_for_writing():
    x = paddle.zeros([2])
    y = m.cast(x, "float32")
    y[0] = 1.0
    assert x.numpy().tolist() == [0, 0]


def test_cast_bad_input():
    with pytest.raises(TypeError, match="'float31' is no element type"):
        m.cast(tensor(X), "float31")
    with pytest.raises(TypeError, match="'x' must be a Tensor"):
        m.cast([1.0], "int32")


def test_views_do_not_write_through():
    x = paddle.zeros([4])
    y = m.reshape(x, [2, 2])
    y[0, 0] = 1.0
    assert x.numpy().tolist() == [0, 0, 0, 0]
    x[3] = 2.0
    assert y.numpy().tolist() == [[1, 0], [0, 0]]


def test_increment():
    x = paddle.zeros([1], "int64")
    assert m.increment(x) is x
    m.increment(x, 4)
    assert x.numpy().tolist() == [5] and x.dtype == paddle.int64
    with pytest.raises(ValueError, match="one element"):
        m.increment(paddle.zeros([2]))


def test_numel():
    n = m.numel(tensor(X))
    assert n.shape == [1] and n.dtype == paddle.int64 and n.item() == 24


def test_shard_index():
    got = m.shard_index(tensor([[1], [6], [12], [19]]), 20, 2, 0, -1)
    assert got.numpy().tolist() == [[1], [6], [-1], [-1]]
    got = m.shard_index(tensor([[1], [6], [12], [19]]), 20, 2, 1)
    assert got.numpy().tolist() == [[-1], [-1], [2], [9]]
    with pytest.raises(ValueError, match=r"shard_id 2 must lie in \[0, 2\)"):
        m.shard_index(tensor([1]), 20, 2, 2)
    with pytest.raises(ValueError, match="outside of"):
        m.shard_index(tensor([20]), 20, 2, 1)


def test_as_complex_and_back():
    x = floats(3, 2)
    z = m.as_complex(tensor(x))
    np.testing.assert_array_equal(z.numpy(), x[:, 0] + 1j * x[:, 1])
    np.testing.assert_array_equal(m.as_real(z).numpy(), x)
    with pytest.raises(ValueError, match="last dimension of 2"):
        m.as_complex(tensor(floats(2, 3)))


def test_pairs_that_begin_at_an_odd_place():
    x = floats(7)
    z = m.as_complex(m.reshape(tensor(x)[1:], [3, 2]))
    np.testing.assert_array_equal(z.numpy(), x[1::2] + 1j * x[2::2])
    # The gradient of the second part begins there.
    p = tensor(floats(2), stop_gradient=False)
    both = m.concat([tensor(floats(1)), m.as_real(m.as_complex(p))])
    (both * tensor([1.0, 2.0, 3.0], dtype=both.dtype)).sum().backward()
    assert p.grad.tolist() == [2, 3]


def test_empty_tensors_pass_through():
    x = paddle.zeros([0, 3])
    assert m.reshape(x, [-1, 1]).shape == [0, 1]
    assert m.concat([x, paddle.ones([2, 3])]).shape == [2, 3]
    assert m.tile(x, [2, 2]).shape == [0, 6]
    assert m.gather(paddle.ones([2, 3]), paddle.zeros([0], "int64")).shape == [0, 3]


def test_functions_are_methods_too():
    x = tensor(X)
    assert x.reshape([6, 4]).unsqueeze(0).squeeze().flatten().shape == [24]
    assert x.transpose([2, 1, 0]).shape == [4, 3, 2]
    assert x.shape == [2, 3, 4]
    assert x.cast("int32").dtype == paddle.int32
