# SPDX-License-Identifier: Apache-2.0
"""Objects of every kind that paddle.save takes. data/containers has a file of each,
as the first writer of the format made it:

    python python/tests/container_objects.py FOLDER    writes such files
"""

import collections
import pathlib
import sys

import numpy as np
import paddle
from save_check import DTYPES, bfloat16, tensor

ARRAY_TYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()


def named(value, name):
    value.name = name
    return value


def values(dtype, shape=(2, 3)):
    return (np.arange(np.prod(shape)).reshape(shape) - 2).astype(dtype)


def numbers():
    powers = [
        float(f"{digit}e{power}") for digit in ("1", "9.5") for power in range(-8, 24)
    ]
    edges = [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3]
    return powers + edges + [-x for x in edges] + [0.0, -0.0, 2.0**70, 123456789.125]


def objects():
    """The objects by name."""
    shared = named(tensor([1.5, 2.5], "float32"), "shared")
    twice = np.arange(4)
    base = np.arange(24.0).reshape(4, 6)
    wide = named(tensor(np.arange(12).reshape(3, 4), "int64"), "wide")
    return {
        "none": None,
        "true": True,
        "integers": [0, -1, 2**31, 2**63 - 1, -(2**63), 2**63, -(2**100), 10**400],
        "floats": numbers(),
        "not_finite": [float("nan"), float("inf"), float("-inf")],
        "complex": [1 - 2j, complex(0.1, float("inf")), -0j],
        "texts": [
            "",
            "plain",
            'quote " backslash \\ slash /',
            "".join(map(chr, range(0, 0x30))),
            "\x7f\x80\xff \u00e9 \u4e2d \uffff \U0001f600 \U0010ffff",
            "half \ud800, other half \udfff, both \ud83d\ude00",
        ],
        "bytes": [b"", b"\x00\xff", bytes(range(256)), b"same", b"same"],
        "lists": [[], (), {}, [[], [[]], ({},)], (1, [2, (3,)])],
        "keys": {
            "a": 1,
            None: 2,
            True: 3,
            7: 4,
            -(2**70): 5,
            2.5: 6,
            (): 7,
            (1, ("b", None), 2.0): 8,
            '"\n\u00e9': 9,
        },
        "ordered": collections.OrderedDict(z=1, a=collections.OrderedDict(), m={}),
        "arrays": {code: values(code) for code in ARRAY_TYPES},
        "big_endian": [values(code) for code in (">i2", ">i4", ">f8", ">c16")],
        "array_layouts": [
            base.T,
            base[::2, ::-3],
            np.asfortranarray(base),
            np.broadcast_to(np.float32(1), (2, 2)),
            base[1, 2:3],
            np.array(5.0),
            np.zeros((0,)),
            np.zeros((3, 0, 2), "i4"),
        ],
        "scalars": [np.dtype(code).type(1) for code in ARRAY_TYPES],
        "tensors": {name: named(tensor(values(name)), f"{name}_0") for name in DTYPES},
        "bfloat16": named(bfloat16([1.5, -2.0, float("inf"), 0.0]), "short"),
        "tensor_shapes": [
            named(tensor(values("float32", shape)), f"shape_{i}")
            for i, shape in enumerate([(), (0,), (3, 0, 2), (1,), (2, 3, 4), (1,) * 9])
        ],
        "tensor_layouts": [
            named(wide.t(), "transposed"),
            named(wide[1], "row"),
            named(wide[:, 2], "column"),
            named(paddle.expand(wide[:, :1], [3, 5]), "expanded"),
        ],
        "tensor_names": [
            named(tensor([1.0]), 'quote " \u00e9 \n'),
            named(tensor([2.0]), "linear_0.w_0"),
        ],
        "shared": {"a": shared, "b": [shared, (shared,)], "c": twice, "d": twice},
        "state": {
            "fc.weight": named(tensor(values("float32", (5, 7))), "linear_0.w_0"),
            "fc.bias": named(tensor(values("float32", (7,))), "linear_0.b_0"),
            "LR_Scheduler": {"last_epoch": 3, "last_lr": 0.1},
            "master_weights": {},
            "step": np.int64(12),
        },
        "deep": nested(99),
    }


def nested(depth):
    value = "innermost"
    for _ in range(depth):
        value = [value]
    return value


def main(folder):
    for name, value in objects().items():
        paddle.save(value, str(pathlib.Path(folder) / name))


if __name__ == "__main__":
    main(sys.argv[1])
