"""Runs of a job: one at a time, also after a crash, and no record by one that was replaced."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sqlalchemy as sql

from slackwater.ingest import WHOLE, WorkUnit
from slackwater.ingest.job_errors import AlreadyRunning, RunReplaced
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import (
    JobLease,
    Outcome,
    Run,
    failed_units,
    list_runs,
    outcomes_of,
    prune_runs,
)
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.metadata.store_schema import leases

WORK = WorkUnit(0, 10, WHOLE, 0)
GOOD = Outcome(0, 0, WHOLE.key, 0, 10, "succeeded", 3, 120, 5, 7)
BAD = Outcome(0, 0, WHOLE.key, 0, 10, "failed", 0, 0, 5, 7, "no answer")
HOLD = """
import sys, time
from slackwater.ingest.ledger.run_ledger import JobLease, Run
from slackwater.metadata.store import open_store
store = open_store(sys.argv[1])
Run(store, JobLease(store, "orders"), "system")
sys.stdout.write("held\\n"); sys.stdout.flush()
time.sleep(600)
"""


def highs(store: MetadataStore) -> list[tuple[int, str, int]]:
    return list(store.read(lambda connection: read_history(connection, "orders", "system")).rows())


def test_a_second_run_is_refused_until_the_first_has_died(store_url: str) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, store_url], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first, open_store(store_url) as store:
        try:
            assert first.stdout.readline() == "held\n"
            with pytest.raises(AlreadyRunning, match="job 'orders' is run by"):
                JobLease(store, "orders")
        finally:
            first.kill()
            first.wait()
        with JobLease(store, "orders") as lease:
            Run(store, lease, "system").end("succeeded")
        assert sorted(run.state for run in list_runs(store, "orders")) == ["interrupted", "succeeded"]


def test_a_run_that_was_replaced_records_nothing(store_url: str) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        store.write(lambda connection: connection.execute(sql.update(leases).values(owner="another")))
        with pytest.raises(RunReplaced):
            run.record(WORK, GOOD)
        assert highs(store) == []
        assert outcomes_of(store, run.id) == []


def test_a_failure_leaves_the_high_watermark_and_is_found_again(store_url: str) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        run.record(WORK, BAD)
        assert (highs(store), failed_units(store, "orders", "system")) == ([], {(0, WHOLE.key)})
        run.record(WORK, GOOD)
        assert (highs(store), failed_units(store, "orders", "system")) == ([(0, WHOLE.key, 10)], set())
        run.end("succeeded")
        assert prune_runs(store, "orders", before=2**60) == 1
        assert list_runs(store, "orders") == []
        assert highs(store) == [(0, WHOLE.key, 10)]
