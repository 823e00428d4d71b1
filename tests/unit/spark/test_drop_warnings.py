"""The first row that a query leaves out is reported in the log, with the reason and the remedy."""

from __future__ import annotations

import msgspec
import pytest

from slackwater.spark.monitor.drop_warnings import DropWarnings
from slackwater.spark.monitor.reports import METRIC, BucketReport, OperatorReport, operator_reports


def bucket(**totals: int) -> BucketReport:
    return BucketReport(0, 20, 5, "watermark …", None, None, "slowest", 3, False, totals)


def report(**totals: int) -> list[OperatorReport]:
    return [OperatorReport((bucket(**totals),)), OperatorReport((bucket(**totals),), "0.0")]


def test_the_first_rows_left_out_are_reported_once_for_each_query_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warnings = DropWarnings()
    warnings.check("5f", "bids", report(on_time=7, dropped_late=0, invalid=0))
    assert caplog.messages == []
    warnings.check("5f", "bids", report(dropped_late=3))
    warnings.check("5f", "bids", report(dropped_late=30, invalid=1))
    warnings.check("6a", None, report(dropped_late=1))
    late, invalid, other = caplog.messages
    assert late.startswith("query 'bids': 6 rows were left out of the results so far, because they arrived")
    assert "use a longer sw.lag(" in late
    assert ".allowed_lateness(" in late
    assert "they have no usable event time; check the column of event_time" in invalid
    assert other.startswith("query '6a': 2 rows were left out")


def test_the_reports_are_read_from_the_observed_metrics_of_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    found = msgspec.json.encode({"reports": [msgspec.json.encode(bucket(invalid=4)).decode()]})
    DropWarnings().on_metrics("5f", "bids", {f"{METRIC}_7": found.decode(), "rows of the user": '{"n": 1}'})
    (message,) = caplog.messages
    assert message.startswith("query 'bids': 4 rows were left out")


def test_a_bucket_that_reported_twice_counts_once_and_buckets_are_in_order() -> None:
    texts = [
        msgspec.json.encode(msgspec.structs.replace(bucket(invalid=4), bucket=number)).decode()
        for number in (7, 2, 7)
    ]
    (operator,) = operator_reports({f"{METRIC}_7": [texts], "rows of the user": [1]})
    assert [report.bucket for report in operator.buckets] == [2, 7]
    assert operator.totals["invalid"] == 4
