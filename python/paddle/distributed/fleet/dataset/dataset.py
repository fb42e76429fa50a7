# SPDX-License-Identifier: Apache-2.0
"""Datasets of files with multi-slot text, which Executor.train_from_dataset reads.

    dataset = paddle.distributed.InMemoryDataset()
    dataset.init(batch_size=1000, thread_num=2, use_var=[ids, label])
    dataset.set_filelist(fleet.util.get_file_shard(files))
    dataset.load_into_memory()
    dataset.local_shuffle()
    exe.train_from_dataset(program, dataset)

A line holds the slots in the order of `use_var`, each as "<n> v1 ... vn". Reading,
shuffling and batching are the engine's (fleet/data).
"""

from .... import _core, _names

_KINDS = {"float32": True, "int64": False}
_LOCAL = {"fs_name": "", "fs_ugi": "", "download_cmd": "cat"}


def _slot(variable):
    """(name, whether it holds floats, whether it is a sequence, sizes of a row)"""
    dtype = variable.dtype.name
    if dtype not in _KINDS:
        raise ValueError(
            "Currently, paddle.distributed.fleet.dataset only supports dtype=float32, "
            f"dtype=int64, but {variable.name} is {dtype}"
        )
    return (
        variable.name,
        _KINDS[dtype],
        variable.lod_level > 0,
        list(variable.shape[1:]),
    )


class DatasetBase:
    """What datasets have in common: slots, files, and how they are read."""

    _engine_type = None

    def __init__(self):
        self.filelist = None
        self.use_var = []
        self.batch_size = 1
        self.thread_num = 1
        self.pipe_command = "cat"
        self.skip_bad_lines = False
        self._num_texts = 0
        self._threads_set = False
        self._engine = None

    def init(
        self,
        batch_size=1,
        thread_num=1,
        use_var=(),
        pipe_command="cat",
        input_type=0,
        fs_name="",
        fs_ugi="",
        download_cmd="cat",
        skip_bad_lines=False,
    ):
        """Says what the files hold and how they are read.

        Args:
            batch_size: samples of a batch.
            thread_num: threads that read, and that train where train_from_dataset does
                not say how many.
            use_var: data variables of a program, int64 or float32, in the order in which
                their values stand on a line. One with lod_level 1 takes as many values
                as the line has, any other as many as its shape says.
            pipe_command: gets each file as its standard input and writes the lines. It
                is started without a shell; "cat" reads the files as they are.
            input_type: 0.
            fs_name, fs_ugi, download_cmd: not supported; files are local.
            skip_bad_lines: lines that are wrong are left out and counted instead of
                raising.
        """
        if input_type != 0:
            raise NotImplementedError(
                f"dataset: input_type={input_type}; files hold multi-slot text, which is 0"
            )
        self._refuse_remote(fs_name, fs_ugi, download_cmd)
        self._set_batch_size(batch_size)
        self._set_thread(thread_num)
        self._set_use_var(use_var)
        self._set_pipe_command(pipe_command)
        self.skip_bad_lines = bool(skip_bad_lines)

    @staticmethod
    def _refuse_remote(fs_name, fs_ugi, download_cmd):
        if fs_name or fs_ugi or download_cmd != "cat":
            raise NotImplementedError(
                "dataset: files are local; have pipe_command fetch others, or mount them"
            )

    def _set_batch_size(self, batch_size):
        if int(batch_size) < 1:
            raise ValueError(
                f"dataset: batch_size must be at least 1, but is {batch_size}"
            )
        self.batch_size = int(batch_size)

    def _set_thread(self, thread_num):
        if int(thread_num) < 1:
            raise ValueError(
                f"dataset: thread_num must be at least 1, but is {thread_num}"
            )
        self.thread_num = int(thread_num)
        self._threads_set = self.thread_num > 1
        self._changed()

    def _set_use_var(self, var_list):
        if not isinstance(var_list, (list, tuple)):
            raise TypeError(
                f"dataset: use_var must be a list of variables, but is a "
                f"{type(var_list).__name__}"
            )
        self._slots = [_slot(variable) for variable in var_list]
        self.use_var = list(var_list)
        self._changed()

    def _set_pipe_command(self, pipe_command):
        self.pipe_command = pipe_command
        self._changed()

    def _changed(self):
        """What was read by the old settings is not kept."""
        self._engine = None

    def set_filelist(self, filelist):
        """The files of this process: paths. In a job of several workers each has its own
        part, as fleet.util.get_file_shard gives it."""
        if isinstance(filelist, str):
            raise TypeError("dataset: set_filelist takes a list of paths")
        self.filelist = [str(path) for path in filelist]
        if self._engine is not None:
            self._engine.set_files(self.filelist)

    def get_filelist(self):
        return list(self.filelist or ())

    def _get_engine(self):
        if self._engine is None:
            if not self.use_var:
                raise ValueError(
                    "dataset: use_var is missing: init(use_var=[...]) says what the "
                    "lines hold"
                )
            self._engine = self._engine_type.make(
                self._slots,
                self.thread_num,
                self.pipe_command,
                self._num_texts,
                self.skip_bad_lines,
            )
            if self.filelist is not None:
                self._engine.set_files(self.filelist)
        return self._engine

    def _begin_pass(self, drop_last=False):
        """The batches of one pass, for the engine."""
        return self._get_engine().begin_pass(self.batch_size, drop_last)

    def _thread_count(self):
        """How many threads were asked for; None where nobody did."""
        return self.thread_num if self._threads_set else None

    def _feeds(self, drop_last):
        """Batches as dicts that Executor.run takes; that there is none is a ValueError."""
        from ....static.executor import _sequence

        batches, found = self._begin_pass(drop_last), False
        while (batch := batches.next()) is not None:
            found = True
            yield {
                name: values if offsets is None else _sequence(values, offsets)
                for name, values, offsets in batch
            }
        if not found:
            # A loop that trained nothing would end in a model that was not trained.
            few = f", or fewer than a batch of {self.batch_size}" if drop_last else ""
            why = f"it got no samples{few} from its {len(self.filelist or ())} files"
            raise ValueError(
                f"DataLoader.from_dataset: the dataset gave no batch: {why}"
            )

    def __repr__(self):
        names = ", ".join(variable.name for variable in self.use_var)
        return (
            f"{type(self).__name__}({len(self.filelist or ())} files, batch_size="
            f"{self.batch_size}, slots: {names})"
        )


