# SPDX-License-Identifier: Apache-2.0
"""Bytes that somebody damaged or crafted: what tests of readers feed them."""

import resource
import struct

NUMBERS = (
    0,
    1,
    2**7,
    2**20,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**55,
    2**62,
    2**63,
    2**64 - 1,
)


def mutate(draw, data):
    """`data` with one to four changes: a byte, a piece that is missing or there twice, a
    number of the kind that breaks programs, the end cut off."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        if not data:
            break
        at = draw.randrange(len(data))
        way = draw.randrange(8)
        if way < 3:
            data[at] = draw.randrange(256)
        elif way == 3:
            data[at] ^= 1 << draw.randrange(8)
        elif way == 4:
            del data[at : at + draw.randint(1, 16)]
        elif way == 5:
            data[at:at] = data[at : at + draw.randint(1, 64)]
        elif way == 6:
            size = draw.choice((4, 8))
            number = draw.choice(NUMBERS) % 2 ** (8 * size)
            data[at : at + size] = struct.pack("<Q", number)[:size]
        elif draw.randrange(4) == 0:
            del data[at:]
    return bytes(data)


def peak_memory():
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def replace(path, data):
    """Writes a new file: some file systems wait for the disk where an old one is made
    empty and written again."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
