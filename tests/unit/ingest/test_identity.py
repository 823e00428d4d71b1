"""The identity of a job: its history is not continued by another job of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slackwater.ingest import parse_job
from slackwater.ingest.job_errors import JobChanged
from slackwater.ingest.jobfile.job_identity import identity_of
from slackwater.ingest.ledger.job_ledger import adopt_history
from slackwater.ingest.ledger.run_ledger import reset_history
from slackwater.ingest.runner import Report, run_job
from slackwater.metadata.store import open_store
from slackwater.time import instant
from tests.support.unit_reads import ScriptedReads

NOW = instant("2020-01-02T00:00:00Z")
KEYS = {
    "ms.watermark": [{"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}],
    "ms.source.type": "sql",
    "ms.source.url": "postgresql://app:secret@db.example/shop",
    "ms.source.table": "orders",
    "ms.time.column": "at",
    "ms.target.type": "parquet",
    "ms.target.path": "copied",
}


def run(folder: Path, *ends: str, **changed: Any) -> Report:
    """A run of the job with some keys changed, with _ for dots."""
    job = parse_job({**KEYS, **{f"ms.{name.replace('_', '.')}": value for name, value in changed.items()}})
    with open_store(f"sqlite:///{folder}/store.db", create=True) as store:
        return run_job(job, store, ScriptedReads(ends), now=NOW)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"source_table": "returns"}, "ms.source.table = 'orders' (now 'returns')"),
        (
            {"source_url": "postgresql://db.example/other"},
            "ms.source.url = 'postgresql://db.example/shop' (now",
        ),
        ({"target_path": "elsewhere"}, "ms.target.path = "),
        ({"target_type": "csv"}, "ms.target.type = 'parquet' (now 'csv')"),
    ],
)
def test_a_second_job_of_the_same_name_does_not_find_everything_read(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    assert run(tmp_path).succeeded
    with pytest.raises(JobChanged) as refused:
        run(tmp_path, **changed)
    assert said in str(refused.value)
    assert "ms.job.name" in str(refused.value)
    assert "slackwater ingest adopt" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert len(run(tmp_path, job_name="returns", **changed).outcomes) == 1


def test_credentials_queries_and_options_may_change(tmp_path: Path) -> None:
    assert run(tmp_path).succeeded
    assert run(tmp_path, source_url="postgresql://other:new@db.example/shop?sslmode=require").succeeded
    query = {name: value for name, value in KEYS.items() if name != "ms.source.table"}
    job = parse_job({**query, "ms.source.query": "SELECT 1"})
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        assert run_job(job, store, ScriptedReads(()), now=NOW).succeeded


def test_a_job_that_was_never_read_may_be_corrected(tmp_path: Path) -> None:
    assert not run(tmp_path, "fails").succeeded
    assert run(tmp_path, target_path="corrected").succeeded


def test_a_changed_job_continues_or_starts_again_on_request(tmp_path: Path) -> None:
    assert run(tmp_path).succeeded
    moved = parse_job({**KEYS, "ms.target.path": "moved"})
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        adopt_history(store, moved)
        assert run_job(moved, store, ScriptedReads(()), now=NOW).outcomes == ()
        reset_history(store, "job", "system")
    assert len(run(tmp_path).outcomes) == 1


def test_values_of_the_environment_are_compared_but_not_recorded() -> None:
    def shown(address: str) -> Any:
        keys = {"ms.source.url": "${env:ADDRESS}"}
        return identity_of(parse_job(keys, environment={"ADDRESS": address}))["ms.source.url"]

    one, other = shown("https://api.example/key-1"), shown("https://api.example/key-2")
    assert one.shown == other.shown == "${env:ADDRESS}"
    assert one.digest != other.digest
