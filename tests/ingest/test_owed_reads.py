"""Re-reads within grace that fail, die or are stopped: later runs repeat them until they succeed."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from slackwater.ingest import WorkUnit, parse_job
from slackwater.ingest.runner import Approve, Report, run_job
from slackwater.metadata.store import open_store
from slackwater.time import format_instant, instant
from tests.support.unit_reads import Amount, Died, ScriptedReads

JOB = parse_job(
    {
        "ms.watermark": [
            {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
        ],
        "ms.work.unit.partition": "daily",
        "ms.grace.period.days": 1,
        "ms.run.concurrency": 1,
    }
)


def run(url: str, day: str, *ends: str, **options: Any) -> list[str]:
    """Run the job on a day of January 2020 in a store of its own; the days that were read well."""
    reads = ScriptedReads(ends)
    with open_store(url) as store, suppress(Died):
        run_job(JOB, store, reads, now=instant(f"2020-01-{day}T06:00:00Z"), **options)
    return [format_instant(work.low)[8:10] for work in reads.good]


@pytest.mark.parametrize("end", ["fails", "dies"])
def test_a_re_read_is_repeated_after_grace_has_moved_past_it(store_url: str, end: str) -> None:
    assert run(store_url, "04") == ["01", "02", "03"]
    assert run(store_url, "05", end) == ([] if end == "dies" else ["04"])
    assert run(store_url, "08") == ["03", "04", "05", "06", "07"]
    assert run(store_url, "09") == ["07", "08"]


def test_a_re_read_that_was_stopped_is_repeated(store_url: str) -> None:
    stop = threading.Event()

    def stopped(work: WorkUnit, approve: Approve) -> Amount:
        stop.set()
        approve(Amount())
        return Amount()

    assert run(store_url, "04") == ["01", "02", "03"]
    with open_store(store_url) as store:
        report: Report = run_job(JOB, store, stopped, now=instant("2020-01-05T06:00:00Z"), stop=stop)
    assert [outcome.state for outcome in report.outcomes] == ["interrupted"]
    assert run(store_url, "08") == ["03", "04", "05", "06", "07"]


def test_only_failed_repeats_what_failed_and_what_died(store_url: str) -> None:
    assert run(store_url, "04") == ["01", "02", "03"]
    assert run(store_url, "05", "fails", "dies") == []
    assert run(store_url, "08", only_failed=True) == ["03", "04"]
    assert run(store_url, "08", only_failed=True) == []
