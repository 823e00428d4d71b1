"""The first panes of batch input for notebooks: windows on the time axis, and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slackwater import _notebook_html as notebook
from slackwater.time import instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

EAGER: Final = "spark.sql.repl.eagerEval.enabled"
"""Spark's setting for notebooks: whether a DataFrame at the end of a cell is computed and shown."""
_ROWS: Final = "spark.sql.repl.eagerEval.maxNumRows"


def panes_html(panes: DataFrame, key: tuple[str, ...]) -> notebook.Html:
    """The first panes, if Spark is set to show rows in notebooks; otherwise how to set it.

    Args:
        panes: The panes of batch input.
        key: The key columns.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> panes_html(spark.sql("select 1 as auction"), ("auction",)).count(EAGER)
    1
    """
    spark = panes.sparkSession
    if str(spark.conf.get(EAGER, "false")).lower() != "true":
        return notebook.sentence(f'to see panes here: spark.conf.set("{EAGER}", True)')
    limit = int(spark.conf.get(_ROWS, "20") or 20)
    rows = panes.limit(limit + 1).collect()
    more = "" if len(rows) <= limit else f"the first {limit} panes"
    shown = [_cells(row) for row in rows[:limit]]
    spans = [_span(row, key) for row in rows[:limit] if row["window"] is not None]
    header = list(shown[0]) if shown else ["no panes"]
    table = notebook.table(header, [list(cells.values()) for cells in shown])
    return notebook.Html("".join([notebook.sentence(more) if more else "", notebook.timeline(spans), table]))


def _cells(row: Row) -> dict[str, object]:
    cells: dict[str, object] = {}
    for name, value in row.asDict().items():
        if name == "window":
            cells |= {"window start": _text(value, "start"), "window end": _text(value, "end")}
        elif name == "pane":
            retraction = " (retraction)" if value["retraction"] else ""
            timing = value["timing"] or value["kind"]
            cells["pane"] = notebook.Html(notebook.state_mark(timing) + notebook.text(retraction))
        else:
            cells[name] = value
    return cells


def _text(window: Any, bound: str) -> str:
    return "" if window is None or window[bound] is None else window[bound].isoformat(sep=" ")


def _span(row: Row, key: tuple[str, ...]) -> notebook.TimeSpan:
    label = ", ".join(str(row[name]) for name in key) or "all"
    start, end = (
        None if row["window"][bound] is None else instant(row["window"][bound].astimezone())
        for bound in ("start", "end")
    )
    return notebook.TimeSpan(label, start, end, row["pane"]["timing"] or row["pane"]["kind"])
