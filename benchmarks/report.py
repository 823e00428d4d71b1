"""Measurement and reporting of benchmarks: best of several runs, their spread, CPU and wall time, tables."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Timing:
    """The best run: wall seconds and the CPU seconds of this process."""

    seconds: float
    cpu_seconds: float

    @property
    def undisturbed(self) -> float:
        """CPU seconds: the cost of the work, independent of other processes on the machine."""
        return self.cpu_seconds


_measured: Final[list[tuple[float, ...]]] = []
"""The runs of each figure since the last section was shown."""


def record(runs: Sequence[float]) -> None:
    """Add the runs of a figure, so that their spread is shown below the table."""
    _measured.append(tuple(runs))


def best(runs: Sequence[float]) -> float:
    """The fastest of the runs of a figure, whose spread is shown below the table.

    >>> best([1.25, 1.0, 1.1])
    1.0
    >>> take_spread()
    'The slowest of 3 measurements takes 25 % longer than the fastest.'
    """
    record(runs)
    return min(runs)


def take_spread() -> str:
    """The spread of all figures since the last call; empty if none has several runs.

    >>> for runs in ([1.0, 1.02, 1.01], [2.0, 2.2, 2.1], [1.0, 1.0, 1.0]):
    ...     record(runs)
    >>> take_spread()
    'The slowest of 3 measurements takes 2 % longer than the fastest (median of 3 figures; at most 10 %).'
    >>> take_spread()
    ''
    """
    several = [runs for runs in _measured if len(runs) > 1]
    _measured.clear()
    if not several:
        return ""
    numbers = sorted({len(runs) for runs in several})
    counted = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    longer = [100 * (max(runs) / min(runs) - 1) for runs in several]
    text = f"The slowest of {counted} measurements takes {median(longer):.0f} % longer than the fastest"
    if len(longer) == 1:
        return f"{text}."
    return f"{text} (median of {len(longer)} figures; at most {max(longer):.0f} %)."


def timed(work: Callable[[], object], runs: int = 3) -> Timing:
    """The fastest of several runs of ``work``, whose spread is shown below the table."""
    results = []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        results.append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
    record([timing.cpu_seconds for timing in results])
    return min(results, key=lambda timing: timing.cpu_seconds)


def spread(figures: Sequence[float], digits: int = 2) -> str:
    """The median, and the lowest and the highest.

    >>> spread([3.0, 1.0, 2.0], digits=1)
    '2.0 (1.0–3.0)'
    """
    return f"{median(figures):.{digits}f} ({min(figures):.{digits}f}–{max(figures):.{digits}f})"


@dataclass(slots=True)
class Section:
    """One table of a report, with an introduction and conclusions."""

    title: str
    text: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    picture: str | None = None
    """The path of a picture of the figures, relative to the page."""
    conditions: str = ""
    """How the figures were taken: the command, the number of cores, the load."""
    spread: str = ""
    """How much the runs of a figure differ, if the table does not show it."""

    def row(self, *cells: object) -> None:
        """Add a row; numbers are shown with thousands separators."""
        self.rows.append([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells])

    def verdict(self, text: str) -> None:
        """Add a conclusion below the table."""
        self.verdicts.append(text)


class Report:
    """Sections, printed as they are finished and written to a page at the end."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._console = Console()
        self._conditions = ""

    def begin(self, name: str) -> None:
        """Begin a benchmark: its sections say by which command and under which load they were measured."""
        self._conditions = f"`make bench ARGS={name}`, {_cores_and_load()}."

    def section(self, title: str, text: str, columns: Sequence[str]) -> Section:
        """Begin a section."""
        section = Section(title, text, columns, conditions=self._conditions)
        self.sections.append(section)
        return section

    def show(self, section: Section) -> None:
        """Print a finished section, with the spread of its figures."""
        section.spread = take_spread()
        table = Table(title=section.title, title_justify="left", caption=section.text, caption_justify="left")
        for number, column in enumerate(section.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in section.rows:
            table.add_row(*row)
        self._console.print(table)
        for verdict in (*section.verdicts, section.spread):
            self._console.print(f"  {verdict}")

    def write(self, path: Path) -> None:
        """Replace the sections of this run in the page, leaving those of other benchmarks as they are."""
        kept = _sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}
        for section in self.sections:
            kept[section.title] = _markdown(section)
        path.write_text(_HEAD + "\n".join(kept.values()), encoding="utf-8")

    @staticmethod
    def conditions() -> str:
        """The conditions under which the figures were taken."""
        return f"{platform.python_implementation()} {platform.python_version()}, {_cores_and_load()}"


def _cores_and_load() -> str:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return f"{os.cpu_count()} cores, load {load:.1f} at the start"


_HEAD = """# Benchmarks

Generated by `make bench`. The results of all sides are compared in the same run. Unless a section says
otherwise, a figure is the best of several runs, in CPU seconds of one process, which depends little on other
load.

The same windows in other engines are in [Other engines](peers.md) (`make peers`), the queries of Nexmark
in [Nexmark](nexmark.md) (`make nexmark`), and clusters in [Scaling](scaling.md) (`make scaling`).

"""


def _markdown(section: Section) -> str:
    lines = [f"## {section.title}", "", section.text, "", "| " + " | ".join(section.columns) + " |"]
    lines.append(
        "|" + "|".join("---" if number == 0 else "--:" for number in range(len(section.columns))) + "|"
    )
    lines += ["| " + " | ".join(row) + " |" for row in section.rows]
    if section.picture is not None:
        lines += ["", f"![{section.title}]({section.picture})"]
    if section.verdicts:
        lines += ["", *(f"- {verdict}" for verdict in section.verdicts)]
    if notes := " ".join(filter(None, (section.spread, section.conditions))):
        lines += ["", notes]
    return "\n".join([*lines, ""])


def _sections_of(page: str) -> dict[str, str]:
    parts = page.split("\n## ")[1:]
    return {part.split("\n", 1)[0]: "## " + part.rstrip("\n") + "\n" for part in parts}
