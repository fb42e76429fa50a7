# SPDX-License-Identifier: Apache-2.0
from .....distributed.fleet.utils.fs import FS, LocalFS
