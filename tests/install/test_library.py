# SPDX-License-Identifier: Apache-2.0
"""Fleet as a C++ library: installed by CMake and found by find_package."""

import re

import pytest

from tests.install.installed import (
    BUILD,
    PYTHON,
    Project,
    call,
    needed,
    run,
    torch_of_another_version,
)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("usr")
    run("cmake", "--install", BUILD, "--component", "development", "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def project(prefix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("with_torch")
    return Project(folder, prefix, f"-DPython_EXECUTABLE={PYTHON}").build()


def test_no_header_of_tests_or_of_fleetrun_is_installed(prefix):
    headers = prefix / "include/fleet"
    assert (headers / "fleet.h").exists() and not (headers / "testing").exists()
    foreign = re.compile(r"#include <(gtest|gmock|benchmark|CLI)/")
    assert [h for h in headers.rglob("*.h") if foreign.search(h.read_text())] == []


def test_fleetrun_needs_no_library_of_ours(prefix, tmp_path):
    fleetrun = prefix / "bin/fleetrun"
    run(fleetrun, "true", cwd=tmp_path)
    assert not [n for n in needed(fleetrun) if re.match("libfleet|.*torch|.*c10", n)]


def test_fleet_server_needs_libfleet_core_only(prefix):
    server = prefix / "bin/fleet_server"
    run(server, "--help")
    known = r"(ld-linux.*|libc|libm|libgcc_s|libstdc\+\+|libfleet_core)\.so.*"
    assert needed(server) and all(re.fullmatch(known, n) for n in needed(server))


def test_a_program_over_libfleet_runs(project):
    run(project.folder / "torch_user")


def test_a_program_that_trains_runs_alone_and_as_ranks(project, prefix, tmp_path):
    program = project.folder / "train_user"
    run(program, cwd=tmp_path)
    fleetrun = prefix / "bin/fleetrun"
    together = run(fleetrun, "--nproc_per_node", 2, program, cwd=tmp_path)
    assert "rank 0 of 2" in together


def test_libfleet_core_needs_no_python_and_no_torch(prefix, tmp_path):
    without = ["-DWITH_TORCH=OFF", f"-DPython_EXECUTABLE={tmp_path}/no_python"]
    project = Project(tmp_path / "build", prefix, *without).build()
    program = project.folder / "core_user"
    assert not [n for n in needed(program) if re.match(".*torch|.*c10", n)]
    assert call(program).returncode == 0


def test_another_torch_is_refused_with_both_versions(prefix, tmp_path):
    other = torch_of_another_version(tmp_path / "other")
    project = Project(tmp_path / "build", prefix, f"-DPython_EXECUTABLE={PYTHON}")
    version = (BUILD / "lib/torch_version").read_text().strip()
    said = project.refused(PYTHONPATH=str(other))
    assert f"was built with torch {version}, but" in said
