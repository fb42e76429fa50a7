# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster of this one machine, in a folder of its own: munged, slurmctld and
slurmd from Debian's packages, with ports, keys and state that no other Slurm has."""

import contextlib
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
import time

from tests.ports import free_row

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PATH = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"


def missing():
    """What keeps this machine from being a cluster; empty when nothing does."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"no {', '.join(absent)} (Debian: slurmd slurmctld slurm-client munge)"
    if os.geteuid() != 0:
        return "slurmd must be started by root"
    return ""


def wanted():
    """Whether the tests are to run: where Slurm is and, present or not, where CI is set,
    so that they cannot go missing unseen."""
    return not missing() or bool(os.environ.get("CI"))


class Cluster:
    """Started by `with`, and ended with all that runs in it. Tasks beyond the cores of
    the machine share them."""

    def __init__(self, folder, num_tasks=4):
        self._folder, self._num_tasks = folder, num_tasks
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SLURM_")},
            "PATH": PATH,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._end = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self._end.close)
            self._start_munge()
            self._write_config()
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D")
            self._wait_until_idle()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self._end.close()

    def srun(self, *arguments, timeout=120, **env):
        """The ended process: exit code, standard output, standard error."""
        return subprocess.run(
            ["srun", *map(str, arguments)],
            env={**self._environment, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    @contextlib.contextmanager
    def start_srun(self, *arguments, **env):
        """A job that is ended when the block is left."""
        process = subprocess.Popen(
            ["srun", *map(str, arguments)],
            env={**self._environment, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            self._stop(process)

    def unmunge(self, credential, user):
        """Exit code and output of a user who tries to open a credential."""
        done = subprocess.run(
            ["unmunge", f"--socket={self.munge_socket}"],
            input=credential,
            capture_output=True,
            user=user,
            timeout=60,
        )
        return done.returncode, (done.stdout + done.stderr).decode()

    def _start(self, *command):
        log = open(self._folder / f"{command[0]}.output", "wb")
        self._end.callback(log.close)
        process = subprocess.Popen(
            command, env=self._environment, stdout=log, stderr=subprocess.STDOUT
        )
        self._end.callback(self._stop, process)

    @staticmethod
    def _stop(process):
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start_munge(self):
        folder = self._folder / "munge"
        folder.mkdir(mode=0o700)
        # Every user of the machine may ask munged, as on real clusters.
        public = self._end.enter_context(tempfile.TemporaryDirectory())
        os.chmod(public, 0o755)
        self.munge_socket = f"{public}/socket"
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        # The folder above may be anybody's, which munged would refuse.
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.munge_socket}",
            f"--pid-file={folder}/pid",
            f"--log-file={folder}/log",
            f"--seed-file={folder}/seed",
        )

    def _write_config(self):
        controller = free_row(2)
        node, folder = platform.node().split(".")[0], self._folder
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(
            f"""\
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={controller + 1}
AuthType=auth/munge
AuthInfo=socket={self.munge_socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={node} NodeAddr=127.0.0.1 CPUs={self._num_tasks} State=UNKNOWN
PartitionName=test Nodes={node} Default=YES State=UP
"""
        )

    def _wait_until_idle(self, patience=60):
        deadline = time.monotonic() + patience
        while True:
            state = subprocess.run(
                ["sinfo", "--noheader", "--format=%T"],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            if state.stdout.strip() == "idle":
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"Slurm is not ready after {patience} s: {state.stdout}"
                    f"{state.stderr}\n{self.logs()}"
                )
            time.sleep(0.1)

    def logs(self):
        """What the daemons wrote, for a message."""
        files = [*self._folder.glob("*.output"), *self._folder.glob("*.log")]
        return "\n".join(f"--- {f.name}\n{f.read_text()[-2000:]}" for f in files)
