# SPDX-License-Identifier: Apache-2.0
"""The older Fleet for jobs of workers only.

from paddle.fluid.incubate.fleet.collective import fleet, DistributedStrategy
"""

import json
import os

from ..... import _names
from .....distributed.fleet.base.distributed_strategy import (
    DistributedStrategy as _NewStrategy,
)
from .....distributed.fleet.utils.fs import LocalFS
from ....compiler import BuildStrategy, ExecutionStrategy
from ..base.fleet_base import DistributedOptimizer, Fleet
from ..base.mode import Mode


class DistributedStrategy(BuildStrategy):
    """What a user wishes; a BuildStrategy with more settings."""

    _DEFAULTS = {
        **BuildStrategy._DEFAULTS,
        "amp_decr_every_n_nan_or_inf": 2,
        "amp_decr_ratio": 0.8,
        "amp_incr_every_n_steps": 1000,
        "amp_incr_ratio": 2.0,
        "amp_loss_scaling": 2.0**15,
        "collective_mode": None,
        "enable_dc_asgd": False,
        "exec_strategy": None,
        "forward_recompute": False,
        "fuse_grad_size_in_MB": 32,
        "local_sgd_config": None,
        "mode": "nccl2",
        "nccl_comm_num": 1,
        "recompute_checkpoints": [],
        "sync_mode": True,
        "use_amp": False,
        "use_dist_fc": False,
        "use_local_sgd": False,
    }

    def __init__(self):
        super().__init__()
        self.exec_strategy = ExecutionStrategy()
        self.recompute_checkpoints = []

    def _to_new(self):
        """These settings as a strategy of paddle.distributed.fleet."""
        new = _NewStrategy()
        new.sync_batch_norm = self.sync_batch_norm
        new.nccl_comm_num = self.nccl_comm_num
        new.fuse_all_reduce_ops = self.fuse_all_reduce_ops
        new.fuse_grad_size_in_MB = self.fuse_grad_size_in_MB
        new.amp = self.use_amp
        new.amp_configs = {
            "init_loss_scaling": float(self.amp_loss_scaling),
            "incr_every_n_steps": self.amp_incr_every_n_steps,
            "decr_every_n_nan_or_inf": self.amp_decr_every_n_nan_or_inf,
            "incr_ratio": float(self.amp_incr_ratio),
            "decr_ratio": float(self.amp_decr_ratio),
        }
        new.localsgd = self.use_local_sgd
        new.recompute = self.forward_recompute
        new.recompute_configs = {
            "checkpoints": [getattr(v, "name", v) for v in self.recompute_checkpoints]
        }
        return new


class TrainStatus:
    """How far a training had come when it was saved."""

    def __init__(self, epoch_no=-1):
        self._epoch_no = epoch_no

    @property
    def _save_epoch_no(self):
        return self._epoch_no

    def next(self):
        """The epoch to go on with."""
        return self._epoch_no + 1

    def __eq__(self, other):
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    def __hash__(self):
        return hash(self._epoch_no)


