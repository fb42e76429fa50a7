# SPDX-License-Identifier: Apache-2.0
"""InMemoryDataset.load_into_memory against pandas.read_csv: MB/s of the same text.

Lines are those of a click model: a label, 13 floats and 26 slots with one key each. They
all have the same number of words, so that pandas, with the C parser, can read them at all;
numpy.fromstring over the whole text is shown beside it. One thread each.
"""

import tempfile
from pathlib import Path

import numpy as np
import paddle
import pandas
from measure import Row, best_in_turns
from paddle import static

NUM_DENSE, NUM_SLOTS = 13, 26
BAR = 1.5


def _write(path, num_lines):
    rng = np.random.default_rng(0)
    keys = rng.zipf(1.05, (num_lines, NUM_SLOTS)) % 1_000_001
    dense = rng.random((num_lines, NUM_DENSE))
    labels = rng.integers(0, 2, num_lines)
    with open(path, "w") as file:
        for label, floats, ids in zip(labels, dense, keys):
            words = [f"1 {label} {NUM_DENSE}"]
            words += [f"{x:.6g}" for x in floats]
            words += [f"1 {key}" for key in ids]
            file.write(" ".join(words) + "\n")
    return keys


def _dataset(path):
    variables = [static.data("label", [None, 1], "int64")]
    variables.append(static.data("dense", [None, NUM_DENSE]))
    for i in range(NUM_SLOTS):
        variables.append(static.data(f"slot{i}", [None, 1], "int64", lod_level=1))
    dataset = paddle.distributed.InMemoryDataset()
    dataset.init(batch_size=1000, use_var=variables)
    dataset.set_filelist([path])
    return dataset


def run(num_lines=60_000, turns=5):
    paddle.enable_static()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part-0")
        keys = _write(path, num_lines)
        dataset = _dataset(path)
        dataset.load_into_memory()
        feed = next(dataset._feeds(False))
        assert (np.array(feed["slot3"])[:, 0] == keys[:1000, 3]).all()
        table = {}

        def ours():
            dataset.load_into_memory()

        def theirs():
            table["frame"] = pandas.read_csv(path, sep=" ", header=None)

        def words():
            np.fromstring(path.read_text(), sep=" ")

        times = best_in_turns([ours, theirs, words], 1, turns)
        assert table["frame"].shape == (num_lines, 3 + NUM_DENSE + 2 * NUM_SLOTS)
        megabytes = path.stat().st_size / 1e6
    paddle.disable_static()
    speeds = [megabytes / seconds for seconds in times]
    note = (
        f"{num_lines / times[0] / 1e6:.2f} M lines/s; numpy.fromstring over all words "
        f"{speeds[2]:.0f} MB/s"
    )
    yield Row(
        "lines of a dataset into memory",
        speeds[0],
        speeds[1],
        "MB/s",
        BAR,
        "pandas",
        higher_is_better=True,
        note=note,
    )


if __name__ == "__main__":
    for row in run():
        print(row)
