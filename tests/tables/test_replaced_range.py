"""Which rows of a table a replacement writes and deletes, without Spark."""

from __future__ import annotations

from typing import Any

import polars as pl

from slackwater.table_progress.replaced_results import ReplacedRange
from slackwater.tables.pane_fold import DELETED
from slackwater.time import SECOND
from tests.chaos.thirty_days import ARCHIVED, DAY, corrected, near, rows, truth
from tests.spark.oracle import Truth, micros

MOMENT = pl.Datetime("us", "UTC")
KINDS: dict[str, Any] = {
    "key": pl.String, "window_start": MOMENT, "window_end": MOMENT, "count": pl.Int64, "sum": pl.Int64
}  # fmt: skip
IDENTITY = ["key", "window_start", "window_end"]


def frame(results: Truth) -> pl.DataFrame:
    data = [(*group, *values.values()) for group, values in results.items()]
    return pl.DataFrame(data, schema=KINDS, orient="row")


def test_a_corrected_day_changes_exactly_the_sessions_that_it_touches() -> None:
    before = rows()
    old = truth(before)
    absorbed = 0
    for day in ARCHIVED[1:]:
        begin, end = day * DAY * SECOND, (day + 1) * DAY * SECOND
        after = corrected(before, day)
        new = truth(after)
        range_ = ReplacedRange(begin, end, merging=True)
        changes = range_.changes(frame(truth(near(after, day))), frame(old).select(IDENTITY))
        table = dict(old)
        for row in changes.rows(named=True):
            group = row["key"], micros(row["window_start"]), micros(row["window_end"])
            if row[DELETED]:
                del table[group]
            else:
                table[group] = {"count": row["count"], "sum": row["sum"]}
        assert table == new, day
        assert changes.filter(DELETED).height == len(old.keys() - new.keys())
        absorbed += any(start >= end for _, start, _ in old.keys() - new.keys())
    assert absorbed > 3  # sessions after the day that a new row of the day has joined


def test_windows_that_do_not_merge_are_replaced_by_their_overlap() -> None:
    def results(*windows: tuple[str | None, int, int]) -> pl.DataFrame:
        return frame({(key, start, end): {"count": 1, "sum": 1} for key, start, end in windows})

    range_ = ReplacedRange(10, 20, merging=False)
    before = results((None, 0, 10), (None, 5, 15), (None, 15, 25), (None, 20, 30), ("a", 12, 14))
    after = results((None, 5, 15), (None, 15, 25), (None, 20, 30))
    changes = range_.changes(after, before.select(IDENTITY)).sort("window_start")
    found = [(row["key"], row["count"], row[DELETED]) for row in changes.rows(named=True)]
    assert found == [(None, 1, False), ("a", None, True), (None, 1, False)]
    assert range_.changes(after.clear(), before.clear().select(IDENTITY)).is_empty()
