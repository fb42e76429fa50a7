# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces: each has its own addresses, its own /dev/shm and its
own abstract sockets, and they see each other over a bridge. Needs root and iproute2."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

FLEETRUN = Path(sys.executable).parent / "fleetrun"
counter = itertools.count()


# Frames of one interface, until it is killed.
OVERHEAR = """
import socket, sys
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
heard.bind((sys.argv[1], 0))
heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
with open(sys.argv[2], "wb", buffering=0) as file:
    print("ready", flush=True)
    while True:
        file.write(heard.recv(1 << 17))
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """`count` hosts with addresses 10.78.0.1, 10.78.0.2, ...; with `networks` = 2 also
    10.79.0.1, ... on an interface of their own."""

    def __init__(self, folder, count, networks=1):
        self.folder = Path(folder)
        self.tag = f"ft{os.getpid() % 10000}x{next(counter)}"
        self.names = [f"{self.tag}h{i}" for i in range(count)]
        self.hub = f"{self.tag}hub"
        self.started = []
        ip("netns", "add", self.hub)
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            (self.folder / name).mkdir()
        for n in range(networks):
            ip("-n", self.hub, "link", "add", f"br{n}", "type", "bridge")
            ip("-n", self.hub, "link", "set", f"br{n}", "up")
            for i, name in enumerate(self.names):
                port = f"p{n}{i}"
                peer = ["peer", "name", f"eth{n}", "netns", name]
                ip("-n", self.hub, "link", "add", port, "type", "veth", *peer)
                ip("-n", self.hub, "link", "set", port, "master", f"br{n}", "up")
                address = f"{self.address(i, n)}/24"
                ip("-n", name, "addr", "add", address, "dev", f"eth{n}")
                ip("-n", name, "link", "set", f"eth{n}", "up")

    @staticmethod
    def address(host, network=0):
        return f"10.{78 + network}.0.{host + 1}"

    def addresses(self, network=0):
        return ",".join(self.address(i, network) for i in range(len(self.names)))

    def start(self, host, *command, **env):
        """Starts `command` on a host, in a folder of that host."""
        name = self.names[host]
        folder = self.folder / name
        (folder / "host.sh").write_text('mount -t tmpfs none /dev/shm\nexec "$@"\n')
        drop = ("PADDLE_", "FLEET_", "FLAGS_", "TRAINING_ROLE", "POD_IP")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        process = subprocess.Popen(
            ["ip", "netns", "exec", name, "sh", "host.sh", *map(str, command)],
            cwd=folder,
            env={**kept, "OMP_NUM_THREADS": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def fleetrun(self, host, script, *flags, **env):
        (self.folder / self.names[host] / "train.py").write_text(script)
        return self.start(host, FLEETRUN, *flags, "train.py", **env)

    def logs(self, host):
        """The logs of the ranks of a host, in the order of their local ranks."""
        folder = self.folder / self.names[host] / "log"
        return [f.read_text() for f in sorted(folder.glob("workerlog.*"))]

    def overhear(self, host, path):
        """Starts to write all that the network carries from and to a host into `path`,
        and returns when it does."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.hub, sys.executable, "-c", OVERHEAR]
            + [f"p0{host}", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        assert process.stdout.readline() == "ready\n"

    def cut(self, host):
        """The host is gone from the network without a word."""
        ip("-n", self.names[host], "link", "set", "eth0", "down")

    def close(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
