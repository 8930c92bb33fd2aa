"""Commands whose reader stops early: ``… | head``."""

import subprocess
import sys

import pytest

ENDS = "import sys; from bitpipe.reader import until_reader_leaves\n"


def piped(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code before a reader that closes its end at once."""
    command = '"$0" -c "$1" | head -c 0; echo "${PIPESTATUS[0]}"'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, code], capture_output=True, text=True, timeout=60, check=True
    )


@pytest.mark.parametrize("flush", [True, False])
def test_the_command_ends_quietly_as_the_shell_expects(flush: bool) -> None:
    code = (
        f"{ENDS}def command():\n"
        f"    for k in range(100_000 if {flush} else 1): print(k, flush={flush})\n"
        "    return 0\n"
        "import select; p = select.poll(); p.register(1, 0); p.poll(30_000)  # until the reader is gone\n"
        "sys.exit(until_reader_leaves(command))"
    )
    done = piped(code)
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_another_pipe_that_breaks_is_no_reader_that_leaves() -> None:
    code = f"{ENDS}def command(): raise BrokenPipeError('of a rank')\nuntil_reader_leaves(command)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "BrokenPipeError: of a rank" in done.stderr


def test_a_whole_output_keeps_the_commands_status() -> None:
    code = f"{ENDS}sys.exit(until_reader_leaves(lambda: print('all') or 3))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (3, "all\n")
