"""Values that notebooks show, with names that contain markup."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec

from slackwater.ingest import History, parse_job, plan
from slackwater.monitoring.origins import OriginState, OriginSummary
from slackwater.progress.explanation import Explanation, Reason
from slackwater.spark.monitor.reports import BucketReport, OperatorReport, QueryReport
from slackwater.spark.monitor.telemetry import Telemetry
from slackwater.time import DAY, SECOND, instant

MARKUP = '<b onclick="alert(1)">7</b>'
AT = instant("2024-03-20T12:00:00Z")
SHOWN = {
    "explanation": r"watermark 2024-03-20T11:54:00Z: held back by .* \(slowest",
    "why": r"6 min behind the clock, 3 open windows.*on time 7.*origins: 3 active, 1 silent",
    "plan": r"2 units to read, 1 skipped",
    "telemetry": r"running.*5 min 49 s",
    "history": r"QueryHistory\(.*, running, 12 batches\)",
}
"""The values, and what a person reads in each."""


def report(number: int = 0) -> QueryReport:
    """A query whose origin with markup in its name is silent."""
    listed = [OriginState(MARKUP, "silent", {"default": AT - 360 * SECOND}, AT - 300 * SECOND)]
    listed += [
        OriginState(str(each), "active", {"default": AT - (20 - 3 * each) * SECOND}) for each in range(3)
    ]
    bucket = BucketReport(
        0, AT, AT - (360 - number) * SECOND,
        f"watermark 2024-03-20T11:54:00Z: held back by partition {MARKUP!r} (slowest)",
        f"partition {MARKUP!r}", AT - 300 * SECOND, "slowest", 3, False, {"on_time": 7, "dropped_late": 2},
        origins=OriginSummary.of(listed),
    )  # fmt: skip
    return QueryReport((OperatorReport((bucket,)),), state_bytes=2048)


def telemetry() -> Telemetry:
    """Twelve batches of a query, as a listener hears them."""
    heard = Telemetry(batches=100, queries=3)
    for number in range(12):
        (operator,) = report(number).operators
        texts = {"reports": [msgspec.json.encode(operator.buckets[0]).decode()]}
        progress = SimpleNamespace(
            id=UUID(int=1), runId=UUID(int=2), name=MARKUP, timestamp="2024-03-20T12:00:00.000Z",
            batchId=number, batchDuration=250, sources=[], stateOperators=[],
            observedMetrics={"slackwater": SimpleNamespace(asDict=lambda texts=texts: texts)},
        )  # fmt: skip
        heard.onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]
    return heard


def reprs() -> dict[str, str]:
    """What notebooks show for each of the values."""
    axis = {"name": "system", "type": "datetime", "range": {"from": "2024-03-14", "to": "P0D"}}
    units = {"name": "shop", "type": "unit", "units": [MARKUP, "NO", "SE"]}
    job = parse_job(
        {"ms.watermark": [axis, units], "ms.work.unit.partition": "weekly", "ms.work.unit.parallelism.max": 2}
    )
    done = History([(AT - AT % DAY - 6 * DAY, "{}", AT)])
    heard = telemetry()
    holder = f"partition {MARKUP!r}"
    values: dict[str, Any] = {
        "explanation": Explanation(
            "default", AT - 360 * SECOND, Reason.SLOWEST, holder, AT, holder_watermark=AT - 300 * SECOND
        ),
        "why": report(),
        "plan": plan(job, done, AT),
        "telemetry": heard,
        "history": heard.queries()[0],
    }
    return {name: value._repr_html_() for name, value in values.items()}
