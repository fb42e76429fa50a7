# SPDX-License-Identifier: Apache-2.0
"""The expected texts are what Paddle 2.6.2 prints, with the places of 2.0."""

import numpy as np
import paddle
import pytest


@pytest.fixture(autouse=True)
def default_options():
    yield
    paddle.set_printoptions(8, 1000, 3, False, 80)


def body(data, **kwargs):
    """What is printed after the first line."""
    return str(paddle.to_tensor(data, **kwargs)).split("\n", 1)[1]


def test_the_whole_text():
    x = paddle.to_tensor([1.0, 2.0], dtype="float32")
    expected = (
        "Tensor(shape=[2], dtype=float32, place=CPUPlace, stop_gradient=True,\n"
        "       [1., 2.])"
    )
    x = x.cpu()
    assert repr(x) == expected
    assert str(x) == expected
    x.stop_gradient = False
    assert "stop_gradient=False" in repr(x)


@pytest.mark.parametrize(
    "data, text",
    [
        ([1.5, 2, -3], "[1.50000000,  2.       , -3.       ]"),
        ([1e-10, 1.0], "[0.00000000, 1.        ]"),
        ([1e10, 1.5], "[10000000000., 1.50000000  ]"),
        ([123456.789, 0.1], "[123456.78906250, 0.10000000     ]"),
        ([True, False], "[True , False]"),
        (
            [float("nan"), 1.0, float("inf"), -float("inf")],
            "[ nan ,  1.  ,  inf., -inf.]",
        ),
        ([-0.0, 1.0], "[-0., 1. ]"),
        ([1e20, 2], "[100000002004087734272., 2.                    ]"),
        ([1 + 2j, 3.5 - 1j], "[(1+2j)  , (3.5-1j)]"),
        (np.zeros((0, 3), "float32"), "[]"),
        (np.array([1.25, 2.5], "float16"), "[1.25000000, 2.50000000]"),
    ],
)
def test_numbers(data, text):
    assert body(data) == f"       {text})"


def test_bfloat16():
    x = paddle.to_tensor([1.25, -2.0]).astype("bfloat16")
    assert str(x).endswith("[1.25000000, -2.       ])")


def test_matrices():
    assert body([[1, -2], [30, 4]]) == "       [[ 1, -2],\n        [30,  4]])"
    assert body(np.arange(24.0).reshape(2, 3, 4)) == (
        "       [[[0. , 1. , 2. , 3. ],\n"
        "         [4. , 5. , 6. , 7. ],\n"
        "         [8. , 9. , 10., 11.]],\n"
        "\n"
        "        [[12., 13., 14., 15.],\n"
        "         [16., 17., 18., 19.],\n"
        "         [20., 21., 22., 23.]]])"
    )


def test_long_rows_are_broken():
    assert body(np.linspace(0, 1, 8)) == (
        "       [0.        , 0.14285714, 0.28571429, 0.42857143, 0.57142857, "
        "0.71428571,\n"
        "        0.85714286, 1.        ])"
    )


def test_many_elements_are_summarised():
    assert body(np.arange(2000)) == (
        "       [0   , 1   , 2   , ..., 1997, 1998, 1999])"
    )
    assert body(np.arange(2000.0).reshape(40, 50)) == (
        "       [[0.   , 1.   , 2.   , ..., 47.  , 48.  , 49.  ],\n"
        "        [50.  , 51.  , 52.  , ..., 97.  , 98.  , 99.  ],\n"
        "        [100. , 101. , 102. , ..., 147. , 148. , 149. ],\n"
        "        ...,\n"
        "        [1850., 1851., 1852., ..., 1897., 1898., 1899.],\n"
        "        [1900., 1901., 1902., ..., 1947., 1948., 1949.],\n"
        "        [1950., 1951., 1952., ..., 1997., 1998., 1999.]])"
    )
    assert "..." not in body(np.arange(1000))


def test_print_options():
    paddle.set_printoptions(precision=3)
    assert body([1.23456, 2.0]) == "       [1.235, 2.   ])"
    paddle.set_printoptions(sci_mode=True)
    assert body([1.23456, 2.0, 100]) == "       [1.235e+00, 2.000e+00, 1.000e+02])"
    paddle.set_printoptions(sci_mode=False, threshold=10, edgeitems=2, linewidth=40)
    assert body(np.arange(20.0) / 3) == (
        "       [0.   , 0.333, ..., 6.   ,\n        6.333])"
    )


def test_bad_print_options():
    with pytest.raises(TypeError, match="precision"):
        paddle.set_printoptions(precision="a")
    with pytest.raises(TypeError, match="sci_mode"):
        paddle.set_printoptions(sci_mode=1)


def test_format():
    x = paddle.to_tensor([1.23456])
    assert f"{x:.3f}" == "1.235"
    assert "{:5.1f}".format(x) == "  1.2"
    assert "%.2f" % x == "1.23"
    assert "%d" % paddle.to_tensor([7]) == "7"
    assert f"{x}" == str(x)
    with pytest.raises(ValueError, match="2 elements"):
        f"{paddle.ones([2]):.3f}"
