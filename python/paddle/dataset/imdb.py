# SPDX-License-Identifier: Apache-2.0
"""IMDB reviews as word ids; label 0 for positive, 1 for negative."""

import collections
import re
import string
import tarfile

from .common import download

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
FILE_NAME = "aclImdb_v1.tar.gz"
UNKNOWN = "<unk>"


def tokenize(pattern):
    """Yields the words, as lower-case bytes, of each file that matches."""
    punctuation = string.punctuation.encode("latin-1")
    # Read in the archive's order: seeking in a compressed file starts anew.
    with tarfile.open(_path()) as archive:
        for member in archive:
            if pattern.match(member.name):
                text = archive.extractfile(member).read().rstrip(b"\n\r")
                yield text.translate(None, punctuation).lower().split()


def build_dict(pattern, cutoff):
    """Ids, most frequent first, of words seen more than `cutoff` times."""
    counts = collections.Counter()
    for words in tokenize(pattern):
        counts.update(words)
    kept = [(word, n) for word, n in counts.items() if n > cutoff]
    kept.sort(key=lambda item: (-item[1], item[0]))
    ids = {word: i for i, (word, _) in enumerate(kept)}
    ids[UNKNOWN] = len(ids)
    return ids


def word_dict(cutoff=150):
    """The ids of the words of all reviews with a label."""
    return build_dict(_pattern("(train|test)", "(pos|neg)"), cutoff)


def train(word_idx):
    """A reader of (list of ids, label) over the training reviews."""
    return _reader("train", word_idx)


def test(word_idx):
    """As train, over the test reviews."""
    return _reader("test", word_idx)


def _reader(part, word_idx):
    unknown = word_idx[UNKNOWN]
    samples = [
        ([word_idx.get(word, unknown) for word in words], label)
        for label, kind in enumerate(("pos", "neg"))
        for words in tokenize(_pattern(part, kind))
    ]
    return lambda: iter(samples)


def _pattern(part, kind):
    return re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$")


def _path():
    return download(URL, "imdb", save_name=FILE_NAME)
