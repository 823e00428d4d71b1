"""A sample of the random pipelines on Spark: the folded output is the batch result, as it is in process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.progress.values import DEFAULT_KEY
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import stream
from slackwater.spark.api.stream_operations import StreamOperations
from slackwater.spark.runtime.async_mapper import AsyncFunction
from slackwater.spark.wire.clock_source import Ticks
from slackwater.spark.wire.wire_columns import RETRACTION, TIME
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows import Sessions, Window
from slackwater.windows.assigners import SessionsBy
from tests.model.pipelines import Result, comparable, folded, truth
from tests.model.windows import Row
from tests.property.pipeline_soak import numbered_case
from tests.spark.running import collector, micros, put_in_order, run_available
from tests.strategies.pipelines import Case
from tests.support.pipeline_nodes import (
    ACCUMULATIONS,
    CONDITION,
    GAP,
    PRIME,
    Called,
    Cogrouped,
    Deduplicated,
    Feed,
    Filtered,
    Joined,
    LookedUp,
    Mapped,
    Node,
    Operator,
    Rekeyed,
    Windowed,
    drop_late,
    results_of,
)
from tests.support.pipelines import Pipeline

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
CASES = 8
AT = "micros"
"""The column with the event time of a row in microseconds, from which an as-of join computes its value."""


def is_keyed(node: Node) -> bool:
    """Whether all panes have a key column."""
    match node:
        case Feed():
            return True
        case Filtered() | Mapped() | Rekeyed() | Called():
            return is_keyed(node.input)
    return not (isinstance(node, Windowed) and not node.keyed) and all(map(is_keyed, node.inputs))


def kinds(node: Node) -> set[type[Node]]:
    """The kinds of operators with state."""
    match node:
        case Feed():
            return set()
        case Filtered() | Mapped() | Rekeyed() | Called():
            return kinds(node.input)
    return {type(node)}.union(*map(kinds, node.inputs))


def operators(node: Node) -> int:
    """The number of operators with state."""
    match node:
        case Feed():
            return 0
        case Filtered() | Mapped() | Rekeyed() | Called():
            return operators(node.input)
    return 1 + sum(map(operators, node.inputs))


def is_sampled(made: Case) -> bool:
    """Whether a case has several operators, several batches, and panes of a key at the end."""
    ends_in_panes = isinstance(made.last, Windowed | Cogrouped) and is_keyed(made.last)
    return ends_in_panes and operators(made.last) > 1 and len(made.batches) > 1


@cache
def sample() -> list[int]:
    """The first numbers of cases, and the first of those with a kind of operator that is not among them."""
    numbers = (number for number in count() if is_sampled(numbered_case(0, number)))
    found = list(islice(numbers, CASES))
    for kind in (LookedUp, Deduplicated):
        if not any(kind in kinds(numbered_case(0, number).last) for number in found):
            found.append(next(number for number in numbers if kind in kinds(numbered_case(0, number).last)))
    return found


def feeds(node: Node) -> list[Feed]:
    """The feeds of a pipeline."""
    match node:
        case Feed():
            return [node]
        case Filtered() | Mapped() | Rekeyed() | Called():
            return feeds(node.input)
    return [feed for each in node.inputs for feed in feeds(each)]


def built(node: Node, streams: Mapping[str, StreamOperations]) -> StreamOperations:
    """The node with the methods that users call."""
    value = sql.col("value")
    match node:
        case Feed(name=name):
            return streams[name]
        case Filtered(inner, modulus):
            return built(inner, streams).filter((value % modulus != 0) | value.isNull())
        case Mapped(inner, factor):
            return built(inner, streams).with_columns(value=value * factor + 1)
        case Rekeyed(inner, keys):
            key = sql.concat(sql.lit("r"), sql.pmod(value, sql.lit(keys)).cast("string"))
            return built(inner, streams).with_columns(key=key)
        case Called(inner, modulus):
            schema = f"key string, value long, {AT} long"
            return built(inner, streams).map_async(_call(modulus), schema=schema)
        case Windowed() | Cogrouped() as operator:
            return _named(panes(operator, streams), operator)
        case Deduplicated(inner, within):
            unique = built(inner, streams).deduplicate(on="key", within=timedelta(microseconds=within))
            return unique.with_columns(value=sql.pmod(sql.col(AT), sql.lit(PRIME)))
        case Joined():
            return _joined(node, streams)


def _joined(node: Joined, streams: Mapping[str, StreamOperations]) -> StreamOperations:
    left, right = (built(each, streams).select("key", "value", AT) for each in node.inputs)
    before, after = (timedelta(microseconds=each) for each in (node.before, node.after))
    value = _pair("value_left", "value_right")
    if isinstance(node, LookedUp):
        joined = left.join_asof(right, on="key", tolerance=after, how=node.how, direction=node.direction)  # type: ignore[arg-type]
        value = _pair_of(sql.col("value_left"), sql.col(f"{AT}_right") - sql.col(f"{AT}_left"))
    else:
        condition = CONDITION if node.conditional else None
        joined = left.join(right, on="key", how=node.how, before=before, after=after, condition=condition)
    # Streams can be united only if their watermark keys have the same name.
    rows = joined.by(joined.elements().watermark_key, name=DEFAULT_KEY)
    if node.how in ("semi", "anti"):
        return rows
    sides = ("right", "left") if node.how == "right" else ("left", "right")
    at = sql.coalesce(*(f"{AT}_{side}" for side in sides))
    return rows.with_columns({"value": value, AT: at})


def panes(node: Operator, streams: Mapping[str, StreamOperations]) -> Panes:
    """The panes of an operator."""
    assert isinstance(node, Windowed | Cogrouped)
    first, *others = [built(each, streams).key_by("key") for each in node.inputs]
    united = first.union(*others).key_by("key") if isinstance(node, Windowed) and others else first
    lateness = None if node.lateness is None else timedelta(microseconds=node.lateness)
    windowed = united.window(_window(node)).trigger(node.trigger).allowed_lateness(lateness)
    windowed = windowed.drop_late(drop_late(node))  # type: ignore[arg-type]  # one of the choices
    if node.mode == "accumulating_and_retracting":
        windowed = windowed.accumulating_and_retracting()
    if isinstance(node, Windowed):
        windowed = windowed.timestamp(node.timestamp)  # type: ignore[arg-type]  # one of the choices
        return windowed.agg(value=ACCUMULATIONS[node.value], elements=windows.count())
    return windowed.cogroup(others[0], left=["value"], right=["value"], how=node.how)


def _window(node: Windowed | Cogrouped) -> Window | SessionsBy:
    if not isinstance(node, Windowed) or node.window != Sessions(GAP):
        return node.window
    units = sql.expr("1 + coalesce(abs(value) % 5, 3)") * node.tick
    return SessionsBy(units * sql.expr("interval '0.000001' second"))


def _call(modulus: int) -> AsyncFunction:
    async def function(row: Row) -> list[Row]:
        kept = {"key": row["key"], AT: row[AT]}
        return [{**kept, "value": value} for value in results_of(row["value"], modulus)]

    return function


def _named(found: Panes, node: Operator) -> StreamOperations:
    columns = {AT: sql.unix_micros("window.end") - 1}
    if isinstance(node, Cogrouped):
        columns["value"] = _pair("value", "value_right")
    return found.with_columns(columns)


def _pair(left: str, right: str) -> Column:
    return _pair_of(sql.col(left), sql.col(right))


def _pair_of(left: Column, right: Column) -> Column:
    return sql.coalesce(left, sql.lit(50)) * 10 + sql.coalesce(right, sql.lit(7))


def write(folder: Path, number: int, rows: Sequence[Row]) -> None:
    """The rows of a feed in a micro-batch as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [[row[name] for row in rows] for name in ("key", "value", TIME)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    path = folder / f"{number:05}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), path)
    put_in_order(path, number)


def write_feeds(folder: Path, made: Case) -> None:
    """The rows of all feeds: a file for each micro-batch."""
    for feed in feeds(made.last):
        for number, batch in enumerate(made.batches):
            write(folder / feed.name, number, batch.get(feed.name, ()))


def output(spark: SparkSession, folder: Path, made: Case) -> DataFrame:
    """The rows that the last operator emits in all micro-batches and at the end, as a streaming DataFrame."""
    clock = Ticks(tuple(2 * number for number in range(len(made.batches) + 1)))
    streams: dict[str, StreamOperations] = {}
    for feed in feeds(made.last):
        reader = spark.readStream.schema("key string, value long, at timestamp")
        df = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / feed.name))
        idle_after = None if feed.idle_after is None else timedelta(microseconds=feed.idle_after)
        fed = stream(df, event_time="at", watermark=Lag(feed.lag), idle_after=idle_after, clock=clock)
        streams[feed.name] = fed.select("key", "value", sql.unix_micros("at").alias(AT))
    return panes(made.last, streams).to_df(flush=True)


