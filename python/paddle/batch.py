# SPDX-License-Identifier: Apache-2.0
"""paddle.batch: a reader of samples made a reader of batches."""


def batch(reader, batch_size, drop_last=False):
    """A reader that yields lists of `batch_size` samples of `reader`.

    The last list is shorter where the samples do not divide, or is left out
    with `drop_last`.
    """
    if int(batch_size) != batch_size or batch_size <= 0:
        raise ValueError(
            f"paddle.batch: batch_size must be a positive integer, but is "
            f"{batch_size!r}"
        )
    batch_size = int(batch_size)

    def batch_reader():
        samples = []
        for sample in reader():
            samples.append(sample)
            if len(samples) == batch_size:
                yield samples
                samples = []
        if samples and not drop_last:
            yield samples

    return batch_reader
