# SPDX-License-Identifier: Apache-2.0
"""paddle.io: datasets, samplers and collation."""

import numpy as np
import paddle
import pytest
from io_samples import Count, Squares, num
from paddle.io import (
    BatchSampler,
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Dataset,
    DistributedBatchSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequenceSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate_fn,
    default_convert_fn,
    random_split,
)

# Datasets


def test_base_datasets_say_which_method_is_missing():
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotImplementedError, match="__len__"):
        len(Dataset())
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(IterableDataset())
    with pytest.raises(RuntimeError, match="iterate over it"):
        IterableDataset()[0]
    with pytest.raises(TypeError, match="no len"):
        len(IterableDataset())


def test_tensor_dataset_gives_the_rows_of_every_tensor():
    x, y = np.arange(12).reshape(4, 3), np.arange(4)
    dataset = TensorDataset([x, y])
    assert len(dataset) == 4
    row, label = dataset[2]
    np.testing.assert_array_equal(row, [6, 7, 8])
    assert label == 2
    with pytest.raises(ValueError, match=r"first dimension: \[4, 3\]"):
        TensorDataset([x, y[:3]])


def test_compose_dataset_joins_fields():
    dataset = ComposeDataset([Squares(3), range(10, 13)])
    array, square, third = dataset[2]
    np.testing.assert_array_equal(array, np.full((2, 3), 2))
    assert (square, third, len(dataset)) == (4, 12, 3)
    with pytest.raises(ValueError, match=r"differ in length: \[3, 4\]"):
        ComposeDataset([Squares(3), Squares(4)])
    with pytest.raises(TypeError, match="dataset 1 is an IterableDataset"):
        ComposeDataset([Squares(3), Count(3)])


def test_chain_dataset_runs_one_after_the_other():
    chained = ChainDataset([Count(2), Count(3)])
    assert [int(v[0]) for v in chained] == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError, match="dataset 1 is a Squares"):
        ChainDataset([Count(2), Squares(2)])


def test_concat_dataset_indexes_across_its_parts():
    dataset = ConcatDataset([range(3), [], range(10, 12)])
    assert [dataset[i] for i in range(len(dataset))] == [0, 1, 2, 10, 11]
    assert (dataset[-1], dataset[-5]) == (11, 0)
    for index in (5, -6):
        with pytest.raises(IndexError, match="5 samples"):
            dataset[index]


def test_random_split_partitions_the_dataset():
    first, second = random_split(range(100, 110), [3, 7])
    values = [first[i] for i in range(3)] + [second[i] for i in range(7)]
    assert sorted(values) == list(range(100, 110))
    assert (len(first), len(second)) == (3, 7)
    again = [
        random_split(range(10), [4, 6], np.random.RandomState(3))[0].indices
        for _ in range(2)
    ]
    assert again[0] == again[1]
    by_seed = []
    for seed in (7, 7, 8):
        paddle.seed(seed)
        by_seed.append(random_split(range(50), [25, 25])[0].indices)
    assert by_seed[0] == by_seed[1] != by_seed[2]
    with pytest.raises(ValueError, match="add up to 11, but the dataset has 10"):
        random_split(range(10), [5, 6])


def test_subset_may_repeat_samples():
    subset = Subset(range(1, 4), [1, 1, 0])
    assert [subset[i] for i in range(len(subset))] == [2, 2, 1]


# Samplers


def test_random_sampler_is_a_permutation_that_follows_the_numpy_seed():
    np.random.seed(5)
    first = list(RandomSampler(range(20)))
    np.random.seed(5)
    assert first == list(RandomSampler(range(20)))
    assert sorted(first) == list(range(20)) and first != list(range(20))
    np.random.seed(5)
    assert first == np.random.choice(np.arange(20), 20, replace=False).tolist()


def test_random_sampler_with_replacement_and_with_a_generator():
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=50))
    assert len(drawn) == 50 and set(drawn) <= {0, 1, 2}
    assert list(RandomSampler(range(3), generator=iter([2, 2, 1, 0]))) == [2, 2, 1]
    with pytest.raises(ValueError, match="the dataset is empty"):
        RandomSampler([])
    with pytest.raises(ValueError, match="needs replacement=True"):
        RandomSampler(range(3), num_samples=2)
    with pytest.raises(TypeError, match="replacement"):
        RandomSampler(range(3), replacement=1)


