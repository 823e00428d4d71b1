"""docs/scaling.md: its tables are made from results.json, the text around them is kept."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.scaling.model import TERMS, Model, Shape, fit

RESULTS: Final = Path(__file__).parent / "results.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "scaling.md"
BEGIN: Final = "<!-- written by python -m benchmarks.scaling -->"
END: Final = "<!-- end of what python -m benchmarks.scaling writes -->"
PREDICTED: Final = {
    "4 executors": Shape(2_000_000, 500_000, 10, 4, 4, 8, 4),
    "100 executors": Shape(50_000_000, 10_000_000, 10, 100, 100, 200, 100),
    "1,000 executors, one bucket each": Shape(500_000_000, 100_000_000, 10, 1_000, 1_000, 2_000, 1_000),
    "1,000 executors, 10⁹ keys in every batch": Shape(
        2_000_000_000, 1_000_000_000, 1, 1_000, 1_000, 2_000, 1_000
    ),
    "1,000 executors, few rows": Shape(1_000_000, 500_000, 10, 1_000, 1_000, 2_000, 1_000),
}
"""Batches that the model predicts, with one processor for every executor."""


def _shape(batch: dict[str, Any]) -> Shape:
    return Shape(**{name: value for name, value in batch.items() if name != "seconds"})


def _table(columns: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *("--:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))


def _measured(batches: list[dict[str, Any]], model: Model, processors: int) -> str:
    rows = []
    for batch in batches:
        shape, seconds = _shape(batch), batch["seconds"]
        middle, predicted = median(seconds), model.seconds(shape, processors)
        rows.append(
            [
                str(shape.executors),
                *(
                    f"{one:,}"
                    for one in (shape.rows, shape.groups, shape.windows, shape.buckets, shape.map_tasks)
                ),
                f"{middle:.2f}",
                f"{min(seconds):.2f}–{max(seconds):.2f}",
                f"{predicted:.2f}",
                f"{predicted / middle - 1:+.0%}",
            ]
        )
    columns = [
        "executors",
        "rows",
        "groups",
        "windows",
        "buckets",
        "map tasks",
        "seconds",
        "range",
        "model",
        "error",
    ]
    return _table(columns, rows)


def _amount(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds / 1e-9:.2g}'):g} ns" if seconds else "not measurable"


def _coefficients(model: Model) -> str:
    rows = [[text, _amount(model.coefficients[name])] for name, text in TERMS.items()]
    return _table(["term", "time for one"], rows)


def _predictions(model: Model) -> str:
    rows = []
    for text, shape in PREDICTED.items():
        parts = model.parts(shape, shape.executors)
        most = max(parts, key=lambda name: parts[name])
        total = sum(parts.values())
        counts = (f"{one:,}" for one in (shape.rows, shape.groups, shape.buckets, shape.map_tasks))
        rows.append([text, *counts, f"{total:.1f}", f"{TERMS[most]}, {parts[most] / total:.0%}"])
    return _table(["cluster", "rows", "groups", "buckets", "map tasks", "seconds", "most of it"], rows)


def content(results: dict[str, Any]) -> str:
    """The tables of the page."""
    if not results["batches"]:
        return "No measurements are stored."
    batches, processors = results["batches"], results["processors"]
    task = min(results["empty_task"].values())
    medians = [median(one["seconds"]) for one in batches]
    model = fit([_shape(one) for one in batches], medians, processors, task=task)
    tasks = ", ".join(f"{took * 1e3:.1f} ms with {number}" for number, took in results["empty_task"].items())
    conditions = (
        f"{processors} processors, load {results['load']} when the run began. "
        f"A task that does nothing takes, by the number of executors: {tasks}."
    )
    return "\n\n".join(
        (
            f"### Measured and fitted\n\n{conditions}\n\n{_measured(batches, model, processors)}",
            f"### The model\n\n{_coefficients(model)}",
            f"### Predicted\n\n{_predictions(model)}",
        )
    )


def load(path: Path) -> dict[str, Any]:
    """The measurements in a file; none if it does not exist."""
    if not path.exists():
        return {"batches": []}
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return results


def write_page() -> None:
    """Replace what lies between the two marks."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    tables = content(load(RESULTS))
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}", encoding="utf-8")