class Collective(Fleet):
    """The Fleet of a job of workers only."""

    _PREFIX = "__paddle_checkpoint__"
    _STATUS = "fleet_train_status"

    def __init__(self):
        super().__init__(Mode.COLLECTIVE)
        self._local_ip = 0

    def init_worker(self):
        """Nothing is left to do."""

    def stop_worker(self):
        """Nothing is left to do."""

    def distributed_optimizer(self, optimizer, strategy=None):
        """An optimizer whose minimize() averages gradients over the workers."""
        strategy = DistributedStrategy() if strategy is None else strategy
        self._optimizer = CollectiveOptimizer(optimizer, strategy, self)
        return self._optimizer

    # ---- checkpoints

    def _numbers(self, path, fs):
        names = fs.list_dirs(path) if fs.is_exist(path) else []
        parts = [name[len(self._PREFIX) :] for name in names]
        found = [
            int(part)
            for name, part in zip(names, parts)
            if name.startswith(self._PREFIX) and part.isdigit()
        ]
        return sorted(found)

    def save_checkpoint(
        self,
        executor,
        path,
        trainer_id,
        train_status,
        fs=None,
        main_program=None,
        local_cache_path=".cache",
        remain_all_checkpoint=True,
    ):
        """Saves the program's variables and the status to a new folder below `path`:
        the first worker does. Returns the folder and its number.

        Where `fs` has its files elsewhere, they are written to `local_cache_path` first.
        """
        if not self.is_first_worker():
            return None
        fs = LocalFS() if fs is None else fs
        number = (self._numbers(path, fs) or [-1])[-1] + 1
        folder = os.path.join(path, f"{self._PREFIX}{number}")
        unfinished = f"{folder}.tmp"
        fs.delete(unfinished)
        here, made = LocalFS(), unfinished
        if fs.need_upload_download():
            made = self._cache(local_cache_path, trainer_id, number)
        here.mkdirs(made)
        self.save_persistables(executor, made, main_program)
        status = os.path.join(made, self._STATUS)
        with open(status, "w", encoding="utf8") as file:
            json.dump({"epoch_no": train_status._epoch_no}, file)
        if made != unfinished:
            fs.mkdirs(path)
            fs.upload(made, unfinished)
            here.delete(made)
        fs.mv(unfinished, folder)
        if not remain_all_checkpoint:
            self.clean_redundant_checkpoints(path, fs)
        return folder, number

    def _cache(self, local_cache_path, trainer_id, number):
        """A name below `local_cache_path` that is free."""
        here = LocalFS()
        here.mkdirs(local_cache_path)
        name = f"{self._PREFIX}{number}.of_{trainer_id}"
        cache = os.path.join(local_cache_path, name)
        here.delete(cache)
        return cache

    def clean_redundant_checkpoints(self, root_path, fs=None):
        """Removes all but the newest."""
        fs = LocalFS() if fs is None else fs
        for number in self._numbers(root_path, fs)[:-1]:
            fs.delete(os.path.join(root_path, f"{self._PREFIX}{number}"))

    def load_checkpoint(
        self,
        executor,
        path,
        trainer_id,
        train_status,
        fs=None,
        main_program=None,
        local_cache_path=".cache",
        ignore_empty=True,
        checkpoint_no=None,
    ):
        """Loads the newest checkpoint below `path`, or that number, and sets the
        status. Returns whether there was one. Where `fs` has its files elsewhere, they
        come by `local_cache_path`.

        Raises:
            ValueError: there is none, and `ignore_empty` is false.
        """
        from .... import io

        fs = LocalFS() if fs is None else fs
        numbers = self._numbers(path, fs)
        if checkpoint_no is not None:
            numbers = [number for number in numbers if number == checkpoint_no]
        if not numbers:
            if not ignore_empty:
                raise ValueError(f"there is no checkpoint below '{path}'")
            return False
        folder = os.path.join(path, f"{self._PREFIX}{numbers[-1]}")
        remote = fs.need_upload_download()
        if remote:
            cache = self._cache(local_cache_path, trainer_id, numbers[-1])
            fs.download(folder, cache)
            folder = cache
        io.load_persistables(executor, folder, main_program or self.main_program)
        status = os.path.join(folder, self._STATUS)
        with open(status, encoding="utf8") as file:
            train_status._epoch_no = json.load(file)["epoch_no"]
        if remote:
            LocalFS().delete(folder)
        return True


class CollectiveOptimizer(DistributedOptimizer):
    """An optimizer whose gradients are means over all workers."""

    def __init__(self, optimizer, strategy=None, owner=None):
        super().__init__(optimizer, strategy or DistributedStrategy())
        self._owner = fleet if owner is None else owner

    def minimize(
        self,
        loss,
        startup_program=None,
        parameter_list=None,
        no_grad_set=None,
    ):
        """Appends backward, exchange and updates to the program of the loss."""
        loss = self._only("losses", loss)
        startup = self._only("startup_programs", startup_program)
        owner, strategy = self._owner, self._strategy
        owner._keep(loss, startup)
        new = strategy._to_new() if hasattr(strategy, "_to_new") else strategy
        owner._fleet.distributed_optimizer(self._optimizer, new)
        return owner._fleet.minimize(loss, startup, parameter_list, no_grad_set)


fleet = Collective()


__all__ = _names.own(globals())
