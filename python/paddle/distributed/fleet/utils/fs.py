# SPDX-License-Identifier: Apache-2.0
"""File systems: this host's, and HDFS through its own program."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from xml.sax.saxutils import escape

__all__ = ["FS", "HDFSClient", "LocalFS"]


class ExecuteError(Exception):
    """A command failed."""


class FSFileExistsError(Exception):
    """A file is in the way."""


class FSFileNotExistsError(Exception):
    """A file is missing."""


class FSTimeOut(Exception):
    """A command took too long."""


class FS:
    """What file systems do."""

    def _no(self, name):
        raise NotImplementedError(f"{type(self).__name__} has no {name}")

    def ls_dir(self, fs_path):
        """(folders, files) of a folder, by name."""
        self._no("ls_dir")

    def is_file(self, fs_path):
        self._no("is_file")

    def is_dir(self, fs_path):
        self._no("is_dir")

    def is_exist(self, fs_path):
        self._no("is_exist")

    def upload(self, local_path, fs_path):
        self._no("upload")

    def download(self, fs_path, local_path):
        self._no("download")

    def mkdirs(self, fs_path):
        self._no("mkdirs")

    def delete(self, fs_path):
        self._no("delete")

    def need_upload_download(self):
        """Whether files are elsewhere."""
        return False

    def list_dirs(self, fs_path):
        """The folders in a folder."""
        return self.ls_dir(fs_path)[0]


class LocalFS(FS):
    """This host's files."""

    def ls_dir(self, fs_path):
        if not self.is_exist(fs_path):
            return [], []
        names = sorted(os.listdir(fs_path))
        folders = [n for n in names if os.path.isdir(os.path.join(fs_path, n))]
        return folders, [n for n in names if n not in folders]

    def is_file(self, fs_path):
        return os.path.isfile(fs_path)

    def is_dir(self, fs_path):
        return os.path.isdir(fs_path)

    def is_exist(self, fs_path):
        return os.path.exists(fs_path)

    def mkdirs(self, fs_path):
        if os.path.isfile(fs_path):
            raise FSFileExistsError(f"{fs_path} is a file")
        os.makedirs(fs_path, exist_ok=True)

    def delete(self, fs_path):
        """Removes a file, or a folder with all that is in it, if it is there."""
        if os.path.isdir(fs_path) and not os.path.islink(fs_path):
            shutil.rmtree(fs_path)
        elif os.path.lexists(fs_path):
            os.remove(fs_path)

    def rename(self, fs_src_path, fs_dst_path):
        os.rename(fs_src_path, fs_dst_path)

    def mv(self, src_path, dst_path, overwrite=False, test_exists=False):
        """Gives a file or folder another name."""
        if not self.is_exist(src_path):
            raise FSFileNotExistsError(f"{src_path} is not there")
        if self.is_exist(dst_path):
            if not overwrite:
                raise FSFileExistsError(f"{dst_path} is there already")
            self.delete(dst_path)
        self.rename(src_path, dst_path)

    def touch(self, fs_path, exist_ok=True):
        """An empty file, if there is none."""
        if self.is_exist(fs_path):
            if exist_ok:
                return
            raise FSFileExistsError(f"{fs_path} is there already")
        with open(fs_path, "a", encoding="utf8"):
            pass

    def cat(self, fs_path):
        """The text of a file."""
        with open(fs_path, encoding="utf8") as file:
            return file.read().rstrip("\n")


