# SPDX-License-Identifier: Apache-2.0
"""Datasets of files, and programs that train from them."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import paddle
import pytest
from paddle import fluid, static
from paddle.distributed import (
    FileInstantDataset,
    InMemoryDataset,
    QueueDataset,
    fleet,
)
from paddle.io import DataLoader
from static_check import fresh_programs, start, value_of  # noqa: F401

pytestmark = pytest.mark.usefixtures("fresh_programs")

KEYS = 50


class Ctr:
    """Samples of a click model, as arrays and as files."""

    def __init__(self, folder, num_samples=200, num_files=3):
        rng = np.random.default_rng(0)
        self.ids = [
            rng.integers(0, KEYS, rng.integers(1, 6)) for _ in range(num_samples)
        ]
        self.dense = rng.random((num_samples, 3)).astype("float32")
        sums = np.array([np.sum(ids % 2 * 2 - 1) for ids in self.ids])
        self.labels = (sums + self.dense.sum(1) > 1.5).astype("int64")
        lines = [self._line(i) for i in range(num_samples)]
        self.files = []
        for i, part in enumerate(np.array_split(np.array(lines), num_files)):
            path = folder / f"part-{i}"
            path.write_text("".join(part))
            self.files.append(str(path))

    def _line(self, i):
        groups = [self.ids[i], [f"{x:.9g}" for x in self.dense[i]], [self.labels[i]]]
        return " ".join(f"{len(g)} {' '.join(map(str, g))}" for g in groups) + "\n"

    def __len__(self):
        return len(self.ids)


@pytest.fixture
def ctr(tmp_path):
    return Ctr(tmp_path)


def ctr_variables():
    ids = static.data("ids", [None, 1], "int64", lod_level=1)
    dense = static.data("dense", [None, 3])
    label = static.data("label", [None, 1], "int64")
    return ids, dense, label


def ctr_model(optimizer=None):
    """(variables, loss)"""
    ids, dense, label = ctr_variables()
    rows = fluid.layers.embedding(ids, [KEYS, 8], is_sparse=True)
    pooled = fluid.layers.sequence_pool(rows, "sum")
    joined = paddle.concat([pooled, dense], axis=1)
    hidden = static.nn.fc(joined, 16, activation="relu")
    predicted = static.nn.fc(hidden, 2, activation="softmax")
    loss = paddle.mean(static.nn.cross_entropy(predicted, label))
    if optimizer is not None:
        optimizer.minimize(loss)
    return [ids, dense, label], loss


def make(kind, ctr, variables, batch_size=16, **settings):
    dataset = kind()
    dataset.init(batch_size=batch_size, use_var=variables, **settings)
    dataset.set_filelist(ctr.files)
    if kind is InMemoryDataset:
        dataset.load_into_memory()
    return dataset


def batches(dataset, drop_last=False):
    return [feed for (feed,) in DataLoader.from_dataset(dataset, None, drop_last)]


def parameters():
    scope = static.global_scope()
    return {
        p.name: np.array(scope.find_var(p.name).get_tensor())
        for p in static.default_main_program().all_parameters()
    }


# ---- reading


@pytest.mark.parametrize("kind", [InMemoryDataset, QueueDataset, FileInstantDataset])
def test_batches_hold_what_the_files_hold(ctr, kind):
    dataset = make(kind, ctr, ctr_variables(), batch_size=16)
    read = batches(dataset)
    assert [len(np.array(b["label"])) for b in read] == [16] * 12 + [8]
    begin = 0
    for batch in read:
        end = begin + len(np.array(batch["label"]))
        ids, lod = np.array(batch["ids"]), batch["ids"].lod()[0]
        assert lod == [0, *np.cumsum([len(x) for x in ctr.ids[begin:end]])]
        assert ids.shape == (lod[-1], 1) and ids.dtype == np.int64
        assert ids[:, 0].tolist() == np.concatenate(ctr.ids[begin:end]).tolist()
        dense = batch["dense"].numpy()
        assert dense.dtype == np.float32 and (dense == ctr.dense[begin:end]).all()
        assert batch["label"].numpy()[:, 0].tolist() == ctr.labels[begin:end].tolist()
        begin = end
    assert begin == len(ctr)
    assert len(batches(dataset, drop_last=True)) == 12
    assert len(batches(dataset)) == 13  # a pass begins anew


def test_keys_of_64_bits(tmp_path):
    path = tmp_path / "keys"
    path.write_text("3 18446744073709551615 9223372036854775808 7\n")
    dataset = QueueDataset()
    dataset.init(use_var=[static.data("k", [None], "int64", lod_level=1)])
    dataset.set_filelist([path])
    (batch,) = batches(dataset)
    keys = np.array(batch["k"]).astype("uint64")
    assert keys.tolist() == [2**64 - 1, 2**63, 7]


def test_sizes_preload_and_release(ctr):
    dataset = InMemoryDataset()
    dataset.init(use_var=ctr_variables(), thread_num=2)
    with pytest.raises(RuntimeError, match="set_filelist"):
        dataset.load_into_memory()
    dataset.set_filelist(ctr.files)
    with pytest.raises(RuntimeError, match="load_into_memory"):
        batches(dataset)
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == dataset.get_shuffle_data_size() == 200
    assert dataset.read_stats["samples"] == 200
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0
    with pytest.raises(RuntimeError, match="preload"):
        dataset.wait_preload_done()


def labels_of(dataset):
    return np.concatenate([b["dense"].numpy()[:, 0] for b in batches(dataset)]).tolist()


def test_a_local_shuffle_is_repeated_by_the_seed(ctr):
    dataset = make(InMemoryDataset, ctr, ctr_variables())
    before = labels_of(dataset)
    orders = []
    for seed in (3, 3, 4):
        dataset.load_into_memory()
        paddle.seed(seed)
        dataset.local_shuffle()
        orders.append(labels_of(dataset))
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != before and sorted(orders[0]) == sorted(before)
    dataset.load_into_memory()
    dataset.global_shuffle()  # alone
    assert sorted(labels_of(dataset)) == sorted(before)


def test_slots_shuffle(ctr):
    dataset = make(InMemoryDataset, ctr, ctr_variables(), batch_size=200)
    with pytest.raises(ValueError, match="fea_eval"):
        dataset.slots_shuffle(["ids"])
    dataset._init_distributed_settings(fea_eval=True)
    dataset.slots_shuffle(["ids"])
    (batch,) = batches(dataset)
    assert (batch["dense"].numpy() == ctr.dense).all()
    ids = np.array(batch["ids"])[:, 0].tolist()
    assert ids != np.concatenate(ctr.ids).tolist()
    assert sorted(ids) == sorted(np.concatenate(ctr.ids).tolist())


# ---- what is wrong


def test_wrong_lines_name_file_line_and_slot(ctr):
    with open(ctr.files[1], "a") as file:
        file.write("1 5 3 0.5 0.5 none 1 0\n1 5 3 1 2 3\n")
    number = len(open(ctr.files[1]).readlines()) - 1
    variables = ctr_variables()
    expected = (
        f"{ctr.files[1]}:{number}: slot 'dense' \\(2 of 3\\): expected a number as value "
        "3 of 3, but found 'none'"
    )
    with pytest.raises(ValueError, match=expected):
        make(InMemoryDataset, ctr, variables)
    with pytest.raises(ValueError, match=expected):
        batches(make(QueueDataset, ctr, variables))
    dataset = make(InMemoryDataset, ctr, variables, skip_bad_lines=True)
    assert dataset.get_memory_data_size() == 200
    assert dataset.read_stats["skipped"] == 2
    assert "slot 'dense'" in dataset.read_stats["first_skipped"]


def test_a_missing_file(ctr):
    ctr.files.append("/no/such/file")
    with pytest.raises(FileNotFoundError, match="/no/such/file"):
        make(InMemoryDataset, ctr, ctr_variables())


def test_what_datasets_do_not_take(ctr):
    variables = ctr_variables()
    with pytest.raises(ValueError, match=r"sh -c 'python r.py \| sort'"):
        batches(make(QueueDataset, ctr, variables, pipe_command="python r.py | sort"))
    with pytest.raises(ValueError, match="dtype=float32, dtype=int64"):
        QueueDataset().init(use_var=[static.data("h", [None, 1], "float64")])
    with pytest.raises(ValueError, match="unknown size"):
        open_width = static.data("o", [None, None])
        batches(make(QueueDataset, ctr, [open_width]))
    with pytest.raises(ValueError, match="batch_size"):
        QueueDataset().init(batch_size=0)
    with pytest.raises(ValueError, match="thread_num"):
        QueueDataset().init(thread_num=0)
    with pytest.raises(ValueError, match="use_var"):
        batches(make(QueueDataset, ctr, []))
    with pytest.raises(TypeError, match="list of paths"):
        QueueDataset().set_filelist("part-0")
    with pytest.raises(NotImplementedError, match="files are local"):
        QueueDataset().init(fs_name="hdfs://x")
    with pytest.raises(RuntimeError, match="set_filelist"):
        batches(QueueDataset())
    with pytest.raises(NotImplementedError, match="InMemoryDataset"):
        QueueDataset().local_shuffle()
    with pytest.raises(NotImplementedError, match="InMemoryDataset"):
        paddle.distributed.BoxPSDataset()
    with pytest.raises(ValueError, match="no setting"):
        InMemoryDataset().update_settings(colour=1)


# ---- commands

READER = """
import os
import signal
import subprocess
import sys
from paddle.distributed import fleet

