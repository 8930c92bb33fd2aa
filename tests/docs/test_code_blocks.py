"""Every code block of the documentation does what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from blocks import NEEDS, Block, blocks, missing
from commands import problem

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *(path for name in ("README.md", "README.zh.md", "ARTIFACT.md") if (path := ROOT / name).exists()),
    ROOT / "results" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
Shell = Callable[[str, str], subprocess.CompletedProcess[str]]
BASH = [block for file in FILES for block in blocks(file) if block.language == "bash"]


@pytest.mark.parametrize(
    "file", [file for file in FILES if any(block.runs for block in blocks(file))], ids=lambda p: p.name
)
def test_every_block_runs_as_pasted_one_after_another(file: Path, shell: Shell) -> None:
    output = ""
    for block in blocks(file):
        if block.runs:
            done = shell(block.language, block.text)
            output = done.stdout
            assert (done.returncode != 0) == (block.mark == "fails"), f"{block}\n{block.text}\n{output}"
        elif block.language == "text" and output:
            lost = missing(block.text, output)
            assert not lost, f"{block}: not printed: {lost}\n{output}"
            output = ""


@pytest.mark.parametrize("block", BASH, ids=str)
def test_every_command_names_things_that_exist(block: Block) -> None:
    subprocess.run(["bash", "-n", "-c", block.text], check=True)
    if block.mark == "fails":
        return
    found = [f"{command}: {line}" for command in block.commands if (line := problem(command))]
    assert not found, f"{block}: {found}"


def test_marks_are_those_that_the_test_knows() -> None:
    marks = {block.mark for file in FILES for block in blocks(file) if block.language in ("bash", "python")}
    assert marks <= {"", "fails", *(f"needs: {need}" for need in NEEDS)}


def test_most_blocks_are_run() -> None:
    code = [block for file in FILES for block in blocks(file) if block.language in ("bash", "python")]
    assert sum(block.runs for block in code) > len(code) / 2


def test_a_missing_line_of_output_is_found() -> None:
    assert missing("a … c\nd", "a b  c\n") == ["d"]