def test_weighted_sampler_follows_its_weights():
    np.random.seed(0)
    drawn = list(WeightedRandomSampler([0, 1, 3], 4000))
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] == 0
    assert abs(counts[2] / 4000 - 0.75) < 0.03
    rows = WeightedRandomSampler([[0, 1], [1, 0]], 3)
    assert list(rows) == [1, 1, 1, 0, 0, 0] and len(rows) == 6
    assert sorted(WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]


@pytest.mark.parametrize(
    "weights, kwargs, message",
    [
        ([1, -1], {}, "not negative"),
        ([1, np.nan], {}, "finite"),
        ([0, 0], {}, "at least 1 positive"),
        ([1, 0], {"replacement": False}, "at least 2 positive"),
        ([[[1]]], {}, r"shape \[1, 1, 1\]"),
    ],
)
def test_weighted_sampler_refuses_bad_weights(weights, kwargs, message):
    with pytest.raises(ValueError, match=message):
        WeightedRandomSampler(weights, 2, **kwargs)


def test_batch_sampler_cuts_a_sampler_into_lists():
    assert list(BatchSampler(range(5), batch_size=2)) == [[0, 1], [2, 3], [4]]
    dropping = BatchSampler(sampler=SequenceSampler(range(5)), batch_size=2)
    dropping.drop_last = True
    assert list(dropping) == [[0, 1], [2, 3]] and len(dropping) == 2
    assert len(BatchSampler(range(5), batch_size=2)) == 3
    assert len(BatchSampler([], batch_size=2)) == 0
    shuffled = list(BatchSampler(range(6), shuffle=True, batch_size=3))
    assert sorted(sum(shuffled, [])) == list(range(6))


def test_batch_sampler_refuses_contradictions():
    with pytest.raises(ValueError, match="either dataset or sampler"):
        BatchSampler()
    with pytest.raises(ValueError, match="either dataset or sampler"):
        BatchSampler(range(3), sampler=SequenceSampler(range(3)))
    with pytest.raises(ValueError, match="shuffle has no effect"):
        BatchSampler(sampler=SequenceSampler(range(3)), shuffle=True)
    with pytest.raises(ValueError, match="batch_size must be a positive"):
        BatchSampler(range(3), batch_size=0)
    with pytest.raises(TypeError, match="IterableDataset"):
        BatchSampler(Count(3))
    with pytest.raises(NotImplementedError, match="__iter__"):
        list(Sampler())


def test_distributed_sampler_interleaves_blocks_and_repeats_the_head():
    # 11 samples, 2 ranks: 0 is repeated to make 12; blocks of 2 alternate, and
    # the last 4 indices, 8 9 10 0, make one block for each.
    expected = {
        0: [[0, 1], [4, 5], [8, 9]],
        1: [[2, 3], [6, 7], [10, 0]],
    }
    for rank, batches in expected.items():
        sampler = DistributedBatchSampler(range(11), 2, num_replicas=2, rank=rank)
        assert list(sampler) == batches
        assert len(sampler) == 3
    # 10 samples, blocks of 3: the remaining 4 are cut into halves.
    expected = {0: [[0, 1, 2], [6, 7]], 1: [[3, 4, 5], [8, 9]]}
    for rank, batches in expected.items():
        sampler = DistributedBatchSampler(range(10), 3, num_replicas=2, rank=rank)
        assert list(sampler) == batches
        sampler = DistributedBatchSampler(range(10), 3, 2, rank, drop_last=True)
        assert list(sampler) == batches[:1] and len(sampler) == 1


