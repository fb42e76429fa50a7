# SPDX-License-Identifier: Apache-2.0
"""Metrics over all workers of a job."""

from .metric import acc, auc, mae, max, min, mse, rmse, sum

__all__ = ["sum", "max", "min", "auc", "mae", "rmse", "mse", "acc"]