class Reader(fleet.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            a, b = line.split(",")
            if a == "bad":
                raise RuntimeError("a line that cannot be read")
            yield [("x", [float(a), float(b)]), ("y", [int(float(a) > float(b))])]
        return samples

Reader().run_from_stdin()
"""


@pytest.fixture
def reader(tmp_path):
    """A dataset over lines of another form, by way of a script."""
    script, data = tmp_path / "my reader.py", tmp_path / "data.csv"
    script.write_text(textwrap.dedent(READER))
    data.write_text("1.5,2\n3,0.5\n")
    dataset = QueueDataset()
    variables = [static.data("x", [None, 2]), static.data("y", [None, 1], "int64")]
    dataset.init(
        batch_size=10,
        use_var=variables,
        pipe_command=f"{sys.executable} '{script}'",
    )
    dataset.set_filelist([data])
    return dataset, data


def test_a_generator_as_pipe_command(reader):
    (batch,) = batches(reader[0])
    assert batch["x"].numpy().tolist() == [[1.5, 2], [3, 0.5]]
    assert batch["y"].numpy().tolist() == [[0], [1]]


def test_a_command_that_fails_says_what_it_said(reader):
    dataset, data = reader
    data.write_text("1.5,2\nbad,0.5\n")
    with pytest.raises(RuntimeError, match="a line that cannot be read") as caught:
        batches(dataset)
    assert "exit status 1" in str(caught.value) and str(data) in str(caught.value)


def gen(generator, sample):
    return generator._gen_str(sample)


def test_generators_write_slots():
    strings = fleet.MultiSlotStringDataGenerator()
    words = [("words", ["1926", "08"]), ("label", ["1"])]
    assert gen(strings, words) == "2 1926 08 1 1\n"
    numbers = fluid.incubate.data_generator.MultiSlotDataGenerator()
    assert gen(numbers, [("w", [1, 2]), ("l", [0.5])]) == "2 1 2 1 0.5\n"
    assert numbers._proto_info == [("w", "uint64"), ("l", "float")]
    for wrong, message in (
        (7, "list or tuple"),
        ([("w", [1])], "inconsistent"),
        ([("w", [1]), ("x", [1])], "not match: require<l>, get<x>"),
        ([("w", []), ("l", [1])], "can not be empty"),
        ([("w", ["a"]), ("l", [1])], "must be in int or float"),
        ([("w", (1,)), ("l", [1])], "must be in list type"),
        ([(1, [1]), ("l", [1])], "must be in str type"),
    ):
        with pytest.raises(ValueError, match=message):
            gen(numbers, wrong)
    with pytest.raises(NotImplementedError):
        fleet.data_generator.DataGenerator().generate_sample("")
    with pytest.raises(ValueError, match="line_limit"):
        numbers._set_line_limit(0)


class Counting(fleet.MultiSlotDataGenerator):
    """Samples from nothing, in batches that know their size."""

    def generate_sample(self, line):
        def samples():
            for i in range(5):
                yield None if i == 2 else [("i", [i])]

        return samples

    def generate_batch(self, samples):
        def batch():
            for sample in samples:
                yield [*sample, ("n", [len(samples)])]

        return batch


def test_a_generator_without_input(capsys):
    generator = Counting()
    generator.set_batch(3)
    generator.run_from_memory()
    assert capsys.readouterr().out == "1 0 1 3\n1 1 1 3\n1 3 1 3\n1 4 1 1\n"


# ---- training


@pytest.mark.parametrize("kind", [InMemoryDataset, QueueDataset])
@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_training_is_a_loop_over_the_batches(ctr, kind, rule):
    paddle.seed(1)
    variables, loss = ctr_model(getattr(paddle.optimizer, rule)(0.05))
    start()
    dataset = make(kind, ctr, variables)
    scope = static.global_scope()
    names = [v.name for v in static.default_main_program().list_vars() if v.persistable]
    begin = {
        n: np.array(scope.find_var(n).get_tensor())
        for n in names
        if scope.find_var(n) is not None
    }
    executor = static.Executor(paddle.CPUPlace())
    for _ in range(3):
        executor.train_from_dataset(dataset=dataset)
    trained = parameters()

    for name, value in begin.items():
        scope.find_var(name).get_tensor().set(value)
    for _ in range(3):
        for feed in batches(dataset):
            executor.run(feed=feed, fetch_list=[loss])
    for name, value in parameters().items():
        np.testing.assert_allclose(trained[name], value, rtol=1e-6, atol=1e-7)


def mean_loss(dataset, loss, program):
    executor = static.Executor(paddle.CPUPlace())
    values = [
        executor.run(program, feed=f, fetch_list=[loss])[0] for f in batches(dataset)
    ]
    return float(np.mean(values))


def test_threads_train_together(ctr, monkeypatch):
    paddle.seed(2)
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    dataset = make(InMemoryDataset, ctr, variables)
    test = static.default_main_program().clone(for_test=True)
    before = mean_loss(dataset, loss, test)
    executor = static.Executor(paddle.CPUPlace())
    for _ in range(20):
        executor.train_from_dataset(static.default_main_program(), dataset, thread=3)
    assert mean_loss(dataset, loss, test) < 0.7 * before
    monkeypatch.setenv("CPU_NUM", "2")
    executor.train_from_dataset(dataset=dataset)
    monkeypatch.setenv("CPU_NUM", "many")
    with pytest.raises(ValueError, match="CPU_NUM='many'"):
        executor.train_from_dataset(dataset=dataset)


def test_inference_changes_nothing(ctr, capfd):
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    dataset = make(QueueDataset, ctr, variables)
    before = parameters()
    executor = static.Executor(paddle.CPUPlace())
    executor.infer_from_dataset(
        dataset=dataset, fetch_list=[loss], fetch_info=["the loss"], print_period=13
    )
    for name, value in parameters().items():
        assert (value == before[name]).all()
    assert "infer_from_dataset: batch 13, 200 samples, " in capfd.readouterr().err


def test_lines_of_progress(ctr, capfd):
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    dataset = make(QueueDataset, ctr, variables)
    executor = static.Executor(paddle.CPUPlace())
    executor.train_from_dataset(dataset=dataset, print_period=1)
    assert capfd.readouterr().err == ""
    executor.train_from_dataset(
        dataset=dataset, fetch_list=[loss], print_period=5, debug=True
    )
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("train_from_dataset: batch 5, 80 samples, ")
    assert f" samples/s, {loss.name}: [0." in lines[0]
    assert lines[2].startswith("train_from_dataset: thread 0: 13 batches, ")
    with pytest.raises(ValueError, match="fetch_info has 2 texts for 1"):
        executor.train_from_dataset(
            dataset=dataset, fetch_list=[loss], fetch_info=["a", "b"]
        )


def test_a_fetch_handler_sees_values(ctr):
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    seen = []

    class Handler(fluid.executor.FetchHandler):
        def handler(self, res_dict):
            seen.append(res_dict)

    executor = static.Executor(paddle.CPUPlace())
    dataset = make(QueueDataset, ctr, variables)
    handler = Handler({"loss": loss, "nothing": None}, period_secs=0)
    executor.train_from_dataset(dataset=dataset, fetch_handler=handler, thread=2)
    assert seen and set(seen[0]) == {"loss"}
    assert seen[0]["loss"].shape == (1,) and np.isfinite(seen[0]["loss"]).all()

    class Failing(fluid.executor.FetchHandler):
        def handler(self, res_dict):
            raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        executor.train_from_dataset(
            dataset=dataset, fetch_handler=Failing({"loss": loss}, period_secs=0)
        )


def test_an_error_of_a_step_names_batch_and_file(ctr):
    ids, dense, label = ctr_variables()
    rows = static.nn.embedding(ids, [3, 8])
    loss = paddle.mean(rows)
    start()
    dataset = make(QueueDataset, ctr, [ids, dense, label])
    executor = static.Executor(paddle.CPUPlace())
    for thread in (1, 2):
        with pytest.raises((ValueError, IndexError)) as caught:
            executor.train_from_dataset(
                dataset=dataset, thread=thread, fetch_list=[loss]
            )
        text = str(caught.value)
        assert "batch 1 (16 samples from" in text and ctr.files[0] in text
    other = static.data("other", [None, 1])
    dataset = QueueDataset()
    dataset.init(use_var=[other])
    dataset.set_filelist(ctr.files)
    with pytest.raises(ValueError, match="none of the variables"):
        executor.train_from_dataset(static.Program(), dataset)


@pytest.mark.parametrize("kind", [QueueDataset, InMemoryDataset])
def test_a_dataset_without_a_batch_trains_nothing_and_says_so(ctr, kind, tmp_path):
    """A pattern that matches no file must not end in a model that was not trained."""
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    executor = static.Executor(paddle.CPUPlace())
    empty = tmp_path / "empty"
    empty.touch()
    for files, why in (([], "no files"), ([str(empty)], "hold no|files hold none")):
        dataset = kind()
        dataset.init(batch_size=16, use_var=variables)
        dataset.set_filelist(files)
        if kind is InMemoryDataset:
            dataset.load_into_memory()
        for run in (executor.train_from_dataset, executor.infer_from_dataset):
            said = f"{run.__name__}: the dataset gave no batch.*({why})"
            with pytest.raises(ValueError, match=said):
                run(dataset=dataset)
        with pytest.raises(ValueError, match=f"no batch: .* its {len(files)} files"):
            batches(dataset)
    few = make(kind, ctr, variables, batch_size=1000)
    with pytest.raises(ValueError, match="fewer than a batch of 1000"):
        batches(few, drop_last=True)
    assert len(batches(few)) == 1


def test_the_older_names(ctr):
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    factory = fluid.DatasetFactory()
    executor = fluid.Executor(fluid.CPUPlace())
    for name in ("QueueDataset", "InMemoryDataset", "FileInstantDataset"):
        dataset = factory.create_dataset(name)
        dataset.set_batch_size(32)
        dataset.set_thread(1)
        dataset.set_use_var(variables)
        dataset.set_pipe_command("cat")
        dataset.set_filelist(ctr.files)
        if name == "InMemoryDataset":
            dataset.set_queue_num(2)
            dataset.load_into_memory()
            dataset.local_shuffle()
        executor.train_from_dataset(
            fluid.default_main_program(), dataset, fluid.global_scope(), 1, False
        )
        assert "batch_size=32" in dataset.desc()
    assert isinstance(factory.create_dataset(), fluid.dataset.QueueDataset)
    with pytest.raises(ValueError, match="does not exist"):
        factory.create_dataset("CloudDataset")


def test_texts_before_the_slots(tmp_path):
    path = tmp_path / "texts"
    path.write_text("1 id-1 1 content 1 5\n1 id-2 1 content 1 6\n")
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    dataset.set_use_var([static.data("x", [None, 1], "int64")])
    dataset.set_batch_size(2)
    dataset.set_parse_ins_id(True)
    dataset.set_parse_content(True)
    dataset.set_filelist([path])
    dataset.load_into_memory()
    (batch,) = batches(dataset)
    assert batch["x"].numpy().tolist() == [[5], [6]]
    with pytest.raises(NotImplementedError, match="merge"):
        dataset.set_merge_by_lineid()


def test_value_of_scopes(ctr):
    """Training in a scope of its own leaves the global one alone."""
    variables, loss = ctr_model(paddle.optimizer.SGD(0.1))
    start()
    before = parameters()
    own = static.Scope()
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program(), scope=own)
    dataset = make(QueueDataset, ctr, variables)
    executor.train_from_dataset(dataset=dataset, scope=own)
    for name in before:
        assert (value_of(name) == before[name]).all()


WAITING = """
import signal
import os
import signal
import subprocess
import sys
import paddle
from paddle import static

signal.signal(signal.SIGINT, signal.default_int_handler)
paddle.enable_static()
x = static.data("x", [None, 1])
loss = paddle.mean(static.nn.fc(x, 1))
executor = static.Executor(paddle.CPUPlace())
executor.run(static.default_startup_program())
dataset = getattr(paddle.distributed, sys.argv[1])()
dataset.init(use_var=[x], pipe_command="sleep 60")
dataset.set_filelist([sys.argv[0]])
print("waiting", flush=True)
if sys.argv[1] == "InMemoryDataset":
    dataset.load_into_memory()
executor.train_from_dataset(dataset=dataset, thread=2)
"""


@pytest.mark.parametrize("kind", ["InMemoryDataset", "QueueDataset"])
def test_a_wait_for_data_ends_by_an_interrupt(tmp_path, kind):
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    package = os.path.dirname(os.path.dirname(paddle.__file__))
    process = subprocess.Popen(
        [sys.executable, script, kind],
        env={**os.environ, "PYTHONPATH": package},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
