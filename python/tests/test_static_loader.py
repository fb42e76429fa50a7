# SPDX-License-Identifier: Apache-2.0
"""Loaders that feed programs."""

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
from paddle import static
from paddle.io import DataLoader, Dataset
from static_check import fresh_programs, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")

ROWS = [(np.array([i, i + 1], "float32"), i % 3) for i in range(10)]


def sum_of_a_batch():
    x = static.data("x", [None, 2])
    y = static.data("y", [None, 1], "int64")
    return [x, y], paddle.sum(x) + paddle.cast(paddle.sum(y), "float32")


def sums(size):
    """What the program gives for batches of `size` rows."""
    batches = [ROWS[i : i + size] for i in range(0, 10, size)]
    return [sum(x.sum() + y for x, y in batch) for batch in batches]


def samples():
    yield from ROWS


def lists():
    for i in range(0, 10, 4):
        yield ROWS[i : i + 4]


def arrays():
    for rows in lists():
        yield np.stack([x for x, _ in rows]), np.array([[y] for _, y in rows])


SOURCES = {
    "set_sample_generator": lambda loader: loader.set_sample_generator(
        samples, 4, drop_last=False
    ),
    "set_sample_list_generator": lambda loader: loader.set_sample_list_generator(lists),
    "set_batch_generator": lambda loader: loader.set_batch_generator(
        arrays, places=paddle.CPUPlace()
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_an_iterable_loader_gives_feeds(source):
    variables, out = sum_of_a_batch()
    loader = SOURCES[source](DataLoader.from_generator(variables, capacity=2))
    executor = static.Executor(paddle.CPUPlace())
    for _ in range(2):
        got = [executor.run(feed=feed, fetch_list=[out])[0].item() for feed in loader()]
        np.testing.assert_allclose(got, sums(4))


def test_an_iterable_loader_gives_lists_on_demand():
    variables, _ = sum_of_a_batch()
    loader = DataLoader.from_generator(variables, capacity=2, return_list=True)
    x, y = next(iter(loader.set_sample_generator(samples, 3)))
    assert (x.shape, y.shape, y.dtype) == ((3, 2), (3, 1), np.int64)


@pytest.mark.parametrize("source", SOURCES)
def test_a_loader_that_is_not_iterable_feeds_the_program(source):
    variables, out = sum_of_a_batch()
    loader = DataLoader.from_generator(feed_list=variables, capacity=2, iterable=False)
    SOURCES[source](loader)
    executor = static.Executor(paddle.CPUPlace())
    for _ in range(2):
        loader.start()
        got = []
        try:
            while True:
                got.append(executor.run(fetch_list=[out])[0].item())
        except paddle.core.EOFException:
            loader.reset()
        np.testing.assert_allclose(got, sums(4))
    with pytest.raises(RuntimeError, match="not started"):
        executor.run(fetch_list=[out])
    feed = {"x": np.ones((1, 2), "float32"), "y": np.ones((1, 1), "int64")}
    assert executor.run(feed=feed, fetch_list=[out])[0].item() == 3.0


def test_a_loader_can_be_reset_early_and_says_what_it_needs():
    variables, out = sum_of_a_batch()
    loader = DataLoader.from_generator(variables, capacity=1, iterable=False)
    with pytest.raises(RuntimeError, match="no data source"):
        loader.start()
    loader.set_sample_list_generator(lists)
    executor = static.Executor(paddle.CPUPlace())
    for _ in range(3):
        loader.start()
        got = executor.run(fetch_list=[out])[0].item()
        assert got == pytest.approx(sums(4)[0])
        loader.reset()
    loader.start()
    with pytest.raises(RuntimeError, match="already"):
        loader.start()
    loader.reset()
    with pytest.raises(RuntimeError, match="run it without feed"):
        iter(loader)
    with pytest.raises(ValueError, match="feed_list"):
        DataLoader.from_generator(capacity=1, iterable=False)
    iterable = DataLoader.from_generator(variables, capacity=1)
    for method in (iterable.start, iterable.reset):
        with pytest.raises(RuntimeError, match="iterable=False"):
            method()


def test_an_exception_of_the_generator_reaches_the_run():
    variables, out = sum_of_a_batch()
    loader = DataLoader.from_generator(variables, capacity=1, iterable=False)

    def broken():
        yield ROWS[:2]
        raise OSError("the disk is gone")

    loader.set_sample_list_generator(broken)
    loader.start()
    executor = static.Executor(paddle.CPUPlace())
    executor.run(fetch_list=[out])
    with pytest.raises(OSError, match="the disk is gone"):
        executor.run(fetch_list=[out])
    loader.reset()


def test_samples_that_do_not_fit_are_named():
    variables, _ = sum_of_a_batch()
    loader = DataLoader.from_generator(variables, capacity=1)
    loader.set_sample_list_generator(lambda: iter([[(1, 2, 3)]]))
    with pytest.raises(ValueError, match="3 fields, but there are 2 variables"):
        next(iter(loader))
    loader.set_sample_list_generator(lambda: iter([[(np.ones(3), 1)]]))
    x = fluid.DataFeeder([static.data("z", [None, 2, 2])], paddle.CPUPlace())
    with pytest.raises(ValueError, match="z has shape"):
        x.feed([(np.ones(3),)])


class Rows(Dataset):
    def __getitem__(self, index):
        x, y = ROWS[index]
        return x, np.array([y])

    def __len__(self):
        return len(ROWS)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_over_a_dataset_feeds_by_its_feed_list(num_workers):
    variables, out = sum_of_a_batch()
    loader = DataLoader(
        Rows(),
        feed_list=variables,
        places=paddle.static.cpu_places(1),
        batch_size=4,
        num_workers=num_workers,
    )
    executor = static.Executor(paddle.CPUPlace())
    got = [executor.run(feed=feed, fetch_list=[out])[0].item() for feed in loader]
    np.testing.assert_allclose(got, sums(4))
    listed = DataLoader(Rows(), feed_list=variables, batch_size=4, return_list=True)
    x, y = next(iter(listed))
    assert (x.shape, y.shape) == ([4, 2], [4, 1])


# ---- fluid


def test_data_feeder_makes_what_the_variables_want():
    x = static.data("x", [None, 2])
    y = static.data("y", [None, 1], "int64")
    feeder = fluid.DataFeeder(["x", y], paddle.CPUPlace())
    fed = feeder.feed([([1, 2], 3), ((4, 5), 6)])
    np.testing.assert_array_equal(fed["x"], np.array([[1, 2], [4, 5]], "float32"))
    np.testing.assert_array_equal(fed["y"], np.array([[3], [6]]))
    assert fed["x"].dtype == np.float32 and fed["y"].dtype == np.int64
    reader = feeder.decorate_reader(lambda: iter([[([1, 2], 3)]]), multi_devices=False)
    assert set(next(reader())) == {x.name, y.name}
    (parallel,) = feeder.feed_parallel([[([1, 2], 3)]])
    assert parallel["x"].shape == (1, 2)


def test_data_feeder_joins_sequences():
    words = static.data("words", [None, 1], "int64", lod_level=1)
    feeder = fluid.DataFeeder([words], fluid.CPUPlace())
    fed = feeder.feed([([1, 2, 3],), ([4],)])["words"]
    assert isinstance(fed, fluid.LoDTensor)
    assert fed.recursive_sequence_lengths() == [[3, 1]]
    np.testing.assert_array_equal(np.array(fed), [[1], [2], [3], [4]])


def test_py_reader_of_fluid():
    reader = fluid.layers.py_reader(
        capacity=2, shapes=[[-1, 2], [-1, 1]], dtypes=["float32", "int64"]
    )
    x, y = fluid.layers.read_file(fluid.layers.double_buffer(reader))
    out = paddle.sum(x) + paddle.cast(paddle.sum(y), "float32")
    reader.decorate_paddle_reader(lists)
    executor = fluid.Executor(fluid.CPUPlace())
    reader.start()
    got = []
    with pytest.raises(fluid.core.EOFException):
        while True:
            got.append(executor.run(fetch_list=[out])[0].item())
    reader.reset()
    np.testing.assert_allclose(got, sums(4))
    with pytest.raises(ValueError, match="do not belong together"):
        fluid.layers.py_reader(2, [[-1, 2]], ["float32", "int64"])


def test_readers_by_data_and_pyreader_of_fluid():
    variables, out = sum_of_a_batch()
    reader = fluid.layers.create_py_reader_by_data(2, variables)
    assert fluid.layers.read_file(reader) == variables
    reader.decorate_tensor_provider(arrays)
    executor = fluid.Executor(fluid.CPUPlace())
    reader.start()
    assert executor.run(fetch_list=[out])[0].item() == pytest.approx(sums(4)[0])
    reader.reset()
    iterable = fluid.io.PyReader(variables, capacity=2, iterable=True)
    iterable.decorate_sample_list_generator(lists, places=fluid.CPUPlace())
    got = [executor.run(feed=feed, fetch_list=[out])[0].item() for feed in iterable()]
    np.testing.assert_allclose(got, sums(4))


def test_a_model_trains_from_a_loader():
    x = static.data("x", [None, 2])
    y = static.data("y", [None, 1], "int64")
    prediction = static.nn.fc(x, 3, activation="softmax")
    loss = paddle.mean(static.nn.cross_entropy(prediction, y))
    paddle.optimizer.SGD(0.01).minimize(loss)
    loader = DataLoader.from_generator([x, y], capacity=4, iterable=False)
    loader.set_sample_generator(samples, 5)
    start()
    before = value_of("fc_0.w_0")
    executor = static.Executor(paddle.CPUPlace())
    loader.start()
    for _ in range(2):
        executor.run(fetch_list=[loss])
    with pytest.raises(paddle.core.EOFException):
        executor.run(fetch_list=[loss])
    loader.reset()
    assert (value_of("fc_0.w_0") != before).any()
