"""How benchmarks measure and report: best of several runs, CPU seconds beside wall seconds, tables."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Timing:
    """The best run: wall seconds and the CPU seconds of this process."""

    seconds: float
    cpu_seconds: float

    @property
    def undisturbed(self) -> float:
        """CPU seconds: what the work costs, whoever else uses the machine."""
        return self.cpu_seconds


def timed(work: Callable[[], object], runs: int = 3) -> Timing:
    """The fastest of several runs of ``work``."""
    results = []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        results.append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
    return min(results, key=lambda timing: timing.cpu_seconds)


@dataclass(slots=True)
class Section:
    """One table of a report, with what it shows and what to read from it."""

    title: str
    text: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    picture: str | None = None
    """A picture of the figures, beside the page."""

    def row(self, *cells: object) -> None:
        """Add a row; numbers are shown with thousands separators."""
        self.rows.append([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells])

    def verdict(self, text: str) -> None:
        """Add a line on what the figures say."""
        self.verdicts.append(text)


class Report:
    """Sections, printed as they are finished and written to a page at the end."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._console = Console()

    def section(self, title: str, text: str, columns: Sequence[str]) -> Section:
        """Begin a section."""
        section = Section(title, text, columns)
        self.sections.append(section)
        return section

    def show(self, section: Section) -> None:
        """Print a finished section."""
        table = Table(title=section.title, title_justify="left", caption=section.text, caption_justify="left")
        for number, column in enumerate(section.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in section.rows:
            table.add_row(*row)
        self._console.print(table)
        for verdict in section.verdicts:
            self._console.print(f"  {verdict}")

    def write(self, path: Path) -> None:
        """Replace the sections of this run in the page, leaving those of other benchmarks as they are."""
        kept = _sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}
        for section in self.sections:
            kept[section.title] = _markdown(section)
        path.write_text(_HEAD + "\n".join(kept.values()), encoding="utf-8")

    @staticmethod
    def conditions() -> str:
        """Under which conditions the figures were taken."""
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        python = f"{platform.python_implementation()} {platform.python_version()}"
        return f"{python}, {os.cpu_count()} cores, load {load:.1f} at the start"


_HEAD = """# Benchmarks

Written by `make bench`. Results are checked before they are timed; each figure is the best of several
runs, in CPU seconds of one process, so that a busy machine disturbs it little.

"""


def _markdown(section: Section) -> str:
    lines = [f"## {section.title}", "", section.text, "", "| " + " | ".join(section.columns) + " |"]
    lines.append(
        "|" + "|".join("---" if number == 0 else "--:" for number in range(len(section.columns))) + "|"
    )
    lines += ["| " + " | ".join(row) + " |" for row in section.rows]
    if section.picture is not None:
        lines += ["", f"![{section.title}]({section.picture})"]
    lines += ["", *(f"- {verdict}" for verdict in section.verdicts), ""]
    return "\n".join(lines)


def _sections_of(page: str) -> dict[str, str]:
    parts = page.split("\n## ")[1:]
    return {part.split("\n", 1)[0]: "## " + part.rstrip("\n") + "\n" for part in parts}
