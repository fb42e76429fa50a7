# SPDX-License-Identifier: Apache-2.0
"""The C++ of documents compiles and runs. The programs are made by the build
(complete.py, CMakeLists.txt)."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE, HERE.parent / "launch"):  # complete.py and launcher.py
    sys.path.append(str(folder))

from complete import blocks  # noqa: E402
from launcher import FLEETRUN, PATIENCE, Launcher  # noqa: E402

PROGRAMS = FLEETRUN.resolve().parent


@pytest.fixture
def launcher(tmp_path):
    made = Launcher(tmp_path)
    yield made
    made.end()


def alone(name, folder, *arguments):
    return subprocess.run(
        [PROGRAMS / f"snippet_{name}", *arguments],
        cwd=folder,
        timeout=PATIENCE,
        capture_output=True,
        text=True,
    )


def documents():
    return [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] + [
        *(ROOT / "fleet").glob("*/README.md")
    ]


def test_every_block_names_the_file_that_completes_it():
    named = {}
    for document in documents():
        for block in blocks(document):
            where = f"{document.relative_to(ROOT)}:{block.line}"
            frame = block.file
            assert frame, f"{where}: the line above says in which file it is compiled"
            assert (ROOT / frame).exists(), f"{where}: {frame}"
            named.setdefault(ROOT / frame, where)
    assert set(named) == set(HERE.glob("*.cc"))


def test_a_program_trains_alone_and_as_two_ranks(launcher):
    done = alone("train_in_cpp", launcher.folder)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 1" in done.stdout
    program = str(PROGRAMS / "snippet_train_in_cpp")
    done = launcher.run("--nproc_per_node=2", program)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout
    import paddle

    weights = paddle.load(str(launcher.folder / "net.pdparams"))
    assert weights["fc.weight"].shape == [1, 2]


def test_a_program_goes_on_from_its_checkpoint(tmp_path):
    def train(folder, epochs):
        folder.mkdir(exist_ok=True)
        done = alone("resume_in_cpp", folder, str(epochs))
        assert done.returncode == 0, done.stderr
        return done.stdout

    whole = train(tmp_path / "whole", 4)
    assert train(tmp_path / "parts", 2) != whole
    assert train(tmp_path / "parts", 4) == whole
    import paddle

    net = paddle.nn.Linear(2, 1)
    net.set_state_dict(paddle.load(str(tmp_path / "parts" / "net.pdparams")))
    weight, bias = map(float, whole.split())
    assert abs(float(net.weight[0, 0]) - weight) < 1e-6
    assert abs(float(net.bias[0]) - bias) < 1e-6
    checkpoint = paddle.load(str(tmp_path / "parts" / "net.checkpoint"))
    assert checkpoint["progress"] == 4
    assert checkpoint["optimizer"]["rule"] == "Adam"


def test_a_program_trains_with_servers(launcher):
    done = launcher.run(
        "--server_num=2",
        "--worker_num=2",
        f"--server_program={PROGRAMS / 'fleet_server'}",
        str(PROGRAMS / "snippet_train_with_servers"),
    )
    assert done.returncode == 0, done.stderr


def test_a_program_serves_itself_and_logs(launcher):
    done = launcher.run(
        "--server_num=2",
        "--worker_num=2",
        str(PROGRAMS / "snippet_train_with_servers"),
    )
    assert done.returncode == 0, done.stderr
    assert "; durability log, in " in launcher.log("serverlog.0")


def test_a_saved_model_runs(tmp_path):
    import paddle
    from paddle.static import InputSpec

    layer = paddle.nn.Linear(8, 3)
    spec = [InputSpec([None, 8], "float32")]
    paddle.jit.save(layer, str(tmp_path / "models" / "net"), input_spec=spec)
    done = alone("run_model", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 outputs of 2 rows\n"


def test_an_op_is_added(tmp_path):
    done = alone("add_an_op", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.5 0.25\n"


def test_a_program_is_built(tmp_path):
    done = alone("build_a_program", tmp_path)
    assert done.returncode == 0, done.stderr
    types = done.stdout.split()
    assert types[:3] == ["mul", "elementwise_add", "relu"]
    assert types.count("adam") == 4


def test_a_program_in_float16_is_built(tmp_path):
    done = alone("mixed_precision", tmp_path)
    assert done.returncode == 0, done.stderr
    types = done.stdout.split()
    assert types.index("cast") < types.index("check_finite_and_unscale")
    assert types.count("conditional_block") == 2 and types.count("adam") == 2
