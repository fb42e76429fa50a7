# SPDX-License-Identifier: Apache-2.0
"""The Python of documents runs (complete.py says how a block is completed)."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE, HERE.parent / "launch"):  # complete.py and launcher.py
    sys.path.append(str(folder))

from complete import PYTHON, blocks, complete_python  # noqa: E402
from launcher import PATIENCE, Launcher  # noqa: E402

DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "fleet").glob("*/README.md"),
        *(ROOT / "tests").rglob("*.md"),
    ]
)
BLOCKS = [
    (document, block) for document in DOCUMENTS for block in blocks(document, PYTHON)
]


def named(document, block):
    return f"{document.relative_to(ROOT)}:{block.line}"


def of_kind(mark):
    return [
        pytest.param(document, block, id=named(document, block))
        for document, block in BLOCKS
        if block.mark == mark
    ]


def run(text, folder, **env):
    """The script alone, in `folder`; what it printed."""
    script = folder / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env={**os.environ, **env},
        timeout=PATIENCE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(name, document):
    frame = HERE / "python" / f"{name}.py"
    text = complete_python(ROOT / document, frame, str(frame.relative_to(ROOT)))
    compile(text, frame, "exec")
    return text


@pytest.fixture
def launcher(tmp_path):
    made = Launcher(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("document, block", of_kind(""))
def test_a_block_runs_as_it_is_written(document, block, tmp_path):
    text = "\n".join(block.lines)
    # What goes on from it runs behind it.
    after = [other for other in blocks(document, PYTHON) if other.line > block.line]
    for other in after:
        if other.mark != "goes on":
            break
        text += "\n" + "\n".join(other.lines)
    run(text, tmp_path)


@pytest.mark.parametrize("document, block", of_kind("quoted from"))
def test_a_quoted_block_stands_in_its_file(document, block):
    text = textwrap.dedent("\n".join(block.lines)).strip()
    assert text in textwrap.dedent((ROOT / block.file).read_text())


def test_every_frame_is_used():
    used = {block.file for _, block in BLOCKS if block.mark == "completed in"}
    frames = {str(path.relative_to(ROOT)) for path in (HERE / "python").glob("*.py")}
    assert used == frames


def test_no_block_goes_on_from_nothing():
    for document in DOCUMENTS:
        before = None
        for block in blocks(document, PYTHON):
            if block.mark == "goes on":
                assert before in ("", "goes on"), named(document, block)
            before = block.mark


def test_a_script_of_readme_runs_on_two_ranks(launcher):
    script = launcher.write("train.py", completed("readme_ranks", "README.md"))
    done = launcher.run("--nproc_per_node=2", script)
    assert done.returncode == 0, done.stderr
    assert "trained by 2 ranks" in done.stdout


def test_a_script_of_readme_runs_with_servers(launcher):
    script = launcher.write("train.py", completed("readme_servers", "README.md"))
    done = launcher.run("--server_num=2", "--worker_num=2", script)
    assert done.returncode == 0, done.stderr


def test_files_are_trained_on(tmp_path):
    printed = run(completed("datasets", "docs/howto/datasets.md"), tmp_path)
    assert "trained on 1400 samples" in printed


def test_mixed_precision_trains_eagerly(tmp_path):
    run(completed("mixed_precision", "docs/howto/mixed-precision.md"), tmp_path)


def test_an_op_is_compared_with_torch(tmp_path):
    text = completed("check_an_op", "docs/howto/add-an-op.md")
    run(text, tmp_path, PYTHONPATH=str(ROOT / "python" / "tests"))


def test_a_model_is_trained_with_servers_and_inferred_with_them(launcher):
    document = "docs/howto/train-with-servers.md"
    for name in ("train_with_servers", "infer_with_servers"):
        script = launcher.write(f"{name}.py", completed(name, document))
        done = launcher.run("--server_num=2", "--worker_num=2", script)
        assert done.returncode == 0, done.stderr
