"""What a check found: the level, the sentence, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    >>> str(Finding("warning", "disk", "3 % of the disk is free", fix="delete old checkpoints"))
    'disk: 3 % of the disk is free; delete old checkpoints'
    """

    level: Level
    check: str
    text: str
    fix: str | None = None

    def __str__(self) -> str:
        return f"{self.check}: {self.text}" + (f"; {self.fix}" if self.fix else "")
