# SPDX-License-Identifier: Apache-2.0
"""Where dataset files lie, and readers over files of pickled samples."""

import glob
import hashlib
import os
import pickle

from ..framework import pickle_reader

DATA_HOME = os.path.join(os.path.expanduser("~"), ".cache", "paddle", "dataset")


def md5file(fname):
    """The MD5 sum of a file, in hexadecimal."""
    digest = hashlib.md5()
    with open(fname, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download(url, module_name, md5sum=None, save_name=None):
    """The path of the cached copy of `url`.

    Does not reach out to the network: FileNotFoundError says which file to put
    where. `md5sum` is not checked, so that a file of one's own may take the
    place of the original.
    """
    name = save_name or url.split("/")[-1]
    path = os.path.join(DATA_HOME, module_name, name)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"dataset {module_name}: put {name}, as found at {url}, at {path}"
        )
    return path


def split(reader, line_count, suffix="%05d.pickle", dumper=None):
    """Writes the samples of `reader` to files of `line_count` samples each.

    `suffix` is a pattern with one integer. `dumper(samples, file)` writes a
    list of samples; the default writes what `cluster_files_reader` reads.
    """
    if not callable(reader):
        raise TypeError("split: reader must be a function that returns samples")
    if "%" not in suffix:
        raise ValueError(f"split: suffix needs a place for a number: {suffix!r}")
    dumper = dumper or _dump
    samples, number = [], 0

    def write():
        with open(suffix % number, "wb") as file:
            dumper(samples, file)

    for sample in reader():
        samples.append(sample)
        if len(samples) == line_count:
            write()
            samples, number = [], number + 1
    if samples:
        write()


def cluster_files_reader(files_pattern, trainer_count, trainer_id, loader=None):
    """A reader over every `trainer_count`-th of the files that match.

    `loader(file)` returns the samples of an open file; the default admits
    arrays and plain Python values only.
    """
    loader = loader or _load

    def read():
        paths = sorted(glob.glob(files_pattern))
        for path in paths[trainer_id::trainer_count]:
            with open(path, "rb") as file:
                yield from loader(file)

    return read


def _dump(samples, file):
    # Protocol 4 is read by all versions of Python 3 and by our own reader.
    pickle.dump(samples, file, protocol=4)


def _load(file):
    return pickle_reader.read_file(file, file.name)
