"""The output of the demo: a live screen in a terminal, otherwise lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from slackwater.demo.bids import AUCTIONS
from slackwater.demo.demo_pipeline import Pane, panes_by_timing
from slackwater.spark.monitor.reports import OperatorReport
from slackwater.time import END_OF_TIME, format_duration, to_datetime

_STYLES = {"EARLY": "yellow", "ON_TIME": "bold green", "LATE": "magenta", None: "dim"}
_LINES = 9


@dataclass(frozen=True)
class Snapshot:
    """The state of the demo to show: the phase, the last report of the query, and all panes."""

    title: str
    report: OperatorReport | None
    panes: Sequence[Pane]
    sent: int


class View:
    """Shows snapshots; a context manager.

    >>> import io
    >>> console = Console(file=io.StringIO(), width=100)
    >>> with View(console) as view:
    ...     view.show(Snapshot("Three origins send bids.", None, [], 5))
    >>> print(console.file.getvalue().strip())
    Three origins send bids.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self._title = ""
        self._status = ""
        self._printed = 0

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Update the screen, or print what changed since the last snapshot."""
        if self._live is not None:
            self._live.update(_screen(snapshot))
            return
        if snapshot.title != self._title:
            self._title = snapshot.title
            self._console.print(Text(snapshot.title, "bold"))
        status = _status(snapshot.report).plain
        if snapshot.report is not None and status != self._status:
            self._status = status
            self._console.print(Text(f"  {_clock(snapshot.report.slowest.now)}  ").append(status))
        for pane in snapshot.panes[self._printed :]:
            self._console.print(Text("            ").append_text(_line(pane)))
        self._printed = len(snapshot.panes)


def _screen(snapshot: Snapshot) -> RenderableType:
    panes = [_line(pane) for pane in snapshot.panes[-_LINES:]]
    panes += [Text()] * (_LINES - len(panes))
    parts: list[RenderableType] = [Text(snapshot.title, "bold"), Text()]
    parts += [_status(snapshot.report), _counts(snapshot), Text(), *panes]
    return Panel(Group(*parts), title="slackwater on Spark", border_style="cyan")


def _status(report: OperatorReport | None) -> Text:
    if report is None:
        return Text("the first batch is running", "dim")
    slowest = report.slowest
    text = Text("watermark ").append(_time(report.watermark), "bold green")
    if slowest.held_by is not None:
        text.append(", held back by ").append(slowest.held_by.removeprefix("partition "), "bold yellow")
        text.append(f" ({slowest.reason})")
    elif not slowest.ended:
        text.append(f", every origin is {slowest.reason}", "yellow")
    return text


def _counts(snapshot: Snapshot) -> Text:
    report = snapshot.report
    if report is None:
        return Text(f"{snapshot.sent} bids sent", "dim")
    timings = ", ".join(
        f"{count} {timing.lower().replace('_', ' ')}"
        for timing, count in panes_by_timing(snapshot.panes).items()
    )
    lag = (
        "" if report.lag is None else f"{format_duration(report.lag // 100_000 * 100_000)} behind the clock, "
    )
    return Text(
        f"{lag}{report.open_windows} open windows, {snapshot.sent} bids sent\n"
        f"panes: {timings}; bids dropped: {report.totals['dropped_late']}",
        "dim",
    )


def _line(pane: Pane) -> Text:
    window = f"{_clock(pane.start)} – {_clock(pane.end)}  {pane.auction:<6}"
    if pane.kind == "late":
        return Text(f"{window} dropped: a bid of {pane.best} arrived too late", "red")
    timing = (pane.timing or "").lower().replace("_", " ")
    return Text(f"{window} {timing:<8}", _STYLES[pane.timing]).append(
        f"{pane.bids:>3} bids, best {pane.best}", "default"
    )


def final_table(panes: Sequence[Pane]) -> Table:
    """The last pane of each auction and window.

    >>> final_table([Pane(0, "lamp", 0, 10_000_000, 3, 70, "ON_TIME", "pane")]).row_count
    1
    """
    table = Table(title="Final result of every window", title_justify="left", header_style="bold")
    table.add_column("from")
    for auction in AUCTIONS:
        table.add_column(f"{auction}: bids", justify="right")
        table.add_column("best", justify="right")
    for start in sorted({pane.start for pane in panes}):
        cells = [_clock(start)]
        for auction in AUCTIONS:
            found = [pane for pane in panes if (pane.start, pane.auction) == (start, auction)]
            cells += [str(found[0].bids), str(found[0].best)] if found else ["", ""]
        table.add_row(*cells)
    return table


def _time(value: int | None) -> str:
    return "unknown" if value is None else "at the end of time" if value == END_OF_TIME else _clock(value)


def _clock(value: int) -> str:
    return to_datetime(value).strftime("%H:%M:%S")
