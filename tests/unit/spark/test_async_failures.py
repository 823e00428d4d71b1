"""Rows whose async call fails: they fail the run, are emitted, or are skipped; errors name the key."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import slackwater as sw
from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.spark.monitor.drop_warnings import DropWarnings
from slackwater.testing import TestStream

STREAM = TestStream().add("""
    auction | ts[s] | price
    a       | 1     | 5
    b       | 2     | 0
    a       | 3     | 7
""").end()  # fmt: skip


async def rated(row: dict[str, Any]) -> dict[str, Any]:
    return {"auction": row["auction"], "rate": 10 // row["price"]}


def rates(on_error: Any, *, keyed: bool = True, counted: bool = True) -> Any:
    def pipeline(bids: Any) -> Any:
        stream = sw.stream(bids, event_time="ts", watermark=sw.lag("0 seconds"))
        stream = stream.key_by("auction") if keyed else stream
        answered = stream.map_async(rated, "auction string, rate bigint", on_error=on_error)
        return answered.window(sw.fixed("10 seconds")).agg(rates=sw.sum("rate")) if counted else answered

    return pipeline


def test_a_failed_call_names_the_key_and_no_other_value() -> None:
    with pytest.raises(
        SlackwaterError, match=r"rated\(row at 1970-01-01T00:00:02Z with auction='b'\)"
    ) as found:
        STREAM.run(rates("fail"))
    assert "price" not in str(found.value)
    with pytest.raises(SlackwaterError, match=r"rated\(row at 1970-01-01T00:00:02Z\)"):
        STREAM.run(rates("fail", keyed=False))


def test_a_long_key_is_cut_in_errors() -> None:
    long = TestStream().add(f"auction | ts[s] | price \n {'x' * 300} | 2 | 0")
    with pytest.raises(SlackwaterError) as found:
        long.run(rates("fail"))
    assert "x" * 90 in str(found.value)
    assert "x" * 120 not in str(found.value)


def test_a_skipped_row_is_counted_and_not_emitted() -> None:
    run = STREAM.run(rates("skip"))
    assert run.rows.columns == ["auction", "window", "rates", "pane"]
    assert run.rows.select("auction", "rates").rows() == [("a", 3)]
    assert run.counters["failed"] == 1


def test_an_emitted_row_has_the_reason() -> None:
    run = STREAM.run(rates("emit"))
    failed = run.rows.filter(run.rows["failure"].is_not_null())
    assert run.counters["failed"] == failed.height == 1
    assert "auction='b'" in failed["failure"][0]
    rows = STREAM.run(rates("emit", counted=False)).rows
    assert sorted(rows["rate"].to_list(), key=str) == [1, 2, None]


def test_a_skipped_row_must_be_counted_by_an_operator() -> None:
    def pipeline(bids: Any) -> Any:
        emitted = rates("emit", counted=False)(bids)
        skipped = emitted.map_async(rated, "auction string, rate bigint", on_error="skip")
        return skipped.window(sw.fixed("10 seconds")).agg(n=sw.count())

    with pytest.raises(InvalidArgument, match="on_error = 'skip': leaves out rows that no operator counts"):
        STREAM.run(rates("skip", counted=False))
    with pytest.raises(InvalidArgument, match="on_error = 'ignore'"):
        STREAM.run(rates("ignore"))
    # An earlier call that emits its failures goes on doing so after one that skips its own.
    run = STREAM.run(pipeline)
    assert run.counters["failed"] == 3
    assert run.rows.filter(run.rows["failure"].is_not_null()).height == 1


def test_failed_rows_are_in_the_warning_of_rows_left_out(caplog: pytest.LogCaptureFixture) -> None:
    from types import SimpleNamespace

    report: Any = [SimpleNamespace(totals={"failed": 2})]
    warnings = DropWarnings()
    with caplog.at_level(logging.WARNING):
        warnings.check("id", "rates", report)
        warnings.check("id", "rates", report)
    (message,) = caplog.messages
    assert "2 rows were left out" in message
    assert "an async function failed for them" in message
