# SPDX-License-Identifier: Apache-2.0
"""Metrics from what every worker counted on its own data.

What goes in is an array, a Tensor, or, with the `scope` that holds it, a variable of a
program or its name. `util` defaults to fleet.util. All workers get the same answer.
"""

import numpy as np

from .... import _core

__all__ = ["sum", "max", "min", "auc", "mae", "rmse", "mse", "acc"]


def _array(value, scope):
    if isinstance(value, _core.Tensor):
        return value.numpy()
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if name is None:
        return np.asarray(value)
    if scope is None:
        from ....static import global_scope

        scope = global_scope()
    found = scope.find_var(name)
    if found is None:
        raise ValueError(f"the scope has no variable {name}")
    return np.array(found.get_tensor())


def _reduce(value, mode, scope, util):
    if util is None:
        from .. import util
    array = _array(value, scope)
    return np.asarray(util.all_reduce(array, mode)).reshape(array.shape)


def sum(input, scope=None, util=None):
    """The sum over all workers, in the shape of `input`."""
    return _reduce(input, "sum", scope, util)


def max(input, scope=None, util=None):
    """The largest of all workers, in the shape of `input`."""
    return _reduce(input, "max", scope, util)


def min(input, scope=None, util=None):
    """The smallest of all workers, in the shape of `input`."""
    return _reduce(input, "min", scope, util)


def auc(stat_pos, stat_neg, scope=None, util=None):
    """The area under the ROC curve, from how many positive and negative samples fell
    into each bucket of predictions, the lowest first; 0.5 where one kind is absent."""
    positive = _reduce(stat_pos, "sum", scope, util).reshape(-1)[::-1]
    negative = _reduce(stat_neg, "sum", scope, util).reshape(-1)[::-1]
    above = np.cumsum(positive, dtype=np.float64)
    pairs = above[-1] * negative.sum(dtype=np.float64)
    if pairs == 0:
        return 0.5
    # In its own bucket, a negative sample stands amid the positive ones.
    return float(np.sum(negative * (above - positive / 2)) / pairs)


def _ratio(numerator, denominator, scope, util):
    whole = float(_reduce(denominator, "sum", scope, util).sum())
    return float(_reduce(numerator, "sum", scope, util).sum()) / whole


def mae(abserr, total_ins_num, scope=None, util=None):
    """The mean absolute error, from its sum and the number of samples."""
    return _ratio(abserr, total_ins_num, scope, util)


def mse(sqrerr, total_ins_num, scope=None, util=None):
    """The mean square error, from its sum and the number of samples."""
    return _ratio(sqrerr, total_ins_num, scope, util)


def rmse(sqrerr, total_ins_num, scope=None, util=None):
    """The root of the mean square error."""
    return _ratio(sqrerr, total_ins_num, scope, util) ** 0.5


def acc(correct, total, scope=None, util=None):
    """The accuracy, from the number of right answers and of samples."""
    return _ratio(correct, total, scope, util)
