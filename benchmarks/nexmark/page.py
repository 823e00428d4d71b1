"""docs/nexmark.md: the tables of the page are made from results.json, the text around them is kept."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.nexmark import flink_queries, slackwater_queries, spark_queries
from benchmarks.nexmark.results import Measurement, load_measurements
from benchmarks.nexmark.truth import QUERIES

RESULTS: Final = Path(__file__).parent / "results.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "nexmark.md"
BEGIN: Final = "<!-- written by make nexmark -->"
END: Final = "<!-- end of what make nexmark writes -->"
_MOST_MISSING: Final = 0.1
"""The part of a result that may be missing for its time to be compared."""
ENGINES: Final = {"slackwater": "Slackwater", "spark": "Spark", "flink": "Flink SQL"}


def code_lines(function: Callable[..., Any]) -> int:
    """The lines of a function's body, without its docstring, blank lines and comments.

    >>> code_lines(code_lines)
    6
    """
    source = inspect.getsource(function)
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef)
    documented = ast.get_docstring(definition) is not None
    first = definition.body[1 if documented else 0].lineno
    return sum(not re.fullmatch(r"\s*(#.*)?", line) for line in source.splitlines()[first - 1 :])


def sql_lines(text: str) -> int:
    """The lines of a SQL query that are not blank.

    >>> sql_lines("SELECT 1" + chr(10) + chr(10) + "FROM bid")
    2
    """
    return sum(bool(line.strip()) for line in text.splitlines())


def lengths(query: str) -> dict[str, int]:
    """The lines of a query by engine, where it can be expressed. Shared parts count in each query."""
    result = {"slackwater": code_lines(slackwater_queries.QUERIES[query])}
    result["slackwater"] += sum(map(code_lines, slackwater_queries.PARTS.get(query, ())))
    if query in spark_queries.QUERIES:
        result["spark"] = code_lines(spark_queries.QUERIES[query])
        result["spark"] += sum(map(code_lines, spark_queries.PARTS.get(query, ())))
    result["flink"] = sql_lines(flink_queries.QUERIES[query])
    return result


def tables(measurements: dict[tuple[str, str], Measurement]) -> str:
    """All tables of the page."""
    return "\n\n".join([_speeds(measurements), _cores(measurements), _results(measurements), _lines()])


def write_page() -> None:
    """Replace what lies between the two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    content = tables(load_measurements(RESULTS))
    PAGE.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{after}", encoding="utf-8")


def _table(columns: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return "No measurements are stored."
    rule = ["---", *("--:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))


def _speeds(measurements: dict[tuple[str, str], Measurement]) -> str:
    rows = []
    for query in QUERIES:
        known = {engine: measurements.get((query, engine)) for engine in ENGINES}
        timed = {engine: one for engine, one in known.items() if one is not None and one.seconds}
        if not timed:
            continue
        events = sorted({one.events for one in timed.values()})
        cells = [_speed(timed.get(engine)) for engine in ENGINES]
        ratios = [_ratio(timed, engine) for engine in ("spark", "flink")]
        rows.append([query, " / ".join(f"{one:,}" for one in events), *cells, *ratios])
    columns = ["query", "events", *ENGINES.values(), "times Spark", "times Flink"]
    cores = " / ".join(str(one) for one in sorted({one.cores for one in measurements.values()}))
    note = f"`make nexmark`, {cores} cores. ± is half of the distance between the fastest and the slowest."
    return f"### Events per second\n\n{_table(columns, rows)}\n\n{note}"


def _speed(one: Measurement | None) -> str:
    return "–" if one is None else f"{one.per_second:,.0f} ± {one.spread / 2:.0%}"


def _ratio(timed: dict[str, Measurement], engine: str) -> str:
    if engine not in timed or "slackwater" not in timed:
        return "–"
    if timed[engine].missing > timed[engine].rows * _MOST_MISSING:
        return "–"
    return f"{timed['slackwater'].per_second / timed[engine].per_second:.1f}"


def _cores(measurements: dict[tuple[str, str], Measurement]) -> str:
    rows = []
    for query in QUERIES:
        known = [measurements.get((query, engine)) for engine in ENGINES]
        if any(one is not None and one.seconds for one in known):
            speeds = [
                "–" if one is None or not one.seconds else f"{one.per_cpu_second:,.0f}" for one in known
            ]
            memory = ["–" if one is None or not one.seconds else f"{one.peak_mib:,}" for one in known]
            load = " / ".join("–" if one is None or not one.seconds else f"{one.load}" for one in known)
            rows.append([query, *speeds, *memory, load])
    names = list(ENGINES.values())
    columns = ["query", *names, *(f"MiB, {name}" for name in names), "load of the machine at the start"]
    return f"### Events per second and core, and peak memory\n\n{_table(columns, rows)}"


def _results(measurements: dict[tuple[str, str], Measurement]) -> str:
    rows = []
    for query, definition in QUERIES.items():
        known = [measurements.get((query, engine)) for engine in ENGINES]
        sizes = {one.rows for one in known if one is not None and one.rows}
        size = " / ".join(f"{one:,}" for one in sorted(sizes)) or "–"
        rows.append([f"{query}: {definition.text}", size, *map(_verdict, known)])
    return f"### Results\n\n{_table(['query', 'rows', *ENGINES.values()], rows)}"


def _verdict(one: Measurement | None) -> str:
    if one is None:
        return "–"
    if one.error:
        return "failed"
    counts = {"missing": one.missing, "wrong": one.wrong}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "equal"


def _lines() -> str:
    rows = []
    for query in QUERIES:
        known = lengths(query)
        rows.append([query, *(str(known.get(engine, "–")) for engine in ENGINES)])
    return f"### Lines of code\n\n{_table(['query', *ENGINES.values()], rows)}"
