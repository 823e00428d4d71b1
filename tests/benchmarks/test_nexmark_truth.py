"""The truth of the Nexmark queries where it is easy to get wrong, and its comparison with results."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from benchmarks.nexmark import flink_queries, slackwater_queries, spark_queries
from benchmarks.nexmark.generator import TABLES, Settings, tables
from benchmarks.nexmark.page import PAGE, RESULTS
from benchmarks.nexmark.page import tables as page_tables
from benchmarks.nexmark.results import last_updates, load_measurements, sum_of_changes
from benchmarks.nexmark.truth import BID, QUERIES, Events, compare

START = datetime(2024, 1, 1, tzinfo=UTC)


def generated(events: int = 5_000) -> Events:
    frames = tables(Settings(events))
    return Events(*(pl.DataFrame(pl.from_arrow(frames[name])).lazy() for name in TABLES))


EVENTS = generated()


def with_bids(*bids: tuple[int, int, int, float]) -> Events:
    """Events with these bids: auction, bidder, price, and seconds after the start."""
    rows = [
        {"auction": a, "bidder": b, "price": p, "channel": "x", "url": "y", "extra": "z",
         "date_time": START + timedelta(seconds=s)} for a, b, p, s in bids
    ]  # fmt: skip
    schema = EVENTS.bid.collect_schema()
    return Events(EVENTS.person, EVENTS.auction, pl.DataFrame(rows, schema=schema).select(BID).lazy())


def answer(query: str, events: Events) -> list[tuple[object, ...]]:
    return sorted(QUERIES[query].result(events).collect().rows())


def test_all_auctions_with_most_bids_of_a_window_count() -> None:
    found = answer("q5", with_bids((1, 1, 5, 0), (2, 1, 5, 1), (2, 1, 5, 8)))
    at = {number: START + timedelta(seconds=number) for number in range(-8, 10, 2)}
    both = [
        (1, 1, at[-8]),
        (2, 1, at[-8]),
        *((auction, 1, at[start]) for start in (-6, -4) for auction in (1, 2)),
    ]
    later = [(1, 1, at[-2]), (2, 1, at[-2]), (2, 2, at[0]), *((2, 1, at[start]) for start in (2, 4, 6, 8))]
    assert found == sorted(both + later)


def test_a_bid_at_the_end_of_a_window_counts_for_it_too() -> None:
    found = answer("q7", with_bids((1, 1, 90, 3), (2, 2, 90, 10), (3, 3, 95, 11), (4, 4, 50, 4)))
    assert [(row[0], row[2]) for row in found] == [(1, 90), (2, 90), (3, 95)]


def test_bids_exactly_ten_seconds_apart_are_one_session() -> None:
    found = answer("q11", with_bids((1, 1, 1, 0), (1, 1, 1, 10), (1, 1, 1, 20.001)))
    assert sorted((row[2], row[1]) for row in found) == [(START, 2), (START + timedelta(seconds=20.001), 1)]


def test_winning_bids_are_the_highest_and_of_those_the_first() -> None:
    winners = QUERIES["q9"].result(EVENTS).collect()
    assert winners["id"].is_unique().all()
    assert (winners["bid_date_time"] <= winners["expires"]).all()
    final = winners.group_by("category").agg(pl.col("price").sum() // pl.len()).rows()
    assert answer("q4", EVENTS) == sorted(final)


def in_the_format_of_an_engine(query: str, events: Events) -> pl.DataFrame:
    """The truth as an engine would return it: decimals in euros, and whole rows where some are chosen."""
    found = QUERIES[query].result(events).collect()
    if QUERIES[query].chosen:
        shared = [name for name in found.columns if name in BID]
        found = found.join(events.bid.collect(), on=shared).unique(found.columns)
    return found.with_columns(pl.col(name) / 1_000 for name in QUERIES[query].thousandths)


@pytest.mark.parametrize("query", QUERIES)
def test_a_result_that_equals_the_truth_has_no_differences(query: str) -> None:
    compared = compare(query, EVENTS, in_the_format_of_an_engine(query, EVENTS))
    assert (compared.missing, compared.wrong) == (0, 0)
    assert compared.rows > 0


@pytest.mark.parametrize("query", QUERIES)
def test_a_missing_row_is_counted(query: str) -> None:
    result = in_the_format_of_an_engine(query, EVENTS)
    compared = compare(query, EVENTS, result.tail(-1))
    assert (compared.missing, compared.wrong) == (1, 0)


@pytest.mark.parametrize("query", [name for name in QUERIES if QUERIES[name].summed is None])
def test_a_repeated_row_is_wrong(query: str) -> None:
    result = in_the_format_of_an_engine(query, EVENTS)
    assert compare(query, EVENTS, pl.concat([result, result.head(1)])).wrong == 1


def test_a_chosen_row_must_be_a_bid() -> None:
    result = in_the_format_of_an_engine("q18", EVENTS)
    changed = result.with_columns(
        extra=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("?")).otherwise("extra")
    )
    compared = compare("q18", EVENTS, changed)
    assert compared.wrong == 1
    assert "?" in compared.example


def test_of_updates_the_last_one_of_a_key_is_the_result(tmp_path: Path) -> None:
    for batch, total in ((0, 1), (1, 2)):
        (tmp_path / f"batch={batch}").mkdir()
        rows = pl.DataFrame({"category": [10, 11][: 2 - batch], "final": [total, 5][: 2 - batch]})
        rows.write_parquet(tmp_path / f"batch={batch}" / "part.parquet")
    assert sorted(last_updates("q4", tmp_path).rows()) == [(10, 2), (11, 5)]


def test_of_panes_the_last_one_that_is_not_retracted_is_the_result(tmp_path: Path) -> None:
    (tmp_path / "batch=0").mkdir()
    panes = [
        {"index": 0, "retraction": False},
        {"index": 0, "retraction": True},
        {"index": 1, "retraction": False},
    ]
    rows = pl.DataFrame({"category": [10, 10, 10], "final": [1, 1, 2], "pane": panes})
    rows.write_parquet(tmp_path / "batch=0" / "part.parquet")
    assert last_updates("q4", tmp_path).rows() == [(10, 2)]


def test_changes_that_were_removed_are_not_in_the_result(tmp_path: Path) -> None:
    one, two = {"category": 10, "final": 1}, {"category": 10, "final": 2}
    changes = [
        {"before": None, "after": one, "op": "c"},
        {"before": one, "after": None, "op": "d"},
        {"before": None, "after": two, "op": "c"},
        {"before": None, "after": two, "op": "c"},
    ]
    (tmp_path / "part-0").write_text("\n".join(map(json.dumps, changes)), encoding="utf-8")
    schema = pl.Schema({"category": pl.Int64, "final": pl.Int64})
    assert sum_of_changes("q4", tmp_path, schema).rows() == [(10, 2), (10, 2)]


def test_every_query_is_written_for_every_engine_or_has_a_reason() -> None:
    assert set(slackwater_queries.QUERIES) == set(flink_queries.QUERIES) == set(QUERIES)
    assert set(spark_queries.QUERIES) | set(spark_queries.NOT_EXPRESSED) == set(QUERIES)
    assert not set(spark_queries.QUERIES) & set(spark_queries.NOT_EXPRESSED)


def test_the_page_shows_the_measurements() -> None:
    assert page_tables(load_measurements(RESULTS)) in PAGE.read_text(encoding="utf-8")
