# SPDX-License-Identifier: Apache-2.0
"""What is installed is built so that a hole is hard to use: addresses at random, tables of
functions that cannot be written, guarded stacks, checked copies, marked targets of jumps."""

import pathlib
import platform
import struct

import paddle
import pytest

LIBRARIES = pathlib.Path(paddle.__file__).parent / "_lib"
PROGRAMS = LIBRARIES.resolve().parent / "bin"

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_BIND_NOW, DT_FLAGS = 5, 6, 10, 24, 30
DT_FLAGS_1 = 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 0x8, 0x1, 0x08000000
ET_DYN, PF_X, STT_FUNC = 3, 1, 2
ENDBR64 = b"\xf3\x0f\x1e\xfa"


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

    def offset(self, address):
        """Where in the file a byte of memory comes from."""
        for kind, _, offset, begin, _, size, *_ in self.segments:
            if kind == PT_LOAD and begin <= address < begin + size:
                return address - begin + offset
        return None

    def symbols(self):
        """(name, type, address) of all symbols of other files and for them."""
        texts = self.offset(self.dynamic[DT_STRTAB])
        texts = self.data[texts : texts + self.dynamic[DT_STRSZ]]
        # The table of symbols has no size of its own: the linker puts texts behind it.
        at = self.offset(self.dynamic[DT_SYMTAB])
        end = self.offset(self.dynamic[DT_STRTAB])
        while at + 24 <= end:
            name, info, _, section, address, _ = struct.unpack_from(
                "<IBBHQQ", self.data, at
            )
            at += 24
            if name:
                text = texts[name : texts.index(b"\0", name)].decode()
                yield text, info & 15, address if section else None


def binaries():
    found = sorted(LIBRARIES.glob("*.so")) + sorted(LIBRARIES.glob("*.so.*"))
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
    symbols = list(elf.symbols())
    imported = {name for name, _, address in symbols if address is None}
    assert "__stack_chk_fail" in imported
    # Others call nothing that has a checked form.
    if path.name in ("libfleet.so", "libfleet_core.so", "fleetrun", "fleet_server"):
        assert any(n.startswith("__") and n.endswith("_chk") for n in imported)


# Only x86-64 has these marks.
if platform.machine() == "x86_64":
    # Modules export what they are asked for by name; programs and _core nothing of ours.
    @pytest.mark.parametrize("path", binaries(), ids=lambda path: path.name)
    def test_targets_of_indirect_jumps_are_marked(path):
        elf = Elf(path)
        functions = [
            elf.offset(address)
            for symbol, kind, address in elf.symbols()
            if kind == STT_FUNC and address and "fleet" in symbol.lower()
        ]
        if path.name in ("libfleet.so", "libfleet_core.so"):
            assert len(functions) > 500
        elif path.name.startswith("libfleet"):
            assert functions
        marked = sum(elf.data[at : at + 4] == ENDBR64 for at in functions)
        assert marked >= 0.99 * len(functions)
