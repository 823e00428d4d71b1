"""The output of the demo: lines that are printed once, or a live screen."""

from __future__ import annotations

import io

from rich.console import Console

from slackwater.demo.demo_pipeline import Pane
from slackwater.demo.demo_view import Snapshot, View, final_table
from slackwater.spark.monitor.reports import BucketReport, OperatorReport
from slackwater.time import SECOND

NOON = 12 * 3600 * SECOND
EARLY = Pane(0, "lamp", NOON, NOON + 10 * SECOND, 2, 70, "EARLY", "pane")
ON_TIME = Pane(1, "lamp", NOON, NOON + 10 * SECOND, 3, 90, "ON_TIME", "pane")
DROPPED = Pane(1, "clock", NOON - 60 * SECOND, NOON - 50 * SECOND, 1, 55, None, "late")


def _report(held_by: str | None, reason: str, watermark: int | None) -> OperatorReport:
    bucket = BucketReport(
        0, NOON + 20 * SECOND, watermark, "", held_by, None, reason, 4, False, {"dropped_late": 1}
    )
    return OperatorReport((bucket,))


def _shown(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_each_line_is_printed_once() -> None:
    console = Console(file=io.StringIO(), width=100)
    held = _report("partition 'south'", "slowest", NOON + 8 * SECOND)
    with View(console) as view:
        view.show(Snapshot("Bids come.", None, [], 1))
        view.show(Snapshot("Bids come.", held, [EARLY], 5))
        view.show(Snapshot("Bids come.", held, [EARLY], 6))
        view.show(Snapshot("South is silent.", _report(None, "idle", None), [EARLY, ON_TIME, DROPPED], 7))
    assert [line.strip() for line in _shown(console).splitlines()] == [
        "Bids come.",
        "12:00:20  watermark 12:00:08, held back by 'south' (slowest)",
        "12:00:00 – 12:00:10  lamp   early     2 bids, best 70",
        "South is silent.",
        "12:00:20  watermark unknown, every origin is idle",
        "12:00:00 – 12:00:10  lamp   on time   3 bids, best 90",
        "11:59:00 – 11:59:10  clock  dropped: a bid of 55 arrived too late",
    ]


def test_a_terminal_shows_a_screen() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with View(console) as view:
        view.show(Snapshot("Bids come.", _report("partition 'south'", "slowest", NOON), [EARLY, ON_TIME], 9))
    shown = _shown(console)
    assert "slackwater on Spark" in shown
    assert "20 s behind the clock, 4 open windows, 9 bids sent" in shown
    assert "1 early, 1 on time, 0 late; bids dropped: 1" in shown


def test_the_final_results_are_a_table() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(final_table([ON_TIME]))
    assert "12:00:00 │          3 │   90 │" in _shown(console)
