# SPDX-License-Identifier: Apache-2.0
"""Data parallel training as Paddle 1.x spelt it."""

from ...distributed.parallel import ParallelEnv, init_parallel_env
from ...nn.layer.data_parallel import DataParallel

Env = ParallelEnv


class ParallelStrategy:
    """What prepare_context found out, with Paddle's names."""

    def __init__(self):
        env = ParallelEnv()
        self.nranks = env.nranks
        self.local_rank = env.local_rank
        self.trainer_endpoints = env.trainer_endpoints
        self.current_endpoint = env.current_endpoint
        self.nrings = env.nrings


def prepare_context(strategy=None):
    """Meets the other processes of the job, if there are any."""
    if strategy is None:
        strategy = ParallelStrategy()
    if strategy.nranks > 1:
        init_parallel_env()
    return strategy