@pytest.mark.parametrize("size", [0, 1, 2, 7, 24, 25, 100])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_distributed_sampler_shares_every_sample(size, ranks, batch_size):
    samplers = [
        DistributedBatchSampler(range(size), batch_size, ranks, rank, shuffle=True)
        for rank in range(ranks)
    ]
    for _ in range(2):
        shares = [list(sampler) for sampler in samplers]
        assert all(len(s) == len(sampler) for s, sampler in zip(shares, samplers))
        flat = [sum(share, []) for share in shares]
        assert {len(share) for share in flat} == {-(-size // ranks)}
        assert set(sum(flat, [])) == set(range(size))


def test_distributed_sampler_shuffles_by_epoch():
    sampler = DistributedBatchSampler(range(9), 9, 1, 0, shuffle=True)
    for epoch in range(2):
        expected = list(range(9))
        np.random.RandomState(epoch).shuffle(expected)
        assert list(sampler) == [expected]
    sampler.set_epoch(0)
    np.random.RandomState(0).shuffle(expected := list(range(9)))
    assert list(sampler) == [expected]


def test_distributed_sampler_takes_its_place_from_the_environment(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "4")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    sampler = DistributedBatchSampler(range(8), 1)
    assert list(sampler) == [[2], [6]]
    with pytest.raises(ValueError, match=r"rank must be in \[0, 2\), but is 2"):
        DistributedBatchSampler(range(8), 1, num_replicas=2, rank=2)


# Collation


def test_collate_stacks_by_kind():
    def sample(i):
        return {
            "image": np.full((2,), i, "uint8"),
            "label": i,
            "weight": i / 2,
            "flag": i > 1,
            "name": f"s{i}",
            "pair": (np.float64(i), np.int64(i)),
        }

    batch = default_collate_fn([sample(i) for i in range(3)])
    assert num(batch["image"]).dtype == np.uint8
    np.testing.assert_array_equal(num(batch["image"]), [[0, 0], [1, 1], [2, 2]])
    assert num(batch["label"]).dtype == np.int64
    assert num(batch["weight"]).dtype == np.float32
    np.testing.assert_array_equal(num(batch["weight"]), [0, 0.5, 1])
    assert num(batch["flag"]).dtype == np.bool_
    assert batch["name"] == ["s0", "s1", "s2"]
    assert [num(v).dtype for v in batch["pair"]] == [np.float64, np.int64]


def test_collate_promotes_mixed_dtypes_and_byte_orders():
    mixed = default_collate_fn([np.ones(2, "float32"), np.ones(2, "float64") / 3])
    assert num(mixed).dtype == np.float64
    np.testing.assert_array_equal(num(mixed)[1], np.ones(2) / 3)
    swapped = default_collate_fn([np.array([1, 2], ">i4")] * 2)
    assert num(swapped).dtype == np.dtype("=i4")
    np.testing.assert_array_equal(num(swapped), [[1, 2], [1, 2]])
    numbers = default_collate_fn([1, 2.5])
    np.testing.assert_array_equal(num(numbers), np.array([1, 2.5], "float32"))


def test_python_floats_become_the_default_dtype():
    paddle.set_default_dtype("float64")
    try:
        assert num(default_collate_fn([0.1, 0.2])).dtype == np.float64
    finally:
        paddle.set_default_dtype("float32")
    assert num(default_collate_fn([0.1, 0.2])).dtype == np.float32


def test_collate_names_the_field_that_does_not_fit():
    with pytest.raises(ValueError, match=r"field \[0\] has shape \[2\] in sample 0"):
        default_collate_fn([(np.zeros(2), 1), (np.zeros(3), 1)])
    with pytest.raises(ValueError, match=r"\[3\] in sample 1"):
        default_collate_fn([(np.zeros(2), 1), (np.zeros(3), 1)])
    with pytest.raises(ValueError, match="2 fields in sample 0.* 1 in sample 1"):
        default_collate_fn([(1, 2), (1,)])
    with pytest.raises(ValueError, match="key 'a' in sample 0.* not in sample 1"):
        default_collate_fn([{"a": 1}, {"b": 1}])
    with pytest.raises(TypeError, match=r"field \['x'\] is a object"):
        default_collate_fn([{"x": object()}])
    with pytest.raises(TypeError, match="a NoneType in sample 1"):
        default_collate_fn([np.zeros(2), None])


def test_convert_rebuilds_containers_only():
    array = np.ones(3)
    converted = default_convert_fn({"a": (array, "text"), "b": 3})
    assert converted["a"][0] is array
    assert converted == {"a": [array, "text"], "b": 3}
