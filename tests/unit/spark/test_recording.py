"""Telemetry with a store: the events of Spark's listeners become states in the store. Needs no JVM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from slackwater.monitoring.events import BatchFinished, Event, RunEnded
from slackwater.monitoring.monitor import open_monitor
from slackwater.monitoring.recorder import Recorder
from slackwater.monitoring.sentence import holder_of, sentence
from slackwater.spark.monitor.reports import BucketReport, BufferReport
from slackwater.spark.monitor.telemetry import Telemetry
from slackwater.time import SECOND, instant
from tests.stores import new_store

AT = instant("2024-01-01T12:00:00Z")


def progress(number: int, **operators: list[BucketReport]) -> Any:
    def row(reports: list[BucketReport]) -> Any:
        texts = {"reports": [msgspec.json.encode(report).decode() for report in reports]}
        return SimpleNamespace(asDict=lambda: texts)

    return SimpleNamespace(
        progress=SimpleNamespace(
            id="q1", runId="r1", name="orders", timestamp="2024-01-01T12:00:00.000Z", batchId=number,
            batchDuration=250, sources=[], stateOperators=[],
            observedMetrics={f"slackwater_{name}": row(reports) for name, reports in operators.items()},
        )
    )  # fmt: skip


def report(bucket: int, watermark: int | None, **others: Any) -> BucketReport:
    at = None if watermark is None else AT + watermark * SECOND
    defaults = {
        "bucket": bucket, "now": AT + 20 * SECOND, "watermark": at, "why": "…", "held_by": "partition 'b'",
        "since": None, "reason": "slowest", "open_windows": 1, "ended": False, "totals": {"on_time": 2},
    }  # fmt: skip
    return BucketReport(**(defaults | others))


def test_the_reports_of_listeners_are_recorded(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    started = SimpleNamespace(id="q1", runId="r1", name="orders", timestamp="2024-01-01T12:00:00.000Z")
    joined = [report(3, 2, open_windows=0, buffers={"left": BufferReport(4, 100)}), report(8, 5)]
    batch = progress(7, ab=joined, ab_0=[report(3, 10)], ab_1_0=[report(3, 15)], ab_1=[report(3, 12)])
    with Recorder(url, clock=lambda: AT + 30 * SECOND) as recorder:
        heard = Telemetry(batches=10, queries=3, recorder=recorder)
        heard.onQueryStarted(started)  # type: ignore[arg-type]
        heard.onQueryProgress(progress(6))
        heard.onQueryProgress(batch)
        heard.onQueryTerminated(SimpleNamespace(id="q1", runId="r1", exception="No such file\nat …"))  # type: ignore[arg-type]
    with open_monitor(url) as monitor:
        (query,) = monitor.queries()
        assert len(monitor.holders("orders")) == 4
    assert (query.name, query.batch, query.duration) == ("orders", 7, 250_000)
    assert (query.running, query.error) == (False, "No such file")
    lags = {one.id: (one.lag, one.inherited_lag, one.local_lag) for one in query.operators}
    in_seconds = {
        number: tuple(None if lag is None else lag // SECOND for lag in several)
        for number, several in lags.items()
    }
    assert in_seconds == {"0": (18, 10, 8), "0.0": (10, None, 10), "0.1": (8, 5, 3), "0.1.0": (5, None, 5)}
    last = query.operators[0]
    assert (last.open_windows, last.totals, last.buffers["left"].rows) == (1, {"on_time": 4}, 4)
    assert holder_of(query, last).id == "0", "a bucket of an operator before it is not what it waits for"
    through = msgspec.structs.replace(last, held_by="input 'bucket 3' of the left input")
    assert holder_of(query, through).id == "0.0"
    assert sentence(query, AT) == (
        "orders: watermark 12:00:02, 18 s behind; held by partition 'b' (slowest); 1 window waits; "
        "the query failed: No such file"
    )


def test_what_others_see_is_recorded_already(tmp_path: Path) -> None:
    class Watched(Recorder):
        def record(self, event: Event) -> None:
            (history,) = heard.queries()
            seen.append((type(event), history.running, len(history.batches)))
            super().record(event)

    seen: list[tuple[type, bool, int]] = []
    with Watched(new_store(tmp_path)) as recorder:
        heard = Telemetry(batches=10, queries=3, recorder=recorder)
        heard.onQueryProgress(progress(7, ab=[report(3, 2)]))
        heard.onQueryTerminated(SimpleNamespace(id="q1", runId="r1", exception=None))  # type: ignore[arg-type]
    assert seen == [(BatchFinished, True, 0), (RunEnded, True, 1)]
    (history,) = heard.queries()
    assert (history.running, len(history.batches)) == (False, 1)
