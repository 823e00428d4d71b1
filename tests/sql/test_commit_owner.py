"""An identity belongs to one query: another one is refused, and its batches are not skipped as repeated."""

from __future__ import annotations

import pytest
import sqlalchemy as sql

from slackwater.sql.commit_owner import BATCH_JOB, CommitOwner, Committer, IdentityInUse, claim
from slackwater.sql.database import temporary_engine
from slackwater.sql.pane_targets import StaleBatch
from tests.sql.panes import batch, fold, made, rows, run_sql

pytestmark = pytest.mark.postgres


def test_a_query_with_a_new_checkpoint_is_refused_and_its_batch_is_not_skipped(url: str) -> None:
    target = made(url)
    fold(target, 0, batch(("a", 0, 5, 0, False)), committer=Committer("first"))
    with pytest.raises(
        IdentityInUse, match=r"identity 'query' of table totals belongs to query first.*another identity="
    ):
        fold(target, 0, batch(("b", 0, 6, 0, False)), committer=Committer("second"))
    assert rows(target) == [("a", 5)]


def test_a_query_takes_over_from_the_owner_that_it_names(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    for number in (0, 1):
        fold(target, number, batch(("a", 0, 5, 0, False)), committer=Committer("first"))
    second = Committer("second", takeover_from="first")
    assert [fold(target, 0, batch(("a", 0, 1, 0, False)), committer=second) for _ in range(2)] == [
        True,
        False,
    ]
    assert rows(target) == [("a", 11)]
    with pytest.raises(IdentityInUse, match="belongs to query second"):
        fold(target, 2, batch(("a", 0, 5, 0, False)), committer=Committer("first"))
    with pytest.raises(IdentityInUse, match="belongs to query second"):
        fold(target, 0, batch(("a", 0, 5, 0, False)), committer=Committer("third", takeover_from="first"))
    assert rows(target) == [("a", 11)]


def test_a_restart_goes_on_and_the_run_that_it_replaced_is_refused(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    assert fold(target, 0, batch(("a", 0, 1, 0, False)), committer=Committer("q", "one"))
    assert not fold(target, 0, batch(("a", 0, 1, 0, False)), committer=Committer("q", "two"))
    with pytest.raises(IdentityInUse, match="run two has replaced run one"):
        fold(target, 1, batch(("a", 0, 9, 0, False)), committer=Committer("q", "one"))
    assert fold(target, 1, batch(("a", 0, 1, 0, False)), committer=Committer("q", "two"))
    assert rows(target) == [("a", 2)]


def test_a_query_whose_identity_is_changed_goes_on(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    assert fold(target, 3, batch(("a", 0, 5, 0, False)), identity="query q", committer=Committer("q", "one"))
    assert fold(target, 9, batch(("b", 0, 7, 0, False)), identity="other", committer=Committer("r"))
    two = Committer("q", "two")
    assert not fold(target, 3, batch(("a", 0, 5, 0, False)), identity="totals", committer=two)
    assert fold(target, 4, batch(("a", 0, 1, 0, False)), identity="totals", committer=two)
    assert rows(target) == [("a", 6), ("b", 7)]
    recorded = rows(target, "SELECT identity, batch FROM slackwater_upserts")
    assert recorded == [("other", 9), ("totals", 4)]


def test_a_batch_job_and_a_query_do_not_share_an_identity(url: str) -> None:
    target = made(url)
    fold(target, 0, batch(("a", 0, 5, 0, False)), committer=Committer("q"))
    with pytest.raises(IdentityInUse, match="this is a batch job"):
        fold(target, 0, batch(("b", 0, 6, 0, False)), committer=Committer(BATCH_JOB))


def test_a_ledger_of_an_earlier_release_is_extended_and_its_batches_count(url: str) -> None:
    run_sql(
        url,
        "CREATE TABLE slackwater_upserts (target TEXT, identity TEXT, batch BIGINT NOT NULL, "
        "PRIMARY KEY (target, identity))",
    )
    run_sql(url, "INSERT INTO slackwater_upserts VALUES ('totals', 'query', 4)")
    target = made(url)
    with pytest.raises(StaleBatch):
        fold(target, 3, batch(("a", 0, 5, 0, False)), committer=Committer("q"))
    assert not fold(target, 4, batch(("a", 0, 5, 0, False)), committer=Committer("q"))
    assert fold(target, 5, batch(("a", 0, 6, 0, False)), committer=Committer("q"))
    with temporary_engine(target.url) as engine, engine.connect() as connection:
        assert connection.execute(sql.select(target.ledger.c.batch, target.ledger.c.query)).all() == [
            (5, "q")
        ]


def test_the_runs_that_are_remembered_are_bounded() -> None:
    owner = CommitOwner("q", ("run 0",))
    for number in range(1, 200):
        owner = claim(owner, Committer("q", f"run {number}"), subject="", another="").owner
    assert owner.runs == tuple(f"run {number}" for number in range(150, 200))
