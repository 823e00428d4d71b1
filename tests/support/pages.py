"""Pages of the documentation whose Python blocks form one program, and what the program prints.

A block ``text`` after a block ``python`` is what that block prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A Python block of a page, and the output that the page shows after it."""

    name: str
    line: int
    code: str
    output: str | None

    def run(self, names: dict[str, Any]) -> str:
        """Execute the block, and return what it prints, without blanks at the ends of lines."""
        printed = io.StringIO()
        code = compile("\n" * self.line + self.code, self.name, "exec")  # errors show the lines of the page
        with contextlib.redirect_stdout(printed):
            exec(code, names)  # noqa: S102 - the documents of this repository
        return without_trailing_blanks(printed.getvalue())


def python_blocks(text: str, name: str) -> list[Block]:
    """The Python blocks of a page, in order."""
    fences = list(_FENCE.finditer(text))
    found = []
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence["language"] == "python":
            shown = following["code"] if following and following["language"] == "text" else None
            line = text.count("\n", 0, fence.start("code"))
            output = None if shown is None else without_trailing_blanks(shown)
            found.append(Block(name, line, fence["code"], output))
    return found


def run_page(path: Path, names: dict[str, Any]) -> None:
    """Run all blocks of a page with common names, and compare their output with what the page shows."""
    for block in python_blocks(path.read_text(encoding="utf-8"), path.name):
        printed = block.run(names)
        if block.output is not None:
            assert printed == block.output, f"{path.name}, output of the block in line {block.line}"


def without_trailing_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
