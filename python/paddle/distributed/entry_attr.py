# SPDX-License-Identifier: Apache-2.0
"""Which keys of a sparse table get a row: the `entry` of static.nn.sparse_embedding.

A key that has not got in yet reads as zeros, is not updated and not saved.
"""

import numbers

__all__ = ["CountFilterEntry", "EntryAttr", "ProbabilityEntry", "ShowClickEntry"]


class EntryAttr:
    """What all of them are."""

    def _to_attr(self):
        """The rule as an operation carries it."""
        raise NotImplementedError(f"{type(self).__name__} does not say its rule")


class ProbabilityEntry(EntryAttr):
    """A key gets in with this probability, each time that training asks for it.

    Raises:
        ValueError: not a float between 0 and 1.
    """

    def __init__(self, probability):
        if not isinstance(probability, float):
            raise ValueError("probability must be a float in (0,1)")
        if not 0 < probability < 1:
            raise ValueError("probability must be a float in (0,1)")
        self._name = "probability_entry"
        self._probability = probability

    def _to_attr(self):
        return f"{self._name}:{self._probability}"


class CountFilterEntry(EntryAttr):
    """A key gets in when training has asked for it so many times.

    Raises:
        ValueError: not an integer, or a negative one.
    """

    def __init__(self, count_filter):
        integral = isinstance(count_filter, numbers.Integral)
        if not integral or isinstance(count_filter, bool):
            raise ValueError(
                "count_filter must be a valid integer greater than or equal to 0"
            )
        if count_filter < 0:
            raise ValueError("count_filter must be a integer greater or equal than 0")
        self._name = "count_filter_entry"
        self._count_filter = int(count_filter)

    def _to_attr(self):
        return f"{self._name}:{self._count_filter}"


class ShowClickEntry(EntryAttr):
    """Rows count how often their key was shown and clicked, by two variables of the
    program with a number for each example.

    Args:
        show_name, click_name: the names of these variables.

    Raises:
        ValueError: one of them is no name.
    """

    def __init__(self, show_name, click_name):
        if not isinstance(show_name, str) or not isinstance(click_name, str):
            raise ValueError("show_name click_name must be a str")
        self._name = "show_click_entry"
        self._show_name = show_name
        self._click_name = click_name

    def _to_attr(self):
        return f"{self._name}:{self._show_name}:{self._click_name}"
