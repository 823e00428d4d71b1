"""Runs of a job: one at a time, also after a crash, and no record by one that was replaced."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Literal

import pytest
import sqlalchemy as sql

from slackwater.errors import StoreUnavailable
from slackwater.ingest import WHOLE, History, WorkUnit
from slackwater.ingest.job_errors import AlreadyRunning, RunReplaced
from slackwater.ingest.ledger import job_lease
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import (
    Outcome,
    Run,
    list_runs,
    outcomes_of,
    prune_runs,
)
from slackwater.metadata.leases import Lease, Leases
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.metadata.store_schema import leases

WORK = WorkUnit(0, 10, WHOLE, 0)
GOOD = Outcome(0, 0, WHOLE.key, 0, 10, "succeeded", 3, 120, 5, 7)
BAD = Outcome(0, 0, WHOLE.key, 0, 10, "failed", 0, 0, 5, 7, "no answer")
HOLD = """
import sys, time
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.run_ledger import Run
from slackwater.metadata.store import open_store
store = open_store(sys.argv[1])
Run(store, JobLease(store, "orders"), "system")
sys.stdout.write("held\\n"); sys.stdout.flush()
time.sleep(600)
"""


def history(store: MetadataStore) -> History:
    return store.read(lambda connection: read_history(connection, "orders", "system"))


def highs(store: MetadataStore) -> list[tuple[int, str, int]]:
    return list(history(store).rows())


def failed(store: MetadataStore) -> list[tuple[int, str, int]]:
    return list(history(store).failed_reads())


@pytest.mark.search
def test_a_second_run_is_refused_until_the_first_has_died(store_url: str) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, store_url], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first, open_store(store_url) as store:
        try:
            assert first.stdout.readline() == "held\n"
            with pytest.raises(AlreadyRunning, match="job 'orders' is already running in"):
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
        assert (highs(store), failed(store)) == ([], [(0, WHOLE.key, 0)])
        run.record(WORK, GOOD)
        assert (highs(store), failed(store)) == ([(0, WHOLE.key, 10)], [])
        run.end("succeeded")
        assert prune_runs(store, "orders", before=2**60) == 1
        assert list_runs(store, "orders") == []
        assert highs(store) == [(0, WHOLE.key, 10)]


def test_a_failure_is_recorded_whatever_its_message_contains(store_url: str) -> None:
    # PostgreSQL stores no zero character, and no driver encodes a lone surrogate
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        run.begin(WORK)
        run.record(WORK, replace(BAD, error="HTTP 400: a\0b \ud800 ü"))
        (outcome,) = outcomes_of(store, run.id)
        assert outcome.error == "HTTP 400: a\\0b \\ud800 ü"
        assert failed(store) == [(0, WHOLE.key, 0)]


def test_failed_reads_survive_a_restart_with_their_lowest_low(store_url: str) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        run.record(WORK, GOOD)
        for number, low in enumerate((6, 4, 8), 1):
            work = WORK._replace(low=low, previous=10)
            run.record(work, replace(BAD, number=number, low=low))
        run.end("failed")
        prune_runs(store, "orders", before=2**60)
    with open_store(store_url) as store:
        assert (highs(store), failed(store)) == ([(0, WHOLE.key, 10)], [(0, WHOLE.key, 4)])


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_a_read_that_does_not_succeed_is_owed_even_if_it_was_stopped(
    store_url: str, state: Literal["failed", "interrupted"]
) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        Run(store, lease, "system").record(WORK, replace(BAD, state=state))
        assert failed(store) == [(0, WHOLE.key, 0)]


@pytest.mark.search
def test_a_read_that_was_begun_and_never_ended_is_owed(store_url: str) -> None:
    script = HOLD.replace(
        'Run(store, JobLease(store, "orders"), "system")',
        'Run(store, JobLease(store, "orders"), "system").begin(WorkUnit(0, 10, WHOLE, 3))',
    ).replace("import sys, time", "import sys, time\nfrom slackwater.ingest import WHOLE, WorkUnit")
    killed = subprocess.Popen([sys.executable, "-c", script, store_url], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    with killed, open_store(store_url) as store:
        try:
            assert killed.stdout.readline() == "held\n"
        finally:
            killed.kill()
            killed.wait()
        assert failed(store) == [(0, WHOLE.key, 3)]


def test_a_run_that_was_replaced_begins_nothing(store_url: str) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        store.write(lambda connection: connection.execute(sql.update(leases).values(owner="another")))
        with pytest.raises(RunReplaced):
            run.begin(WORK)
        assert failed(store) == []


def test_a_success_that_saw_nothing_clears_the_failure_and_sets_no_high_watermark(store_url: str) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        run = Run(store, lease, "system")
        run.record(WORK, BAD)
        run.record(WORK, GOOD, high=0)
        assert (highs(store), failed(store)) == ([], [])


# ---- the lease


def test_each_run_has_a_higher_token_than_those_before_it(store_url: str) -> None:
    with open_store(store_url) as store:
        tokens = []
        for now in (50, 10, 10, 90):
            with JobLease(store, "orders", clock=lambda now=now: now) as lease:  # type: ignore[misc]
                tokens.append(lease.token)
    assert tokens == [50, 51, 52, 90]


@pytest.mark.parametrize("committed", [False, True])
def test_a_lease_is_renewed_again_when_the_store_is_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    monkeypatch.setattr(job_lease, "_BEAT", 0.01)
    monkeypatch.setattr(job_lease, "_RETRY", 0.01)
    renew, calls, enough = Leases.renew, [], threading.Event()

    def failing(self: Leases, lease: Lease, *, lasting: int) -> Lease | None:
        calls.append(lease)
        if len(calls) <= 3:
            if committed:  # the reply is lost, and the version has changed
                renew(self, lease, lasting=lasting)
            raise StoreUnavailable("store", "connection refused")
        found = renew(self, lease, lasting=lasting)
        if len(calls) >= 8:
            enough.set()
        return found

    monkeypatch.setattr(Leases, "renew", failing)
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        assert enough.wait(10)
        store.read(lease.check)


def test_a_lease_that_was_taken_over_and_released_is_not_renewed(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(store_url) as store, JobLease(store, "orders") as lease:
        store.write(lambda connection: connection.execute(sql.delete(leases)))
        assert lease._renewed() is None
        with pytest.raises(RunReplaced):
            store.read(lease.check)
