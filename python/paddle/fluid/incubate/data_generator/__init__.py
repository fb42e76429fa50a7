# SPDX-License-Identifier: Apache-2.0
from ....distributed.fleet.data_generator import (
    DataGenerator,
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)
