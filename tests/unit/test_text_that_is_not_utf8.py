"""Text that is not UTF-8: a row with it is counted or rejected with its column, and stops no other row."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from slackwater._utf8 import replace_invalid_bytes, unreadable_rows
from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import RowRejected
from slackwater.ingest.targets.rejected_rows import RejectionRule, RowSorter
from slackwater.spark.api.map_async import async_call
from slackwater.spark.runtime.async_mapper import AsyncMapper
from slackwater.spark.runtime.map_side import Shipper
from slackwater.spark.wire.buffers import Rejects, Shipment, read_header, unpack
from slackwater.spark.wire.wire_columns import (
    BUCKET_INDEX,
    FAILED_ROW,
    FAILURE,
    ORIGIN,
    TIME,
    WITNESS,
    column_alias,
)
from slackwater.sql.dead_letters import RowsRejected, dead_letters
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.writer import Writer
from tests.sql.panes import batch as panes
from tests.sql.panes import fold, made
from tests.sql.panes import rows as rows_of

REASON = "column 'name' contains bytes that are not UTF-8"


def text(*values: bytes | None) -> pa.Array:
    """Text as Spark makes it of bytes: without a check."""
    raw = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])


NAMES = text(b"a", b"\xff\xfe", None, b"b\x80")


@pytest.mark.parametrize(
    ("column", "rows", "shown"),
    [
        (NAMES, [1, 3], ["a", "\ufffd\ufffd", None, "b\ufffd"]),
        (NAMES.slice(1, 2), [0], ["\ufffd\ufffd", None]),
        (pa.ListArray.from_arrays([0, 1, 3, 4], NAMES), [1, 2], [["a"], None, None]),
        (pa.StructArray.from_arrays([NAMES], names=["x"]), [1, 3], [{"x": "a"}, None, {"x": None}, None]),
        (pa.array(["ä", "\ufffd"]), [], ["ä", "\ufffd"]),
        (pa.array([b"\xff"]), [], [b"\xff"]),
        (pa.array([], pa.string()), [], []),
    ],
)
def test_the_rows_are_found_and_the_others_stay_as_they_are(
    column: pa.Array, rows: list[int], shown: list[object]
) -> None:
    batch = pa.record_batch({"name": column})
    assert unreadable_rows(batch) == rows
    assert replace_invalid_bytes(batch).column("name").to_pylist() == shown


def shipped(columns: dict[str, pa.Array], *, origin: str | None) -> list[tuple[object, bytes | None]]:
    names = tuple(columns)
    given = pa.record_batch({column_alias(index): columns[name] for index, name in enumerate(names)})
    shipper = Shipper((7,), 0, names, origin, peaks=False, emit_invalid=True)
    (made_of,) = shipper([given])
    headers, payloads = (made_of.column(name).to_pylist() for name in ("header", "payload"))
    return list(zip(map(read_header, headers), payloads, strict=True))


def test_a_query_counts_such_a_row_as_invalid_and_emits_it_readably() -> None:
    columns = {
        TIME: pa.array([5, 9, 6], pa.int64()),
        BUCKET_INDEX: pa.array([0, 0, 0], pa.int32()),
        "name": text(b"a", b"\xff", b"b"),
    }
    (data, rows), (rejects, rejected) = shipped(columns, origin="input")
    assert isinstance(data, Shipment)
    assert isinstance(rejects, Rejects)
    assert data.invalid == 1
    assert [seen.peaks[0].time for seen in data.observations] == [6]
    assert rows is not None
    assert rejected is not None
    assert unpack(rows)["name"].to_list() == ["a", "b"]
    assert unpack(rejected)["name"].to_list() == ["\ufffd"]


def test_such_an_origin_does_not_hold_the_watermark() -> None:
    columns = {
        TIME: pa.array([5, 9], pa.int64()),
        BUCKET_INDEX: pa.array([0, 0], pa.int32()),
        ORIGIN: text(b"a", b"\xff"),
    }
    data = shipped(columns, origin=None)[0][0]
    assert isinstance(data, Shipment)
    assert [seen.origin for seen in data.observations] == ["a"]


async def length(row: dict[str, str]) -> dict[str, int]:
    return {"length": len(row["name"])}


def mapper(on_error: Literal["fail", "emit"]) -> AsyncMapper:
    result = StructType([StructField("length", LongType())])
    marks = [StructField(TIME, LongType()), StructField(WITNESS, BooleanType())]
    failures = [StructField(name, StringType()) for name in (FAILURE, FAILED_ROW)]
    output = StructType([*marks, *(failures if on_error == "emit" else []), *result.fields])
    return AsyncMapper(async_call(length, result, on_error=on_error), ("name",), output)


GIVEN = pa.record_batch({TIME: [1, 2], column_alias(0): text(b"a", b"\xff")})


def test_an_async_function_is_not_called_with_it() -> None:
    with pytest.raises(InvalidArgument, match=f'{REASON}; .*make_valid_utf8.*on_error="emit"'):
        list(mapper("fail")([GIVEN]))


def test_a_row_that_was_filtered_out_before_does_not_matter_to_an_async_function() -> None:
    given = GIVEN.append_column(WITNESS, pa.array([False, True]))
    (batch,) = mapper("fail")([given])
    assert sorted(batch.column("length").to_pylist(), key=str) == [1, None]


def test_with_on_error_emit_the_row_of_an_async_function_is_a_dead_letter() -> None:
    (batch,) = mapper("emit")([GIVEN])
    assert dict(zip(batch.column(TIME).to_pylist(), batch.column("length").to_pylist(), strict=True)) == {
        1: 1,
        2: None,
    }
    assert [reason for reason in batch.column(FAILURE).to_pylist() if reason] == [REASON]
    assert [row for row in batch.column(FAILED_ROW).to_pylist() if row] == ['{"name":"\ufffd"}']


def test_a_table_is_written_without_it_or_not_at_all(tmp_path: Path) -> None:
    given = panes(("a", 0, 5, 0, False), ("b", 0, 6, 0, False))
    given = given.set_column(0, "name", text(b"a", b"\xff"))
    with pytest.raises(RowsRejected, match=REASON):
        fold(made(f"sqlite:///{tmp_path}/a.db"), 0, given)
    target = made(f"sqlite:///{tmp_path}/b.db", on_error="emit")
    fold(target, 0, given)
    assert rows_of(target) == [("a", 5)]
    (letter,) = dead_letters(f"sqlite:///{tmp_path}/b.db", "totals").to_dicts()
    assert letter["reason"] == REASON
    assert '"name":"\ufffd"' in letter["content"]


def test_ingestion_rejects_it_or_stores_a_dead_letter() -> None:
    batch = pa.record_batch({"name": NAMES, "at": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC"))})
    with pytest.raises(RowRejected, match=f"{REASON}, in the row"):
        RowSorter(RejectionRule()).accepted(batch)
    sorter = RowSorter(RejectionRule(emit=True, time_column="at"))
    assert sorter.accepted(batch).column("name").to_pylist() == ["a", None]
    assert [letter["time"] for part in sorter.letters for letter in part.to_pylist()] == [2, 4]


def test_a_writer_refuses_it_with_row_and_column() -> None:
    with Streams.temporary() as streams:
        stream = streams.create("shop/names", columns=pa.schema([("name", pa.string())]))
        with Writer(stream, "w") as writer, pytest.raises(InvalidArgument, match=f"row 3, {REASON}"):
            writer.write_many(pa.table({"name": pa.chunked_array([text(b"a", b"b"), text(b"\xff")])}))
