"""The counter of the results that fallbacks of `map_async` gave, from the map task to the report."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.api.map_async import async_call
from slackwater.spark.monitor.reports import OperatorReport
from slackwater.spark.runtime.async_mapper import AsyncMapper
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.wire_columns import FALLBACKS, TIME, WITNESS, column_alias
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, Stage, host, shipped, ticks

RESULT = StructType([StructField("key", StringType()), StructField("value", LongType())])
MARKS = [StructField(WITNESS, BooleanType()), StructField(FALLBACKS, LongType())]
OUTPUT = StructType([StructField(TIME, LongType()), *MARKS, *RESULT.fields])


async def odd_only(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] % 2 == 0:
        raise ConnectionError("even")
    return row


def twice_or_never(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, row] if row["value"] % 4 else []


def called(rows: pl.DataFrame, fallback: Any) -> pl.DataFrame:
    mapper = AsyncMapper(async_call(odd_only, RESULT, fallback=fallback), ("key", "value"), OUTPUT)
    renamed = rows.rename({"key": column_alias(0), "value": column_alias(1)})
    table = renamed.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pl.DataFrame(pa.Table.from_batches(mapper(table.to_batches())))


def numbers(*values: int) -> pl.DataFrame:
    return pl.DataFrame({TIME: values, "key": [f"k{value}" for value in values], "value": values})


def test_only_the_first_result_of_a_row_counts_and_a_row_without_a_result_counts() -> None:
    found = called(numbers(1, 2, 4), twice_or_never).sort(TIME, maintain_order=True)
    assert found.select("value", WITNESS, FALLBACKS).rows() == [
        (1, False, 0),
        (2, False, 1),
        (2, False, 0),
        (None, True, 1),
    ]


def test_the_fallbacks_of_several_calls_add_up() -> None:
    first = called(numbers(1, 2, 4), lambda row: row)
    again = called(first, twice_or_never).sort(TIME, maintain_order=True)
    assert again[FALLBACKS].to_list() == [0, 2, 0, 2]


def test_the_report_counts_fallbacks_over_all_buckets_and_restarts() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    stage.step([*shipped(called(numbers(1, 2, 4), twice_or_never)), *ticks(0, run=0)])
    outputs = stage.step([*shipped(called(numbers(6, 7, 8, 9, 10), twice_or_never)), *ticks(1, run=1)])
    report = OperatorReport(tuple(output.report for output in outputs))
    assert [bucket.totals["fallbacks"] for bucket in report.buckets] == [5] * len(BUCKETS)
    assert report.totals["fallbacks"] == 5
    assert ", fallbacks 5" in str(report)


def test_rows_without_a_call_count_no_fallbacks() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    outputs = stage.step([*shipped(numbers(1, 2)), *ticks(0)])
    assert OperatorReport(tuple(output.report for output in outputs)).totals["fallbacks"] == 0


def test_state_that_version_2_wrote_loads_without_fallbacks() -> None:
    version_2 = (
        "0242990001c29391c42c0247979193a5696e70757400009491009100c29195a764656661756c740404910491000000c39090e589"
        "14d1c090c4cf02579f040004000001009eb266697865642873697a653d313020c2b5732991a36b6579ac616363756d756c617469"
        "6e67c2ad656e645f6f665f77696e646f77d93061667465725f77617465726d61726b286c6174653d72657065617465646c792861"
        "667465725f636f756e742831292929c20082a5636f756e74a7636f756e742829a373756daa73756d2876616c756529a6616c7761"
        "7973ac69665f6e6f6e5f656d707479a962795f77696e646f77a4686f6c64a764656661756c74c0809090c0d38000000000000000"
        "901e3f984a9a00000000000000000000809000f74f49d6"
    )
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    stage.saved = dict.fromkeys(BUCKETS, bytes.fromhex(version_2))
    outputs = stage.step(ticks(1))
    assert [output.report.watermark for output in outputs] == [4] * len(BUCKETS)
    assert [output.report.totals["fallbacks"] for output in outputs] == [0] * len(BUCKETS)
