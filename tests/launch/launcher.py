# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes under fleetrun, which `make` puts beside Python."""

import os
import pathlib
import subprocess
import sys
import time
import uuid

FLEETRUN = pathlib.Path(sys.executable).parent / "fleetrun"
# Nothing here takes long; a job that does hangs.
PATIENCE = 60


class Launcher:
    """A folder in which fleetrun is started, and a mark on all that it starts."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = f"mark-{uuid.uuid4()}"
        self.started = []

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def environment(self, **more):
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PADDLE_", "FLEET_", "OMP_", "FLAGS_"))
        }
        env["FLEET_TEST_MARK"] = self.mark
        env["CUDA_VISIBLE_DEVICES"] = ""  # the same with and without GPUs
        env.update(more)
        return env

    def start(self, *arguments, program=FLEETRUN, **env):
        process = subprocess.Popen(
            [program, *arguments],
            cwd=self.folder,
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run(self, *arguments, **env):
        return self.finish(self.start(*arguments, **env))

    def log(self, name, log_dir="log"):
        return (self.folder / log_dir / name).read_text()

    def wait_for_text(self, name, text, log_dir="log"):
        """Waits until a log holds `text`."""
        path = self.folder / log_dir / name
        wait_until(
            lambda: path.exists() and text in path.read_text(),
            f"{text!r} in {path}",
        )

    def processes(self):
        """All processes that carry the mark, however they were started."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environ = (path / "environ").read_bytes()
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if self.mark.encode() in environ and state != "Z":
                found.append(int(path.name))
        return found

    def assert_nothing_left(self):
        wait_until(lambda: not self.processes(), "the end of all processes")

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in self.processes():
            os.kill(pid, 9)


def own_shared_memory(folder):
    """What goes before a command whose /dev/shm shall be `folder`, so that a test sees
    what is left there by its own processes alone."""
    may_mount = [] if os.geteuid() == 0 else ["--map-root-user"]
    bind = 'mount --bind "$0" /dev/shm && exec "$@"'
    return ["unshare", "--mount", *may_mount, "sh", "-c", bind, str(folder)]


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE} s for {what}"
        time.sleep(0.01)
