# SPDX-License-Identifier: Apache-2.0
"""Small things that scripts of the older Fleet do beside training."""

import numpy as np


class FleetUtil:
    """Args:
    mode: "transpiler" for jobs with servers, "collective" for those without.
    """

    def __init__(self, mode="transpiler"):
        if mode == "transpiler":
            from ..parameter_server.distribute_transpiler import fleet
        elif mode == "collective":
            from ..collective import fleet
        else:
            raise ValueError(
                f"FleetUtil: mode must be transpiler or collective, but is {mode!r}"
            )
        self._fleet = fleet

    # ---- the first worker speaks

    def rank0_print(self, s):
        if self._fleet.worker_index() == 0:
            print(s, flush=True)

    rank0_info = rank0_print
    rank0_error = rank0_print

    # ---- variables and metrics

    def set_zero(self, var_name, scope=None, place=None, param_type="int64"):
        """Sets a variable of a scope to zeros."""
        from ....executor import global_scope

        tensor = (scope or global_scope()).find_var(var_name).get_tensor()
        tensor.set(np.zeros(tensor._get_dims(), param_type), place)

    def get_global_auc(
        self, scope=None, stat_pos="_generated_var_2", stat_neg="_generated_var_3"
    ):
        """The area under the curve over all workers, from the counts that
        fluid.layers.auc keeps; None where a variable is not there."""
        from .....distributed.fleet import metrics
        from ....executor import global_scope

        scope = scope or global_scope()
        if scope.find_var(stat_pos) is None or scope.find_var(stat_neg) is None:
            self.rank0_print("not found auc bucket")
            return None
        return metrics.auc(stat_pos, stat_neg, scope, self._fleet._fleet.util)

    def print_global_auc(
        self,
        scope=None,
        stat_pos="_generated_var_2",
        stat_neg="_generated_var_3",
        print_prefix="",
    ):
        auc = self.get_global_auc(scope, stat_pos, stat_neg)
        self.rank0_print(f"{print_prefix} global auc = {auc}")
