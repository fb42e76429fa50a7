# SPDX-License-Identifier: Apache-2.0
"""What is installed is built so that a hole is hard to use: addresses at random, tables of
functions that cannot be written, no code on stacks."""

import pathlib
import struct

import paddle
import pytest

LIBRARIES = pathlib.Path(paddle.__file__).parent / "_lib"
PROGRAMS = LIBRARIES.resolve().parent / "bin"

PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 24, 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 0x8, 0x1, 0x08000000
ET_DYN, PF_X = 3, 1


class Elf:
    """The parts of a 64-bit little-endian ELF file that the loader reads."""

    def __init__(self, path):
        self.data = path.read_bytes()
        assert self.data[:6] == b"\x7fELF\2\1", path
        self.type = struct.unpack_from("<H", self.data, 16)[0]
        (begin,) = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        # type, flags, offset, address, physical address, size in file, size, alignment
        self.segments = [
            struct.unpack_from("<IIQQQQQQ", self.data, begin + i * size)
            for i in range(count)
        ]
        dynamic = next(s for s in self.segments if s[0] == PT_DYNAMIC)
        entries = struct.iter_unpack("<QQ", self.data[dynamic[2] :][: dynamic[5]])
        self.dynamic = dict(entries)

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)


def binaries():
    found = sorted(LIBRARIES.glob("_core*.so")) + sorted(LIBRARIES.glob("libfleet*.so"))
    return found + [PROGRAMS / name for name in ("fleetrun", "fleet_server")]


def test_all_binaries_are_looked_at():
    names = {path.name.split(".")[0] for path in binaries()}
    assert {"_core", "libfleet", "libfleet_core", "fleetrun", "fleet_server"} <= names
    assert all(path.exists() for path in binaries())


@pytest.mark.parametrize("path", binaries(), ids=lambda path: path.name)
def test_binaries_are_hardened(path):
    elf = Elf(path)
    # Position independent; programs say so.
    assert elf.type == ET_DYN
    flags = elf.dynamic.get(DT_FLAGS_1, 0)
    if path.parent == PROGRAMS:
        assert flags & DF_1_PIE
    # Full RELRO: all functions are found at the start, and their table is then closed.
    assert elf.segment(PT_GNU_RELRO)
    now = DT_BIND_NOW in elf.dynamic or elf.dynamic.get(DT_FLAGS, 0) & DF_BIND_NOW
    assert now or flags & DF_1_NOW
    # No code on the stack.
    assert not elf.segment(PT_GNU_STACK)[1] & PF_X