def as_stream(spark: SparkSession, folder: Path, made: Case) -> list[SparkRow]:
    """The rows of the output, in the order of the micro-batches."""
    write_feeds(folder, made)
    collected: dict[int, list[SparkRow]] = {}
    run_available(output(spark, folder, made), folder / "checkpoint", collector(collected))
    return [row for number in sorted(collected) for row in collected[number]]


def pane(row: SparkRow | Mapping[str, Any], node: Operator) -> dict[str, Any]:
    """A row of a DataFrame under the names of a pane in process."""
    start, end = row["window"]["start"], row["window"]["end"]
    value = row["value"]
    if isinstance(node, Cogrouped):
        right = row["value_right"]
        value = (50 if value is None else value) * 10 + (7 if right is None else right)
    return {
        "key": row["key"],
        "value": value,
        "elements": 0 if isinstance(node, Cogrouped) else row["elements"],
        "window_start": BEGINNING_OF_TIME if start is None else micros(start),
        "window_end": END_OF_TIME if end is None else micros(end),
        RETRACTION: row["pane"]["retraction"],
    }


def expected(made: Case) -> Counter[Result]:
    """The batch result over the rows that the operators accept, which those in process tell."""
    pipeline = Pipeline(made.last)
    for index, batch in enumerate(made.batches):
        pipeline.step(batch, 2 * index)
    return Counter(truth(pipeline, made.last))


@pytest.mark.proof
@pytest.mark.parametrize("number", sample())
def test_a_random_pipeline_folds_to_the_batch_result(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    made = numbered_case(0, number)
    rows = [pane(row, made.last) for row in as_stream(spark, tmp_path, made)]
    assert comparable(folded(rows, made.last), made.last) == comparable(expected(made), made.last)
