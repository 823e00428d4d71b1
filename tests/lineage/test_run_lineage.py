"""Events of ingestion runs, over real transports of OpenLineage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slackwater.ingest import parse_job
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.runner import Approve, Report, Watchers, run_job
from slackwater.lineage.emitter import LineageEmitter
from slackwater.lineage.run_lineage import lineage_of_run
from slackwater.metadata.store import open_store
from slackwater.time import instant
from tests.lineage.receiver import receiver
from tests.support.unit_reads import Amount

PASSWORD = "-".join(["hunter", "22"])
KEYS: dict[str, Any] = {
    "ms.job.name": "orders",
    "ms.source.type": "sql",
    "ms.source.url": f"postgresql://app:{PASSWORD}@db.example/shop",
    "ms.source.table": "orders",
    "ms.target.type": "parquet",
    "ms.target.path": "s3://lake/orders",
    "ms.watermark": [
        {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}},
        {"name": "shop", "type": "unit", "units": [{"shop": "a"}]},
    ],
    "ms.work.unit.partition": "daily",
    "ms.run.concurrency": 1,
}


def run(folder: Path) -> Report:
    """A run of two days, the second of which fails."""
    job = parse_job(KEYS)
    lineage = lineage_of_run(job)

    def extract(work: WorkUnit, approve: Approve, /) -> Amount:
        if work.start >= instant("2020-01-02T00:00:00Z"):
            raise RuntimeError(f"login failed: {PASSWORD}")
        approve(Amount(3))
        return Amount(3)

    with open_store(f"sqlite:///{folder}/state.db", create=True) as store:
        watcher = Watchers([lineage])
        report = run_job(job, store, extract, now=instant("2020-01-03T01:00:00Z"), watcher=watcher)
    lineage.close(succeeded=report.succeeded)
    return report


def check(events: list[dict[str, Any]]) -> None:
    emitted = [(event["job"]["name"], event["eventType"]) for event in events]
    assert emitted == [
        ("orders", "START"),
        ("orders.shop=a", "START"), ("orders.shop=a", "COMPLETE"),
        ("orders.shop=a", "START"), ("orders.shop=a", "FAIL"),
        ("orders", "FAIL"),
    ]  # fmt: skip
    whole, _, first, _, second, _ = events
    nominal = first["run"]["facets"]["nominalTime"]
    assert nominal["nominalStartTime"] == "2020-01-01T00:00:00Z"
    assert nominal["nominalEndTime"] == "2020-01-02T00:00:00Z"
    assert second["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2020-01-02T00:00:00Z"
    assert first["run"]["facets"]["parent"]["run"]["runId"] == whole["run"]["runId"]
    assert first["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert [(one["namespace"], one["name"]) for one in first["inputs"]] == [
        ("postgres://db.example:5432", "shop.public.orders")
    ]
    assert [(one["namespace"], one["name"]) for one in first["outputs"]] == [("s3://lake", "orders")]
    assert "login failed" in second["run"]["facets"]["errorMessage"]["message"]
    assert PASSWORD not in json.dumps(events)


@pytest.mark.search
def test_events_arrive_at_an_http_receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as (url, events):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        run(tmp_path)
    check(events)


def test_events_are_appended_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    settings = {"type": "file", "log_file_path": str(path), "append": "true"}
    for name, value in settings.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name.upper()}", value)
    run(tmp_path)
    check([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])


@pytest.mark.search
def test_a_receiver_that_fails_or_is_down_changes_nothing_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with receiver(status=400) as (url, events):
        monkeypatch.setenv("OPENLINEAGE_URL", url.replace("//", f"//app:{PASSWORD}@"))
        report = run(tmp_path)
    assert [outcome.state for outcome in report.outcomes] == ["succeeded", "failed"]
    assert events
    ours = [record for record in caplog.records if record.name.startswith("slackwater")]
    assert len(ours) == 1
    assert "an OpenLineage event was not sent" in ours[0].getMessage()
    assert PASSWORD not in ours[0].getMessage()


def test_without_a_transport_nothing_is_sent() -> None:
    assert LineageEmitter.from_environment() is None


def test_a_wrong_configuration_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "nosuch")
    emitter = LineageEmitter.from_environment()
    assert emitter is None
    assert "no OpenLineage events are sent" in caplog.text
