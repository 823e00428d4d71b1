"""Strict conversion: a value is kept exactly or rejected with its row and column."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import pyarrow as pa
import pytest

from slackwater._strict_rows import check_value, rows_to_table, table_to_schema, to_array
from slackwater.errors import InvalidArgument

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
ZONED = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
POINT = pa.struct([("x", pa.int64()), ("at", ZONED)])


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.int64(), 1.9, "has a fractional part"),
        (pa.int64(), np.float32(1.5), "has a fractional part"),
        (pa.int64(), Decimal("1.9"), "has a fractional part"),
        (pa.int64(), float("nan"), "is not an integer"),
        (pa.int64(), float("inf"), "is not an integer"),
        (pa.int64(), 1e300, ""),
        (pa.int64(), 2**63, ""),
        (pa.int8(), 300, ""),
        (pa.int64(), "many", ""),
        (pa.float32(), 1e300, "is too large"),
        (pa.float32(), -1e39, "is too large"),
        (pa.float32(), np.float64(1e39), "is too large"),
        (pa.float64(), Decimal("1e400"), "is too large"),
        (pa.decimal128(5, 2), Decimal("1.234"), ""),
        (pa.decimal128(5, 2), 1.25, ""),
        (ZONED, NOON.replace(tzinfo=None), "has no timezone"),
        (ZONED, np.datetime64("2024-01-31"), "has no timezone"),
        (ZONED, pd.Timestamp("2024-01-31"), "has no timezone"),
        (ZONED, pd.Timestamp(1, tz="UTC"), "is not a whole number of microseconds"),
        (ZONED, 1_706_702_400_000_000, "is a number"),
        (ZONED, 1.5, "is a number"),
        (ZONED, date(2024, 1, 31), "is not a datetime"),
        (ZONED, "2024-01-31T12:00:00Z", "is not a datetime"),
        (pa.timestamp("ms", "UTC"), NOON.replace(microsecond=5), "is not a whole number of milliseconds"),
        (pa.timestamp("s", "UTC"), NOON.replace(microsecond=5), "is not a whole number of seconds"),
        (NAIVE, NOON, "has a timezone"),
        (NAIVE, 5, "is a number"),
        (pa.date32(), NOON, "is not a date"),
        (pa.date32(), 19_000, "is not a date"),
        (pa.time64("us"), 5, "is not a time of day"),
        (pa.time32("s"), time(12, 0, 0, 5), "is not a whole number of seconds"),
        (pa.duration("us"), 5, "is not a duration"),
        (pa.duration("s"), timedelta(microseconds=5), "is not a whole number of seconds"),
        (pa.bool_(), 1, ""),
        (pa.list_(pa.int64()), [1, 1.9], "has a fractional part"),
        (pa.list_(pa.float32()), [1e300], "is too large"),
        (POINT, {"x": 1.5}, "has a fractional part"),
        (POINT, {"at": NOON.replace(tzinfo=None)}, "has no timezone"),
        (POINT, {"x": 1, "y": 2}, "has an unknown field 'y'"),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.5}, "has a fractional part"),
        (pa.dictionary(pa.int32(), pa.int64()), 1.5, "has a fractional part"),
    ],
    ids=str,
)
def test_a_value_that_would_be_cut_is_rejected_with_row_and_column(
    kind: pa.DataType, value: Any, reason: str
) -> None:
    field = pa.field("price", kind)
    with pytest.raises(InvalidArgument, match=r"row 3, column 'price' of type") as raised:
        to_array([None, None, value], field, what="events")
    assert reason in raised.value.reason
    assert raised.value.name == "events"
    with pytest.raises(InvalidArgument, match="column 'price' of type"):
        check_value(value, field, what="event")


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (pa.int64(), 2.0, 2),
        (pa.int64(), np.int64(3), 3),
        (pa.int64(), Decimal("4.0"), 4),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.int8(), -128, -128),
        (pa.float64(), 7, 7.0),
        (pa.float64(), Decimal("0.5"), 0.5),
        (pa.float32(), 0.5, 0.5),
        (pa.float32(), float("inf"), float("inf")),
        (pa.float64(), float("-inf"), float("-inf")),
        (ZONED, NOON, NOON),
        (ZONED, NOON.astimezone(timezone(timedelta(hours=2))), NOON),
        (ZONED, pd.Timestamp(NOON), NOON),
        (NAIVE, NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
        (pa.date32(), date(2024, 1, 31), date(2024, 1, 31)),
        (pa.time64("us"), time(12, 30), time(12, 30)),
        (pa.duration("us"), timedelta(seconds=5), timedelta(seconds=5)),
        (pa.string(), "a", "a"),
        (pa.binary(), b"a", b"a"),
        (pa.bool_(), True, True),
        (pa.decimal128(5, 2), Decimal("1.25"), Decimal("1.25")),
        (pa.list_(pa.int64()), [1, None, 2.0], [1, None, 2]),
        (POINT, {"x": 1, "at": NOON}, {"x": 1, "at": NOON}),
        (POINT, {"x": 1}, {"x": 1, "at": None}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 1)]),
    ],
    ids=str,
)
def test_an_exact_value_is_kept(kind: pa.DataType, value: Any, kept: Any) -> None:
    field = pa.field("price", kind)
    assert to_array([value, None], field, what="events").to_pylist() == [kept, None]
    check_value(value, field, what="event")


def test_rows_may_have_other_names() -> None:
    schema = pa.schema([("n", pa.int64())])
    with pytest.raises(InvalidArgument, match="line 12, column 'n'"):
        rows_to_table(
            [{"n": 1}, {"n": 1.5}], schema, what="file", row_name=lambda index: f"line {index + 11}"
        )


def test_an_unknown_column_is_rejected_with_its_row() -> None:
    with pytest.raises(InvalidArgument, match="events = 'm': row 2: unknown column; available: n"):
        rows_to_table([{"n": 1}, {"n": 1, "m": 2}], pa.schema([("n", pa.int64())]), what="events")


def test_a_missing_value_is_null_unless_the_column_is_not_nullable() -> None:
    required = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert rows_to_table([{}], pa.schema([("n", pa.int64())]), what="events").to_pylist() == [{"n": None}]
    with pytest.raises(InvalidArgument, match="row 2, column 'n' of type int64: is null"):
        rows_to_table([{"n": 1}, {}], required, what="events")


def test_no_rows_give_an_empty_table() -> None:
    schema = pa.schema([("n", pa.int64()), ("at", ZONED)])
    assert rows_to_table([], schema, what="events") == schema.empty_table()


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (pa.array([1.0, 1.9]), pa.int64(), "row 2, column 'n' of type int64: has a fractional part"),
        (pa.array([1.0, 1e300]), pa.float32(), "row 2, column 'n' of type float: is too large"),
        (pa.array([1, 2]), ZONED, "events = 'int64': column 'n' of type timestamp.*cannot be made"),
        (pa.array([1, 2], NAIVE), ZONED, r"events = 'timestamp\[us\]'.*give it a timezone"),
        (pa.array([1, 2], ZONED), NAIVE, "cannot be made from this type"),
        (pa.array([1, 2], ZONED), pa.int64(), "cannot be made from this type"),
        (pa.array([1, 2], pa.date32()), NAIVE, "cannot be made from this type"),
        (pa.array([1000, 5], pa.timestamp("ns", "UTC")), ZONED, "row 2, column 'n'.*whole number of micro"),
        (pa.array([1, 300]), pa.int8(), "row 2, column 'n' of type int8"),
        (pa.array([[1.0], [1.9]]), pa.list_(pa.int64()), "row 2, column 'n' of type list.*fractional part"),
        (pa.array(["a", "b"]), pa.int64(), "row 1, column 'n' of type int64"),
    ],
    ids=str,
)
def test_a_column_that_would_be_cut_is_rejected(column: pa.Array, kind: pa.DataType, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        table_to_schema(pa.table({"n": column}), pa.schema([("n", kind)]), what="events")


@pytest.mark.parametrize(
    ("column", "kind", "kept"),
    [
        (pa.array([1.0, None]), pa.int64(), [1, None]),
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([0.5, float("inf")]), pa.float32(), [0.5, float("inf")]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array([NOON], pa.timestamp("ns", "Europe/Berlin")), ZONED, [NOON]),
        (pa.nulls(1), ZONED, [None]),
        (pa.array([], pa.float64()), ZONED, []),
        (pa.array([None], pa.int64()), pa.date32(), [None]),
        (pa.array([[1.0]], pa.large_list(pa.float64())), pa.list_(pa.int64()), [[1]]),
    ],
    ids=str,
)
def test_an_exact_column_is_cast(column: pa.Array, kind: pa.DataType, kept: list[Any]) -> None:
    table = table_to_schema(pa.table({"n": column}), pa.schema([("n", kind)]), what="events")
    assert table.schema.field("n").type == kind
    assert table["n"].to_pylist() == kept


def test_a_column_with_nulls_is_rejected_if_it_is_not_nullable() -> None:
    required = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(InvalidArgument, match="column 'n' has nulls"):
        table_to_schema(pa.table({"n": [1, None]}), required, what="events")
