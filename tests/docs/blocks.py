"""Code blocks of Markdown files, and how each is to be checked.

A comment on the line before a block says what it needs; without one it is run:

``<!-- needs: slurm -->``    also ``gpu``, ``time``, ``network``, ``installation``: not run, but every command
                             line in it is checked against what it calls
``<!-- fails -->``           run, and must end with a status other than 0

A ``text`` block that follows a block that was run is what that block prints: each of its lines must occur
in the output, ``…`` standing for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NEEDS = ("slurm", "gpu", "time", "network", "installation")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (.*) -->\n\Z")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One code block: where it stands, its language, its mark, its text."""

    file: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def runs(self) -> bool:
        return self.language in ("bash", "python") and not self.mark.startswith("needs: ")

    @property
    def commands(self) -> list[str]:
        """The command lines of a bash block: continued lines joined, here-documents and comments left out."""
        text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        lines = text.replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"


def blocks(file: Path) -> list[Block]:
    """Every fenced block of a file, in order."""
    content = file.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(content):
        mark = _MARK.search(content[: fence.start()])
        found.append(
            Block(
                file=file,
                line=content.count("\n", 0, fence.start()) + 1,
                language=fence[1],
                mark=mark[1] if mark else "",
                text=fence[2],
            )
        )
    return found


def missing(expected: str, output: str) -> list[str]:
    """The lines of ``expected`` that do not occur in ``output``, white space aside."""
    plain = re.sub(r"\s+", " ", output)
    lost = []
    for line in filter(str.strip, expected.splitlines()):
        parts = (re.escape(re.sub(r"\s+", " ", part)) for part in line.strip().split("…"))
        if not re.search(".*?".join(parts), plain):
            lost.append(line)
    return lost