class HDFSClient(FS):
    """HDFS, by the program `hadoop` of an installation.

    Args:
        hadoop_home: where it is installed; bin/hadoop lies in it.
        configs: settings such as fs.default.name and hadoop.job.ugi.
        time_out: of a command, in milliseconds.
        sleep_inter: accepted; a command is not tried again.

    `multi_processes` of upload() and download() is accepted: hadoop copies by itself.
    """

    def __init__(
        self, hadoop_home, configs=None, time_out=5 * 60 * 1000, sleep_inter=1000
    ):
        self._program = os.path.join(hadoop_home, "bin", "hadoop")
        self._configs = dict(configs or {})
        self._time_out = time_out / 1000.0

    def _run(self, *arguments):
        """(exit status, output) of `hadoop fs` with the settings."""
        try:
            with self._settings() as settings:
                done = subprocess.run(
                    [self._program, "fs", *settings, *arguments],
                    capture_output=True,
                    text=True,
                    timeout=self._time_out,
                )
        except subprocess.TimeoutExpired:
            raise FSTimeOut(
                f"{' '.join(arguments)}: no end after {self._time_out} s"
            ) from None
        except OSError as error:
            raise ExecuteError(f"{self._program}: {error}") from None
        return done.returncode, done.stdout, done.stderr

    @contextlib.contextmanager
    def _settings(self):
        """The arguments by which hadoop learns the settings. They may hold a password,
        and all users see the arguments of a process, so that they come in a file which
        only this user can read."""
        if not self._configs:
            yield []
            return
        properties = [
            f"<property><name>{escape(str(name))}</name>"
            f"<value>{escape(str(value))}</value></property>"
            for name, value in self._configs.items()
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".xml", encoding="utf8") as file:
            file.write('<?xml version="1.0" encoding="UTF-8"?>\n<configuration>\n')
            file.write("\n".join(properties) + "\n</configuration>\n")
            file.flush()
            yield ["-conf", file.name]

    def _do(self, *arguments):
        status, output, errors = self._run(*arguments)
        if status != 0:
            raise ExecuteError(
                f"hadoop fs {' '.join(arguments)}: exit status {status}: {errors.strip()}"
            )
        return output

    def _test(self, flag, fs_path):
        return self._run("-test", flag, fs_path)[0] == 0

    def ls_dir(self, fs_path):
        if not self.is_exist(fs_path):
            return [], []
        folders, files = [], []
        for line in self._do("-ls", fs_path).splitlines():
            words = line.split()
            if len(words) != 8:
                continue
            name = os.path.basename(words[7])
            (folders if words[0].startswith("d") else files).append(name)
        return folders, files

    def is_file(self, fs_path):
        return self.is_exist(fs_path) and not self.is_dir(fs_path)

    def is_dir(self, fs_path):
        return self._test("-d", fs_path)

    def is_exist(self, fs_path):
        return self._test("-e", fs_path)

    def upload(self, local_path, fs_path, multi_processes=1, overwrite=False):
        """Copies a file or folder of this host there."""
        if not os.path.exists(local_path):
            raise FSFileNotExistsError(f"{local_path} is not there")
        if overwrite and self.is_exist(fs_path):
            self.delete(fs_path)
        self._do("-put", local_path, fs_path)

    def download(self, fs_path, local_path, multi_processes=1, overwrite=False):
        """Copies a file or folder here."""
        if not self.is_exist(fs_path):
            raise FSFileNotExistsError(f"{fs_path} is not there")
        if overwrite:
            LocalFS().delete(local_path)
        self._do("-get", fs_path, local_path)

    def mkdirs(self, fs_path):
        self._do("-mkdir", "-p", fs_path)

    def delete(self, fs_path):
        if self.is_exist(fs_path):
            self._do("-rm", "-r", "-f", fs_path)

    def mv(self, fs_src_path, fs_dst_path, overwrite=False, test_exists=True):
        """Gives a file or folder another name; `test_exists` looks before whether the
        old one is there and the new one is not."""
        if overwrite:
            self.delete(fs_dst_path)
        if test_exists:
            if not self.is_exist(fs_src_path):
                raise FSFileNotExistsError(f"{fs_src_path} is not there")
            if self.is_exist(fs_dst_path):
                raise FSFileExistsError(f"{fs_dst_path} is there already")
        self._do("-mv", fs_src_path, fs_dst_path)

    def touch(self, fs_path, exist_ok=True):
        if self.is_exist(fs_path):
            if exist_ok:
                return
            raise FSFileExistsError(f"{fs_path} is there already")
        self._do("-touchz", fs_path)

    def cat(self, fs_path):
        return self._do("-cat", fs_path).rstrip("\n")

    def need_upload_download(self):
        return True
