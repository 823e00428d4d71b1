"""Events, columns and tables that writers accept: stored exactly, or rejected where they are written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slackwater.errors import (
    InvalidArgument,
)
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.event_columns import as_batches, as_points
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.streams.log.writer import Writer
from slackwater.streams.segments.routing import point_of
from tests.stores import new_store
from tests.streams.logs import values


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda w: w.write(5), "event = 5: column 'value' of type binary"),
        (lambda w: w.write(None), "is not nullable"),
        (lambda w: w.write({"other": b"a"}), "column names do not match the stream; give value"),
        (lambda w: w.write(b"a", key=5), "is not a valid routing key"),
        (lambda w: w.write(b"a", key="\ud800"), "contains a lone surrogate"),
        (lambda w: w.write_many([b"a"], keys=["\ud800"]), "give only strings, or only bytes"),
        (lambda w: w.write("\ud800"), "column 'value' of type binary"),
        (lambda w: w.write_many(["\ud800"]), "row 1, column 'value' of type binary"),
        (lambda w: w.write(b"a", number=1.5), "is a float"),
        (lambda w: w.write_many([b"a", 5]), "events = 5: row 2, column 'value' of type binary"),
        (lambda w: w.write_many([b"a", None]), "row 2, column 'value' of type binary: is null"),
        (lambda w: w.write_many(pa.table({"v": [b"a"]})), "column names do not match"),
        (lambda w: w.write_many(pa.table({"value": [[1]]})), "row 1, column 'value' of type binary"),
        (lambda w: w.write_many([b"a"], keys=["1", "2"]), "is the number of keys, but there are 1 events"),
        (lambda w: w.write_many([b"a"], keys="user"), "column not found; available: value"),
    ],
)
def test_an_invalid_event_is_rejected_where_it_is_written(tmp_path: Path, write: Any, says: str) -> None:
    with Streams.open(new_store(tmp_path)) as streams:
        stream = streams.create("a/b")
        with Writer(stream) as writer:
            writer.write(b"before")
            with pytest.raises(InvalidArgument, match=says):
                write(writer)
            writer.write(b"after")
        assert values(stream) == [b"before", b"after"]


def test_a_lone_surrogate_is_rejected_where_it_is_written(tmp_path: Path) -> None:
    with Streams.open(new_store(tmp_path)) as streams:
        stream = streams.create("a/b", columns=pa.schema([("value", pa.string())]))
        with Writer(stream) as writer:
            for value in ("a", "ä", "💧"):
                writer.write(value, key=value)
            for event in ("\ud800", {"value": "\ud800"}):
                with pytest.raises(InvalidArgument, match="column 'value' of type string"):
                    writer.write(event)
        assert len(values(stream)) == 3


def test_columns_are_kept_with_their_types(tmp_path: Path) -> None:
    columns = pa.schema([("user", pa.string()), ("price", pa.int64()), ("tags", pa.list_(pa.string()))])
    with Streams.open(new_store(tmp_path)) as streams:
        stream = streams.create("a/b", columns=columns)
        with Writer(stream) as writer:
            writer.write({"user": "a", "price": 3, "tags": ["x"]}, key="a")
            writer.write_many(pa.table({"price": [4], "user": ["b"], "tags": [None]}), keys="user")
            writer.write_many([{"user": None, "price": None, "tags": []}], keys="user")
        rows = [row for batch in read_events(stream, 0) for row in batch.events.to_pylist()]
    assert rows == [
        {"user": "a", "price": 3, "tags": ["x"]},
        {"user": "b", "price": 4, "tags": None},
        {"user": None, "price": None, "tags": []},
    ]


@pytest.mark.proof
def test_all_chunks_of_a_large_table_are_converted() -> None:
    """More than 2 GiB of text do not fit into one chunk with 32-bit offsets; here the chunks share memory."""
    columns = pa.schema([("value", pa.string())])
    chunk = pa.array(["x" * (1 << 20)] * 16)
    table = pa.table({"value": pa.chunked_array([chunk] * 140)})
    assert table.nbytes > 2 << 30
    batches = as_batches(table, columns)
    assert sum(batch.num_rows for batch in batches) == 16 * 140
    points = as_points("value", *batches[:2])
    assert points.tolist() == [point_of("x" * (1 << 20))] * 32


@pytest.mark.parametrize("chunks", [[], [[]], [[b"a"], [b"b", b"c"]], [[b"a", b"b"], [], [b"c"]]])
def test_tables_are_written_with_all_their_chunks(bids: Stream, chunks: list[list[bytes]]) -> None:
    table = pa.table({"value": pa.chunked_array(chunks, pa.binary())})
    keys = [str(number) for number in range(table.num_rows)]
    with Writer(bids, "w") as writer:
        assert writer.write_many(table, keys, number=1) == table.num_rows
        assert writer.write_many(table, keys, number=1) == table.num_rows
        assert writer.write_many(table) == 2 * table.num_rows
    with TransactionalWriter(bids) as transactional:
        transaction = transactional.begin()
        transaction.write_many(table, keys)
        transaction.commit()
    assert sorted(values(bids)) == sorted([value for chunk in chunks for value in chunk] * 3)


INEXACT = [
    ("price", 1.9, "has a fractional part"),
    ("load", 1e300, "is too large"),
    ("at", datetime(2024, 1, 1), "has no timezone"),  # noqa: DTZ001 - this is what is refused
    ("at", 1_704_067_200, "is a number"),
]


@pytest.mark.parametrize(("name", "value", "says"), INEXACT)
def test_values_that_a_column_cannot_hold_exactly_are_rejected_with_their_row(
    bids: Stream, tmp_path: Path, name: str, value: Any, says: str
) -> None:
    """Arrow would store 1, infinity, and a guessed time."""
    types = {"price": pa.int64(), "load": pa.float32(), "at": pa.timestamp("us", tz="UTC")}
    columns = pa.schema(types.items())
    stream = Streams(bids.store).create("a/exact", columns=columns, data=str(tmp_path / "exact"))
    good = {"price": 2.0, "load": 0.5, "at": datetime(2024, 1, 1, tzinfo=UTC)}
    bad = {**good, name: value}
    with Writer(stream) as writer, TransactionalWriter(stream) as transactional:
        transaction = transactional.begin()
        for write in (writer.write, transaction.write):
            with pytest.raises(InvalidArgument, match=f"column '{name}' .*: {says}"):
                write(bad)
        for write_many in (writer.write_many, transaction.write_many):
            with pytest.raises(InvalidArgument, match=f"row 2, column '{name}' .*: {says}"):
                write_many([good, bad])
        writer.write(good)
        transaction.write_many([good])
        transaction.commit()
    rows = [row for batch in read_events(stream, 0) for row in batch.events.to_pylist()]
    assert rows == [{**good, "price": 2}] * 2
