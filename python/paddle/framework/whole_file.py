# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

import contextlib
import os

from .. import _core


@contextlib.contextmanager
def open_whole(path):
    """A new file with `append(bytes)`, whose folders are made when they are missing.
    It takes its name when the block ends well; otherwise what was there stays."""
    name = os.fsencode(path)
    folder = os.path.dirname(name)
    if folder:
        _core.make_folders(folder)
    file = _core.AtomicFile(name)
    try:
        yield file
        file.commit()
    except BaseException:
        file.discard()
        raise
