# SPDX-License-Identifier: Apache-2.0
"""Datasets with Paddle 1.x's setters; see paddle.distributed.InMemoryDataset."""

from ..distributed.fleet import dataset as _new


class DatasetFactory:
    """Makes datasets by the name of their class."""

    def create_dataset(self, datafeed_class="QueueDataset"):
        kinds = {
            kind.__name__: kind
            for kind in (QueueDataset, InMemoryDataset, FileInstantDataset)
        }
        kinds["BoxPSDataset"] = _new.BoxPSDataset
        if datafeed_class not in kinds:
            raise ValueError(
                f"datafeed class {datafeed_class} does not exist; there are "
                f"{', '.join(kinds)}"
            )
        return kinds[datafeed_class]()


class DatasetBase:
    """The setters of all datasets."""

    def set_batch_size(self, batch_size):
        self._set_batch_size(batch_size)

    def set_thread(self, thread_num):
        self._set_thread(thread_num)

    def set_use_var(self, var_list):
        self._set_use_var(var_list)

    def set_pipe_command(self, pipe_command):
        """See paddle.distributed.QueueDataset.init: it is started without a shell."""
        self._set_pipe_command(pipe_command)

    def set_hdfs_config(self, fs_name, fs_ugi):
        self._refuse_remote(fs_name, fs_ugi, "cat")

    def set_download_cmd(self, download_cmd):
        self._refuse_remote("", "", download_cmd)

    def set_skip_bad_lines(self, skip_bad_lines):
        """Lines that are wrong are left out and counted instead of raising."""
        self.skip_bad_lines = bool(skip_bad_lines)
        self._changed()

    def desc(self):
        """The dataset as text."""
        return repr(self)


class QueueDataset(DatasetBase, _new.QueueDataset):
    """Reads its files while batches are used."""


class FileInstantDataset(QueueDataset):
    """Another name for QueueDataset."""


class InMemoryDataset(DatasetBase, _new.InMemoryDataset):
    """Reads its files into memory, where samples are shuffled."""

    def set_feed_type(self, data_feed_type):
        """Accepted; files hold multi-slot text."""

    def set_queue_num(self, queue_num):
        """Accepted; batches need no queues here."""

    def set_parse_ins_id(self, parse_ins_id):
        """A line begins with "1 <id>", which is passed over."""
        self._apply(
            {"parse_ins_id": parse_ins_id, "parse_content": self._parse_content}
        )

    def set_parse_content(self, parse_content):
        """A line has "1 <content>" before its slots, which is passed over."""
        self._apply(
            {"parse_ins_id": self._parse_ins_id, "parse_content": parse_content}
        )

    def set_merge_by_lineid(self, merge_size=2):
        self._apply({"merge_size": merge_size})

    def set_fleet_send_batch_size(self, fleet_send_batch_size=1024):
        """Accepted; a global shuffle streams."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds=0):
        """Accepted; a global shuffle streams."""

    def set_fea_eval(self, record_candidate_size, fea_eval=True):
        """Allows slots_shuffle."""
        self._apply({"fea_eval": fea_eval})
