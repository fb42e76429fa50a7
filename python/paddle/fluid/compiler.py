# SPDX-License-Identifier: Apache-2.0
from ..static.compiled import BuildStrategy, CompiledProgram, ExecutionStrategy
