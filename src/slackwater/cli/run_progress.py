"""Progress of a running job on the console: bars in a terminal, otherwise one line per unit."""

from __future__ import annotations

import threading

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slackwater.cli.console import counted, print_line
from slackwater.ingest import Plan, WorkUnit
from slackwater.ingest.ledger.run_ledger import Outcome
from slackwater.ingest.runner import Watcher
from slackwater.time import format_instant


class ProgressBars(Watcher):
    """A progress bar for the run and a line for each running unit, on standard error."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True),
        )  # fmt: skip
        self._run: TaskID | None = None
        self._units: dict[int, TaskID] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def planned(self, made: Plan) -> None:
        """Add the bar of the run."""
        self._run = self._bars.add_task(escape(made.job), total=len(made.units))

    def started(self, number: int, work: WorkUnit) -> None:
        """Add the line of a unit."""
        with self._lock:
            self._units[number] = self._bars.add_task(f"  {escape(unit_text(work))}", total=None)

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """Remove the line of the unit and advance the bar of the run."""
        with self._lock:
            self._bars.remove_task(self._units.pop(number))
            if self._run is not None:
                self._bars.advance(self._run)


class ProgressLines(Watcher):
    """One line on standard output for each unit that has ended."""

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """Print the outcome of the unit."""
        rejected = f", {outcome.rejected} rejected" if outcome.rejected else ""
        print_line(f"{outcome.state}: {unit_text(work)}, {counted(outcome.rows, 'row')}{rejected}")


def unit_text(work: WorkUnit) -> str:
    """A unit and its time range.

    >>> from slackwater.ingest import unit_of
    >>> unit_text(WorkUnit(0, 86_400_000_000, unit_of({"country": "NO"}), 0))
    'country=NO 1970-01-01T00:00:00Z to 1970-01-02T00:00:00Z'
    """
    unit = f"{work.unit} " if work.unit.values else ""
    return f"{unit}{format_instant(work.low)} to {format_instant(work.high)}"
