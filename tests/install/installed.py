# SPDX-License-Identifier: Apache-2.0
"""Fleet as users install it, outside of the tree. Needs build/release and .venv."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
PROJECT = pathlib.Path(__file__).resolve().parent / "project"
PYTHON = ROOT / ".venv" / "bin" / "python"


def environment(**more):
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "LD_LIBRARY_PATH")
    }
    return {**env, **more}


def call(*command, cwd=None, **env):
    """The ended process, with standard output and error in one."""
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )


def run(*command, cwd=None, **env):
    """What a command that must end well prints."""
    done = call(*command, cwd=cwd, **env)
    assert done.returncode == 0, done.stdout
    return done.stdout


def fails(*command, cwd=None, **env):
    """What a command that must fail prints, white space as single blanks."""
    done = call(*command, cwd=cwd, **env)
    assert done.returncode != 0, done.stdout
    return " ".join(done.stdout.split())


def needed(file):
    """The libraries that a program or library asks for."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", file))


def search_path(file):
    return re.findall(r"\(RUNPATH\).*\[(.*)\]", run("readelf", "-d", file))


def torch_of_another_version(folder):
    """A folder for PYTHONPATH with a package torch that nothing was built with."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text("__version__ = '9.9.9'\ncuda = None\n")
    return folder


class Project:
    """project/, which finds Fleet in `prefix` by find_package."""

    def __init__(self, folder, prefix, *options):
        self.folder = folder
        self._configure = [
            *("cmake", "-S", PROJECT, "-B", folder, "-G", "Ninja"),
            *(f"-DCMAKE_PREFIX_PATH={prefix}", *options),
        ]

    def build(self):
        run(*self._configure)
        run("ninja", "-C", self.folder)
        return self

    def refused(self, **env):
        return fails(*self._configure, **env)


class Environment:
    """Another Python environment: its own site-packages, with the torch of .venv and
    the wheel in it."""

    def __init__(self, folder, wheel):
        self.folder = folder
        run(PYTHON, "-m", "venv", folder)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python3*/site-packages")
        (ours,) = (ROOT / ".venv").glob("lib/python3*/site-packages")
        own = re.compile(r"pip(-.*)?|.*\.pth|__pycache__|_distutils_hack|setuptools.*")
        for entry in ours.iterdir():
            if not own.fullmatch(entry.name):
                (self.site / entry.name).symlink_to(entry)
        self.pip("install", "--no-deps", "--no-index", "--quiet", wheel)

    def pip(self, *words):
        quiet = "--disable-pip-version-check"
        return run(self.python, "-m", "pip", words[0], quiet, *words[1:])


def make_wheel(folder):
    """The wheel of this tree, with the compiler and flags of build/release, so that
    ccache has every file."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:[A-Z]*=(.*)$", cache, re.M)[1]
    run(
        *(PYTHON, "-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps"),
        *("--quiet", "--disable-pip-version-check", "--wheel-dir", folder),
        "--config-settings=cmake.define.FLEET_WERROR=ON",
        cwd=ROOT,
        CXX=compiler,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel
