"""The pipelines in examples/ are at most as long as those for other systems, and the page shows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PEERS = ("spark", "beam", "bytewax")
JOBS = {
    "partition_counts": "counts per Kafka partition, to Parquet",
    "sessions_to_postgres": "sessions with corrections, to PostgreSQL",
    "interval_join": "left outer interval join, to Parquet",
    "top_five": "top 5 with early results, to PostgreSQL",
    "async_windows": "async enrichment, then windows, to Parquet",
    "nightly_join": "nightly load that feeds an as-of join, to Parquet",
}
MORE = {"nightly_join": ["nightly_prices.yaml"]}
"""Further files of a job."""


def code_lines(text: str) -> int:
    """The lines of a program without blank lines, comments, docstrings and imports."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                skipped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in skipped and not re.fullmatch(r"\s*(#.*)?", line) for number, line in lines)


def other_lines(text: str) -> int:
    return sum(not re.fullmatch(r"\s*(#.*)?", line) for line in text.splitlines())


def length(folder: str, job: str) -> int | None:
    path = EXAMPLES / folder / f"{job}.py"
    if not path.exists():
        return None
    more = MORE.get(job, []) if not folder else []
    others = sum(other_lines((EXAMPLES / name).read_text("utf-8")) for name in more)
    return code_lines(path.read_text("utf-8")) + others


LENGTHS = {job: (length("", job), *(length(f"peers/{peer}", job) for peer in PEERS)) for job in JOBS}


def shown(job: str) -> str:
    cells = ["–" if lines is None else str(lines) for lines in LENGTHS[job]]
    return f"| {JOBS[job]} | {' | '.join(cells)} |"


def test_every_example_is_a_job_of_the_page() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(JOBS)
    assert {path.stem for path in EXAMPLES.glob("peers/*/*.py")} == set(JOBS)


def test_the_page_shows_the_lengths() -> None:
    page = (ROOT / "docs" / "six-pipelines.md").read_text(encoding="utf-8")
    missing = [shown(job) for job in JOBS if shown(job) not in page]
    assert missing == [], "the rows of the table in docs/six-pipelines.md"


@pytest.mark.parametrize("job", JOBS)
def test_no_other_system_needs_fewer_lines(job: str) -> None:
    ours, *others = LENGTHS[job]
    assert ours is not None
    assert ours <= min(lines for lines in others if lines is not None)


def test_only_code_is_counted() -> None:
    words = '"""Words.\n\nMore words."""\n\nimport os\n\n# a comment\n'
    code = 'x = 1  # another\n\ndef f():\n    """Words."""\n    return (\n        x\n    )\n'
    assert code_lines(words + code) == 5
