# SPDX-License-Identifier: Apache-2.0
"""From samples to what a run is fed."""

from ..io import feed as _feed
from ..static.program import default_main_program


class DataFeeder:
    """Makes the feed of a batch from its samples.

    feed_list: the data variables, or their names, in the order of a sample's fields.
    """

    def __init__(self, feed_list, place, program=None):
        program = default_main_program() if program is None else program
        block = program.global_block()
        self._variables = [block.var(v) if isinstance(v, str) else v for v in feed_list]
        self.feed_names = [v.name for v in self._variables]
        self.place = place

    def feed(self, iterable):
        """A dict of names and values for the samples of a batch."""
        return _feed.from_samples(self._variables, iterable)

    def feed_parallel(self, iterable, num_places=None):
        """A dict for each of several lists of samples."""
        for samples in iterable:
            yield self.feed(samples)

    def decorate_reader(self, reader, multi_devices, num_places=None, drop_last=True):
        """A reader of dicts for a reader of lists of samples. One process has one
        device: with `multi_devices` the dicts come in lists of one."""

        def feeds():
            for samples in reader():
                made = self.feed(samples)
                yield [made] if multi_devices else made

        return feeds
