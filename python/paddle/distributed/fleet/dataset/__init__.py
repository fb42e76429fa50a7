# SPDX-License-Identifier: Apache-2.0
from .dataset import (
    BoxPSDataset,
    DatasetBase,
    FileInstantDataset,
    InMemoryDataset,
    QueueDataset,
)

__all__ = [
    "BoxPSDataset",
    "DatasetBase",
    "FileInstantDataset",
    "InMemoryDataset",
    "QueueDataset",
]
