# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

# Models are small, and several run side by side.
os.environ["OMP_NUM_THREADS"] = "1"

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent.parent / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
