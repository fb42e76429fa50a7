# SPDX-License-Identifier: Apache-2.0
"""From a user's own lines to those that a dataset reads.

A script that is a dataset's pipe_command derives from one of these classes, says in
`generate_sample` what a line means, and calls `run_from_stdin()`:

    class Words(fleet.MultiSlotDataGenerator):
        def generate_sample(self, line):
            def samples():
                *words, label = line.split()
                yield [("words", [int(w) for w in words]), ("label", [int(label)])]
            return samples

    Words().run_from_stdin()
"""

import sys

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]


class DataGenerator:
    """Reads lines, has them made into samples, and writes these."""

    def __init__(self):
        self.batch_size_ = 32
        self._proto_info = None
        self._line_limit = None

    def _set_line_limit(self, line_limit):
        if not isinstance(line_limit, int):
            raise ValueError(f"line_limit{type(line_limit)} must be in int type")
        if line_limit < 1:
            raise ValueError("line_limit can not less than 1")
        self._line_limit = line_limit

    def set_batch(self, batch_size):
        """How many samples `generate_batch` gets at a time; 32 if it is not called."""
        self.batch_size_ = batch_size

    def run_from_memory(self):
        """Writes the samples that generate_sample(None) makes from nothing."""
        self._write(self.generate_sample(None)())

    def run_from_stdin(self):
        """Writes the samples of all lines of the standard input."""
        self._write(
            sample for line in sys.stdin for sample in self.generate_sample(line)()
        )

    def _write(self, samples):
        batch = []
        for sample in samples:
            if sample is None:
                continue
            batch.append(sample)
            if len(batch) == self.batch_size_:
                self._write_batch(batch)
                batch = []
        if batch:
            self._write_batch(batch)
        sys.stdout.flush()

    def _write_batch(self, batch):
        write = sys.stdout.write
        for sample in self.generate_batch(batch)():
            write(self._gen_str(sample))

    def generate_sample(self, line):
        """A function of no arguments that yields the samples of `line`, each a list of
        (name, values); None is left out. Written by the user."""
        raise NotImplementedError(
            "Please rewrite this function to return a list or tuple: "
            "[(name, [feasign, ...]), ...] or ((name, [feasign, ...]), ...)"
        )

    def generate_batch(self, samples):
        """A function of no arguments that yields what is written for a batch of samples:
        these themselves, unless the user writes another one."""

        def each():
            yield from samples

        return each

    def _gen_str(self, line):
        raise NotImplementedError(
            "pls use MultiSlotDataGenerator or MultiSlotStringDataGenerator"
        )


def _check_fields(line):
    if not isinstance(line, (list, tuple)):
        raise ValueError(
            "the output of process() must be in list or tuple type"
            "Examples: [('words', ['1926', '08', '17']), ('label', ['1'])]"
        )


class MultiSlotStringDataGenerator(DataGenerator):
    """For values that are texts already; they are written as they are."""

    def _gen_str(self, line):
        """[("words", ["1", "2"]), ("label", ["0"])] becomes "2 1 2 1 0"."""
        _check_fields(line)
        words = []
        for _, values in line:
            words.append(str(len(values)))
            words += values
        return " ".join(words) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """For values that are numbers; they are checked against the first sample."""

    def _gen_str(self, line):
        """[("words", [1, 2]), ("label", [0])] becomes "2 1 2 1 0"."""
        _check_fields(line)
        if self._proto_info is None:
            self._proto_info = [(name, "uint64") for name, _ in map(_named, line)]
        elif len(line) != len(self._proto_info):
            raise ValueError(
                "the complete field set of two given line are inconsistent: "
                f"{len(self._proto_info)} fields before, and {len(line)} now"
            )
        words = []
        for i, field in enumerate(line):
            name, values = _named(field)
            known, kind = self._proto_info[i]
            if name != known:
                raise ValueError(
                    "the field name of two given line are not match: "
                    f"require<{known}>, get<{name}>."
                )
            if not values:
                raise ValueError(
                    "the elements of each field can not be empty, you need padding it "
                    f"in process(): {name}"
                )
            words.append(str(len(values)))
            for value in values:
                if isinstance(value, float):
                    kind = "float"
                elif not isinstance(value, int):
                    raise ValueError(
                        f"the type of element{type(value)} must be in int or float"
                    )
                words.append(str(value))
            self._proto_info[i] = (name, kind)
        return " ".join(words) + "\n"


def _named(field):
    name, values = field
    if not isinstance(name, str):
        raise ValueError(f"name{type(name)} must be in str type")
    if not isinstance(values, list):
        raise ValueError(f"elements{type(values)} must be in list type")
    return name, values
