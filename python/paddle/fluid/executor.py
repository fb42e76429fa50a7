# SPDX-License-Identifier: Apache-2.0
from ..static.executor import Executor, Scope, global_scope, scope_guard


class FetchHandler:
    """Looks at variables now and then while a program trains from a dataset. A derived
    class writes `handler`, which gets a dict of names and arrays."""

    def __init__(self, var_dict=None, period_secs=60):
        if var_dict is None:
            raise ValueError("FetchHandler: var_dict must name what to look at")
        self.var_dict = var_dict
        self.period_secs = period_secs

    def handler(self, res_dict):
        for name, value in res_dict.items():
            print(f"{name}[0]: {value[0]} ")

    @staticmethod
    def help():
        print("class MyHandler(FetchHandler):\n    def handler(self, res_dict): ...")