class QueueDataset(DatasetBase):
    """Reads its files while batches are used; each epoch reads them again."""

    _engine_type = _core.QueueDataset

    def _begin_pass(self, drop_last=False):
        if self.filelist is None:
            raise RuntimeError("dataset: there are no files: call set_filelist() first")
        return super()._begin_pass(drop_last)

    def local_shuffle(self):
        raise NotImplementedError(
            "QueueDataset does not support local shuffle, please use InMemoryDataset for "
            "local_shuffle"
        )

    def global_shuffle(self, fleet=None):
        raise NotImplementedError(
            "QueueDataset does not support global shuffle, please use InMemoryDataset for "
            "global_shuffle"
        )


class FileInstantDataset(QueueDataset):
    """Another name for QueueDataset."""


class BoxPSDataset(DatasetBase):
    """Belongs to a system that there is not here."""

    def __init__(self):
        raise NotImplementedError(
            "BoxPSDataset: use InMemoryDataset, which has the same methods"
        )


class InMemoryDataset(DatasetBase):
    """Reads its files into memory, where samples are shuffled; epochs read from there."""

    _engine_type = _core.InMemoryDataset

    def init(self, **kwargs):
        """As DatasetBase.init; also takes the settings of update_settings."""
        own = {k: kwargs.pop(k) for k in list(kwargs) if k in self._OWN}
        super().init(**kwargs)
        self._apply(own)

    # What update_settings takes beside init's arguments. Those without effect say how
    # Paddle moves samples between processes, where ours are streamed.
    _OWN = {
        "queue_num": None,
        "data_feed_type": None,
        "parse_ins_id": False,
        "parse_content": False,
        "merge_size": -1,
        "fleet_send_batch_size": 1024,
        "fleet_send_sleep_seconds": 0,
        "fea_eval": False,
        "candidate_size": 10000,
    }

    def _init_distributed_settings(self, **kwargs):
        """Settings of jobs with several workers: parse_ins_id and parse_content (a line
        begins with "1 <id>", then "1 <content>", which are passed over), fea_eval; the
        others are accepted."""
        self._apply(kwargs)

    def update_settings(self, **kwargs):
        """Changes what init said. Settings other than batch_size let go of what was
        loaded."""
        setters = {
            "batch_size": self._set_batch_size,
            "thread_num": self._set_thread,
            "use_var": self._set_use_var,
            "pipe_command": self._set_pipe_command,
        }
        for name, value in kwargs.items():
            if name in setters:
                setters[name](value)
            elif name in ("fs_name", "fs_ugi", "download_cmd"):
                self._refuse_remote(**{**_LOCAL, name: value})
            elif name == "skip_bad_lines":
                self.skip_bad_lines = bool(value)
                self._changed()
            else:
                self._apply({name: value})

    def _apply(self, settings):
        for name, value in settings.items():
            if name not in self._OWN:
                raise ValueError(f"{type(self).__name__} has no setting {name}")
            if name == "merge_size" and value > 1:
                raise NotImplementedError(
                    "InMemoryDataset: merging samples by their id (merge_size) is not "
                    "supported"
                )
        texts = ("parse_ins_id", "parse_content")
        if any(name in settings for name in texts):
            for name in texts:
                setattr(self, f"_{name}", bool(settings.get(name, False)))
            self._num_texts = self._parse_ins_id + self._parse_content
            self._changed()
        if "fea_eval" in settings:
            self._fea_eval = bool(settings["fea_eval"])

    _parse_ins_id = _parse_content = _fea_eval = _loaded = False

    # ---- reading

    def load_into_memory(self, is_shuffle=False):
        """Reads all files, in place of what is in memory."""
        self._get_engine().load()
        self._loaded = True
        if is_shuffle:
            self.local_shuffle()

    def preload_into_memory(self, thread_num=None):
        """Begins to read in the background."""
        self._get_engine().preload(thread_num or 0)

    def wait_preload_done(self):
        """Waits for what preload_into_memory began."""
        self._get_engine().wait_preloaded()
        self._loaded = True

    def release_memory(self):
        """Lets what was loaded go."""
        self._loaded = False
        if self._engine is not None:
            self._engine.release()

    def _changed(self):
        super()._changed()
        self._loaded = False

    def _begin_pass(self, drop_last=False):
        if not self._loaded:
            raise RuntimeError(
                "InMemoryDataset: nothing is in memory: call load_into_memory() first"
            )
        return super()._begin_pass(drop_last)

    # ---- shuffling

    def local_shuffle(self):
        """A random order of the samples of this process, which paddle.seed repeats."""
        self._get_engine().local_shuffle(_core.draw_seed())

    def global_shuffle(self, fleet=None, thread_num=12):
        """Deals the samples of all workers out to them at random, in random order: each
        gets as many as the others, or one more, and every sample comes to one worker
        once. All workers call it. Without `fleet`, or alone, it is local_shuffle.
        """
        from .workers import group_of_workers

        group = group_of_workers(fleet)
        if group is None:
            self.local_shuffle()
        else:
            self._get_engine().global_shuffle(_core.draw_seed(), group)

    def slots_shuffle(self, slots):
        """Hands the values of these slots around among the samples, to see what they are
        worth to a model. Needs fea_eval=True."""
        if not self._fea_eval:
            raise ValueError("slots_shuffle: set fea_eval=True first")
        self._get_engine().shuffle_slots(list(slots), _core.draw_seed())

    # ---- sizes

    def get_memory_data_size(self, fleet=None):
        """Samples in memory: of this process, with `fleet` of all workers."""
        from .workers import sum_over_workers

        count = 0 if self._engine is None else self._engine.num_samples
        return sum_over_workers(fleet, count)

    def get_shuffle_data_size(self, fleet=None):
        """What get_memory_data_size answers: a shuffle loses no sample."""
        return self.get_memory_data_size(fleet)

    @property
    def read_stats(self):
        """What the last load read: lines, samples, bytes, skipped, first_skipped."""
        return self._get_engine().stats


__all__ = _names.own(globals())
