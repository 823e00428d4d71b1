"""Rows for which an async function failed: they become rows of kind ``failed``, and are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from slackwater import windows
from slackwater.errors import AsyncItemFailed, InvalidArgument
from slackwater.progress.async_stage import Retry
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.api.map_async import async_call
from slackwater.spark.api.row_output import FAILED_ELEMENT
from slackwater.spark.monitor.reports import OperatorReport
from slackwater.spark.runtime.async_mapper import AsyncMapper, OnError
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.operator_inputs import InputRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.numbered_chunks import CHUNK, EMPTY, LAST, ORIGIN, SEQUENCE, WATERMARK
from slackwater.spark.wire.wire_columns import FAILED_ROW, FAILURE, TIME, WITNESS, column_alias
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import Stage, host, shipped, ticks

RESULT = StructType([StructField("key", StringType()), StructField("value", LongType())])
OUTPUT = StructType([StructField(TIME, LongType()), *FAILED_ELEMENT, *RESULT.fields])
HEADER = {ORIGIN: "a", SEQUENCE: 1, CHUNK: 1, LAST: True, WATERMARK: 5, EMPTY: False}
TYPES = {str: StringType(), int: LongType(), bool: BooleanType()}
NUMBERED = StructType(
    [*(StructField(name, TYPES[type(one)]) for name, one in HEADER.items()), *OUTPUT.fields]
)

REASONS = {
    2: "failed after 2 attempts: ConnectionError: refused",
    3: "no result within its timeout of 0.05 s",
    4: "column 'value' of type int64: has a fractional part",
    5: "picky = 'str': is not a valid return type",
    6: "picky = ['price']: was returned, but is not in the schema",
}
"""Why the function fails for a row with this value."""


async def picky(row: dict[str, Any]) -> Any:
    match row["value"]:
        case 2:
            raise ConnectionError("refused")
        case 3:
            await asyncio.sleep(60)
        case 4:
            return {"key": "k4", "value": 4.5}
        case 5:
            return [{"key": "k5", "value": 5}, "no row"]
        case 6:
            return {"key": "k6", "price": 6}
    return row


def called(rows: pl.DataFrame, output: StructType = OUTPUT, on_error: OnError = "emit") -> pl.DataFrame:
    retry = Retry(1, first_delay=0)
    call = async_call(picky, RESULT, timeout="50 milliseconds", retry=retry, on_error=on_error)
    renamed = rows.rename({"key": column_alias(0), "value": column_alias(1)})
    batches = renamed.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
    return pl.DataFrame(pa.Table.from_batches(AsyncMapper(call, ("key", "value"), output)(batches)))


def numbers(*values: int) -> pl.DataFrame:
    return pl.DataFrame({TIME: values, "key": [f"k{value}" for value in values], "value": values})


def as_json(value: int) -> str:
    return f'{{"key":"k{value}","value":{value}}}'


def test_a_failed_row_has_its_reason_and_its_content() -> None:
    found = called(numbers(1, *REASONS, 7)).sort(TIME)
    kept = found.filter(~pl.col(WITNESS)).select("key", "value", FAILURE, FAILED_ROW)
    assert kept.rows() == [("k1", 1, None, None), ("k7", 7, None, None)]
    failed = found.filter(pl.col(WITNESS))
    assert failed["key"].null_count() == failed["value"].null_count() == len(REASONS)
    assert failed[FAILED_ROW].to_list() == list(map(as_json, REASONS))
    for reason, expected in zip(failed[FAILURE], REASONS.values(), strict=True):
        assert expected in reason


@pytest.mark.parametrize("value", REASONS)
def test_by_default_a_failed_row_fails_the_batch(value: int) -> None:
    with pytest.raises((AsyncItemFailed, InvalidArgument)) as failed:
        called(numbers(1, value), on_error="fail")
    assert REASONS[value] in str(failed.value)


def test_a_later_call_keeps_the_reason_of_an_earlier_one() -> None:
    first = called(numbers(1, 2))
    again = called(first.with_columns(value=pl.lit(6, pl.Int64))).sort(TIME)
    assert REASONS[6] in again[FAILURE][0]
    assert REASONS[2] in again[FAILURE][1]
    assert again[FAILED_ROW].to_list() == ['{"key":"k1","value":6}', as_json(2)]


def started(rules: InputRules) -> Stage:
    return Stage(OperatorPlan((rules,), host(Options(windows.Fixed(10)))))


def emitted(outputs: Sequence[BucketOutput]) -> pl.DataFrame:
    return pl.concat([one.rows for one in outputs if one.rows is not None], how="diagonal_relaxed")


def test_failed_rows_are_emitted_and_counted_and_advance_the_watermark() -> None:
    stage = started(SourceRules(Lag(0)))
    first, second = (
        emitted(stage.step([*shipped(called(numbers(good, bad))), *ticks(now)]))
        for now, (good, bad) in enumerate([(1, 2), (25, 6)])
    )
    for rows, bad in ((first, 2), (second, 6)):
        failed = rows.filter(kind="failed")
        assert failed["failed_row"].to_list() == [as_json(bad)]
        assert REASONS[bad] in failed["failure"].item()
    assert second.filter(kind="pane").select("key", "sum").rows() == [("k1", 1)]
    only_failed = called(numbers(3)).with_columns(pl.lit(40, pl.Int64).alias(TIME))
    outputs = stage.step([*shipped(only_failed), *ticks(2)])
    report = OperatorReport(tuple(output.report for output in outputs))
    assert (report.watermark, report.totals["failed"], report.totals["invalid"]) == (40, 3, 0)
    assert ", failed 3" in str(report)


def test_the_failed_rows_of_a_repeated_buffer_are_emitted_once() -> None:
    headed = numbers(1, 2).with_columns(pl.lit(value).alias(name) for name, value in HEADER.items())
    buffers = shipped(called(headed, NUMBERED))
    stage = started(NumberedRules())
    first, second = (stage.step([*buffers, *ticks(now)]) for now in range(2))
    assert emitted(first).filter(kind="failed").height == 1
    assert all(output.rows is None for output in second)
    assert sum(output.report.totals["failed"] for output in second) == 1


def test_the_choice_is_checked() -> None:
    with pytest.raises(InvalidArgument, match=r"on_error = 'ignore': .*fail.*emit.*skip"):
        async_call(picky, RESULT, on_error="ignore")  # type: ignore[arg-type]
