# SPDX-License-Identifier: Apache-2.0
"""Fleet as a wheel, installed into another Python environment."""

import collections
import importlib.metadata
import pathlib
import re
import zipfile

import pytest

from tests.install.installed import (
    BUILD,
    ROOT,
    Environment,
    call,
    fails,
    make_wheel,
    needed,
    run,
    search_path,
    torch_of_another_version,
)

# Loaded on first use, beside the engine where the machine had their libraries.
MODULES = {f"libfleet_{name}.so" for name in ("mpi", "nccl", "rocksdb", "ucx")}

TRAIN = """
import pathlib, sys
import paddle
site = sys.argv[1]
assert pathlib.Path(paddle.__file__).is_relative_to(site), paddle.__file__
layer = paddle.nn.Linear(4, 1)
adam = paddle.optimizer.Adam(learning_rate=0.1, parameters=layer.parameters())
before = layer.weight.numpy().copy()
loss = paddle.mean(layer(paddle.ones([2, 4])))
loss.backward()
adam.step()
assert abs(abs(before - layer.weight.numpy()) - 0.1).max() < 1e-4
assert "torch" not in sys.modules
engine = [line.split()[-1] for line in open("/proc/self/maps") if "libfleet" in line]
assert engine and all(path.startswith(site) for path in engine), engine
"""

RANK = """
import os, sys
print("rank", os.environ["PADDLE_TRAINER_ID"], sys.executable)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return make_wheel(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("env"), wheel)


def test_it_holds_the_package_once_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert [n for n, count in collections.Counter(names).items() if count > 1] == []
    assert [n for n in names if re.search(r"__pycache__|\.pyc$|(^|/)test", n)] == []
    data, info = "fleet_train-0.1.0.data", "fleet_train-0.1.0.dist-info"
    assert {n.split("/")[0] for n in names} == {"paddle", data, info}
    assert f"{data}/scripts/fleetrun" in names
    package = ROOT / "python"
    sources = {str(p.relative_to(package)) for p in package.glob("paddle/**/*.py")}
    assert sources - set(names) == set()


def test_it_holds_a_stub_for_every_module_that_users_import(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "paddle/py.typed" in names
    modules = {
        n.removesuffix(".py")
        for n in names
        if n.endswith(".py") and not re.search(r"/_(?!_init__)", n)
    }
    stubs = {n.removesuffix(".pyi") for n in names if n.endswith(".pyi")}
    assert len(modules) > 200 and modules - stubs == set()
    tensor = zipfile.ZipFile(wheel).read("paddle/_core.pyi").decode()
    assert "    def exp_(x: Tensor, name: str | None = None) -> Tensor: ..." in tensor


def test_it_holds_the_engine_and_its_modules(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    paths = {pathlib.PurePath(n) for n in names if n.startswith("paddle/_lib/")}
    generated = {p.name for p in paths if p.parent.name == "generated"}
    made = {p.name for p in (BUILD / "lib/generated").glob("*.py")}
    assert "nn_functional_activation.py" in made and generated == made
    engine = {p.name for p in paths if p.parent.name == "_lib"}
    engine = {re.sub(r"^_core\..*\.so$", "_core.so", name) for name in engine}
    own = {"_core.so", "libfleet.so", "libfleet_core.so", "torch_version"}
    assert engine - MODULES == own


def test_it_requires_the_torch_it_was_built_with(wheel):
    metadata = zipfile.ZipFile(wheel).read("fleet_train-0.1.0.dist-info/METADATA")
    wanted = "Requires-Dist: torch==" + importlib.metadata.version("torch")
    assert wanted in metadata.decode().splitlines()


def test_pip_finds_its_requirements_met(installed):
    # pip also complains of packages that are not ours, and then ends with 1.
    check = ["pip", "check", "--disable-pip-version-check"]
    done = call(installed.python, "-m", *check)
    assert done.returncode in (0, 1), done.stdout
    assert [li for li in done.stdout.splitlines() if li.startswith("fleet")] == []


def test_it_trains_a_step_with_its_own_engine(installed, tmp_path):
    run(installed.python, "-c", TRAIN, installed.site, cwd=tmp_path)


def test_fleetrun_and_the_launch_module_start_that_python(installed, tmp_path):
    (tmp_path / "rank.py").write_text(RANK)

    def shows(log, rank):
        line = f"rank {rank} {installed.python}"
        return line in (tmp_path / log).read_text().splitlines()

    fleetrun = installed.folder / "bin/fleetrun"
    run(fleetrun, "--gpus=0,1", "--log_dir", "log", "rank.py", cwd=tmp_path)
    assert shows("log/workerlog.0", 0) and shows("log/workerlog.1", 1)
    launch = [installed.python, "-m", "paddle.distributed.launch"]
    run(*launch, "--log_dir", "log2", "rank.py", cwd=tmp_path)
    assert shows("log2/workerlog.0", 0)


def test_it_needs_the_known_libraries_and_no_others(installed):
    """The C and C++ libraries, torch's, OpenSSL's, and oneDNN and Highway where they
    were there when it was built. RocksDB, UCX and MPI are never among them: their modules are
    loaded on first use."""
    known = (
        r"(ld-linux.*|libc|libm|libgcc_s|libstdc\+\+|libdnnl|libhwy|libssl|libcrypto|libc10"
        r"|libtorch|libtorch_cpu|libfleet|libfleet_core)\.so.*"
    )
    on_first_use = MODULES - {"libfleet_nccl.so"}
    files = [installed.folder / "bin/fleetrun"]
    files += (installed.site / "paddle/_lib").glob("*.so")
    names = {n for f in files if f.name not in on_first_use for n in needed(f)}
    assert names and [n for n in names if not re.fullmatch(known, n)] == []


def test_it_looks_beside_itself_and_beside_torch_only(installed):
    for file in (installed.site / "paddle/_lib").glob("*.so"):
        paths = ["$ORIGIN"]
        if file.name not in {"libfleet_core.so", *MODULES}:
            paths.append("$ORIGIN/../../torch/lib")
        assert search_path(file) == [":".join(paths)], file


def test_another_torch_is_refused_with_both_versions(installed, tmp_path):
    other = torch_of_another_version(tmp_path)
    version = (installed.site / "paddle/_lib/torch_version").read_text().strip()
    said = fails(
        installed.python, "-c", "import paddle", cwd=tmp_path, PYTHONPATH=str(other)
    )
    assert f"was built with torch {version}, but this Python has 9.9.9" in said


def test_it_says_so_where_there_is_no_torch(wheel, tmp_path):
    environment = Environment(tmp_path / "env", wheel)
    (environment.site / "torch").unlink()
    said = fails(environment.python, "-c", "import paddle", cwd=tmp_path)
    assert "there is none in this Python" in said
