# SPDX-License-Identifier: Apache-2.0
from ....static.nn import sparse_embedding
