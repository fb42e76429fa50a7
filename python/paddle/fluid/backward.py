# SPDX-License-Identifier: Apache-2.0
from ..static.backward import append_backward, gradients
