"""Names that PySpark has: spelled its way, or named in the error with what is meant here."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import slackwater as sw
from slackwater.errors import InvalidArgument
from slackwater.spark.api.builders import applied
from slackwater.spark.api.stream import Stream
from slackwater.spark.in_process.scripted_rows import ScriptedRows
from slackwater.spark.wire.wire_columns import SESSION_GAP
from slackwater.testing import T
from slackwater.windows import Sessions
from slackwater.windows.spec.windowing_strategy import WindowingStrategy


def stream() -> Stream:
    rows: Any = ScriptedRows("bids", dict(T("at | auction | price \n 1 | a | 2").schema))
    return sw.stream(rows, event_time="at", watermark=sw.lag("5 seconds"))


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("countDistinct", "count_distinct"),
        ("approxCountDistinct", "approx_count_distinct"),
        ("sumDistinct", "sum_distinct"),
        ("collect_list", "collect"),
        ("bool_and", "all"),
        ("bool_or", "any"),
        ("stddev_samp", "stddev"),
        ("var_samp", "variance"),
    ],
)
def test_spellings_of_pyspark_work_and_are_not_listed(name: str, here: str) -> None:
    assert getattr(sw, name) is getattr(sw, here)
    assert name not in dir(sw)


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("groupBy", "key_by"),
        ("where", "filter"),
        ("withColumn", "with_columns"),
        ("dropDuplicates", "deduplicate"),
        ("withWatermark", "watermark=sw.lag"),
        ("writeStream", "to_df().writeStream"),
    ],
)
def test_an_operation_of_dataframes_is_named_in_the_error(name: str, here: str) -> None:
    one = stream()
    for each in (one, one.window(sw.fixed("1 minute")).agg(bids=sw.count())):
        with pytest.raises(AttributeError) as found:
            getattr(each, name)
        assert here in str(found.value)
    assert not hasattr(one, "groupBy")


def test_values_without_a_name_are_rejected_where_they_are_written() -> None:
    windowed = stream().window(sw.fixed("1 minute"))
    with pytest.raises(InvalidArgument, match=r"agg = Count\(.*has no name; name the values: agg\(bids="):
        windowed.agg(sw.count())
    with pytest.raises(InvalidArgument, match="has no name"):
        windowed.agg(bids=sw.count()).agg(sw.sum("bids"))
    with pytest.raises(InvalidArgument, match=r"are several columns; write count_distinct\(F\.struct"):
        windowed.agg(bidders=sw.count_distinct("auction", "price"))


def test_reprs_fit_in_a_notebook_cell() -> None:
    one = stream()
    windowed = one.key_by("auction").window(sw.sliding("1 hour", every="5 minutes"))
    pairs = one.join(one, on=["auction"], before="0 seconds", after="1 hour")
    shown = [one, windowed, windowed.agg(total=sw.sum("price")), pairs]
    shown.append(one.deduplicate(on=["auction"], within="1 hour"))
    for value in shown:
        assert "\n" not in repr(value)
        assert len(repr(value)) < 200
    assert repr(windowed).startswith("Windowed[sliding size 1 h, every 5 min, accumulating] of Stream[at: ")


def test_the_gap_of_a_session_is_not_a_column_of_the_rows_of_apply() -> None:
    rows: Any = ScriptedRows("bids", dict(T(f"at | auction | price | {SESSION_GAP} \n 1 | a | 2 | 3").schema))
    keyed = sw.stream(rows, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction")
    strategy = WindowingStrategy(window=Sessions(SESSION_GAP), key=("auction",))
    output = StructType([StructField("n", LongType())])
    panes = applied(keyed, strategy, lambda key, window, rows: [], output, columns=None, frame="polars")
    assert panes.columns == (("auction", "at", "price"),)
