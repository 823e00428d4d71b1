"""The map side without Spark: every bucket gets every header, and every row goes to one bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from slackwater.spark.runtime import map_side
from slackwater.spark.runtime.hosts import WindowHost
from slackwater.spark.runtime.map_side import FURTHEST, Shipper
from slackwater.spark.wire.bucket_ids import bucket_ids, spark_hash
from slackwater.spark.wire.buffers import Peak, Rejects, Shipment, read_header, unpack
from slackwater.spark.wire.wire_columns import BUCKET_INDEX, ORIGIN, TIME, column_alias
from slackwater.time import SECOND
from slackwater.windows import Collect, Count, Fixed, Folded
from slackwater.windows.spec.window_spec import WindowSpec


def rows(*times: int | None, origins: str = "a") -> pl.DataFrame:
    count = len(times)
    return pl.DataFrame(
        {
            TIME: pl.Series(times, dtype=pl.Int64),
            BUCKET_INDEX: pl.Series([number % 2 for number in range(count)], dtype=pl.Int32),
            ORIGIN: [origins[number % len(origins)] for number in range(count)],
            "value": list(range(count)),
        }
    )


def shipper(**options: object) -> Shipper:
    given = {
        "buckets": (7, 9),
        "input": 1,
        "columns": (),
        "origin": None,
        "peaks": False,
        "emit_invalid": False,
        **options,
    }
    return Shipper(**given)  # type: ignore[arg-type]


def test_every_bucket_gets_the_observations_of_every_origin() -> None:
    buffers = list(shipper().buffers(rows(5, 3, 9, 4, origins="ab"), task=3, part=0))
    assert [bucket for bucket, _, _ in buffers] == [7, 9]
    for _, header, _ in buffers:
        assert isinstance(header, Shipment)
        assert {seen.origin: seen.peaks for seen in header.observations} == {
            "a": [Peak(9, 2)],
            "b": [Peak(4, 2)],
        }
    payloads = [unpack(payload) for _, _, payload in buffers if payload is not None]
    assert [frame["value"].to_list() for frame in payloads] == [[0, 2], [1, 3]]
    assert payloads[0].columns == [TIME, "value"]


def test_a_bucket_without_rows_gets_the_header() -> None:
    buffers = list(shipper().buffers(rows(5), task=0, part=0))
    assert [(bucket, payload is None) for bucket, _, payload in buffers] == [(7, False), (9, True)]


def test_a_stream_without_an_origin_column_has_one_origin() -> None:
    (seen,) = shipper(origin="input").observations(rows(5, 8).drop(ORIGIN))
    assert seen.origin == "input"
    assert seen.peaks == [Peak(8, 2)]


@pytest.mark.parametrize("unusable", [None, FURTHEST + 1, -FURTHEST - 1])
def test_rows_without_a_usable_time_are_counted_and_sent_separately(unusable: int | None) -> None:
    buffers = list(shipper(emit_invalid=True).buffers(rows(5, unusable), task=0, part=2))
    assert [header.invalid for _, header, _ in buffers if isinstance(header, Shipment)] == [1, 1]
    ((bucket, header, payload),) = [buffer for buffer in buffers if isinstance(buffer[1], Rejects)]
    assert (bucket, header) == (9, Rejects(1, 0, 2))
    assert payload is not None
    assert unpack(payload)["value"].to_list() == [1]


def test_times_at_the_limit_are_usable() -> None:
    (_, header, _), _ = shipper().buffers(rows(FURTHEST, -FURTHEST), task=0, part=0)
    assert isinstance(header, Shipment)
    assert header.invalid == 0


def test_with_peaks_seconds_are_observed_in_descending_order() -> None:
    (seen,) = shipper(peaks=True).observations(rows(5 * SECOND, 2 * SECOND, 2 * SECOND + 1, 9 * SECOND))
    assert seen.peaks == [Peak(9 * SECOND, 1), Peak(5 * SECOND, 1), Peak(2 * SECOND + 1, 2)]


def test_the_hundred_highest_seconds_are_separate_and_the_rest_is_one_peak() -> None:
    (seen,) = shipper(peaks=True, origin="input").observations(rows(*(n * SECOND for n in range(250))))
    assert len(seen.peaks) == 101
    assert seen.peaks[0] == Peak(249 * SECOND, 1)
    assert seen.peaks[-1] == Peak(149 * SECOND, 150)


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16, 200])
def test_every_partition_gets_equally_many_buckets(partitions: int) -> None:
    chosen = [spark_hash(bucket) % partitions for bucket in bucket_ids(3 * partitions)]
    assert all(chosen.count(partition) == 3 for partition in range(partitions))


def test_rows_without_a_positive_session_gap_are_invalid_and_still_move_time() -> None:
    gaps = pl.Series("session:gap", [5, None, 0, -1], dtype=pl.Int64)
    frame = rows(1, 2, 3, 4).with_columns(gaps)
    buffers = list(shipper(gap="session:gap").buffers(frame, task=0, part=0))
    headers = [header for _, header, _ in buffers]
    assert [header.invalid for header in headers if isinstance(header, Shipment)] == [3, 3]
    assert all(
        isinstance(header, Shipment) and header.observations[0].peaks[0].time == 4 for header in headers
    )
    kept = [unpack(payload) for _, _, payload in buffers if payload is not None]
    assert [frame["session:gap"].to_list() for frame in kept] == [[5]]


def keyed(rows: int, keys: int) -> list[pa.RecordBatch]:
    """Rows as Spark passes them to a task, in Arrow batches of ten; the last one has no usable time."""
    frame = pl.DataFrame(
        {
            TIME: [*range(rows - 1), None],
            BUCKET_INDEX: pl.Series([number % keys % 2 for number in range(rows)], dtype=pl.Int32),
            column_alias(0): [number % keys for number in range(rows)],
        }
    )
    batches: list[pa.RecordBatch] = frame.to_arrow().combine_chunks().to_batches(max_chunksize=10)
    return batches


@pytest.mark.search
@pytest.mark.parametrize(
    ("keys", "parts"), [(2, [0]), (1_000, [0, 1, 2, 3])], ids=["rows that fold", "rows that do not"]
)
def test_rows_that_do_not_fold_are_sent_while_others_still_arrive(
    keys: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_side, "_ROWS_IN_TURNS", 15)
    host = WindowHost(
        WindowSpec(window=Fixed(1_000), key=("key",), accumulations={"n": Count()}, event_time=TIME)
    )
    ship = shipper(columns=("key",), origin="input", folding=host)
    sent = [row for batch in ship(keyed(70, keys)) for row in batch.to_pylist()]
    headers = [read_header(row["header"]) for row in sent]
    assert sorted({header.part for header in headers if isinstance(header, Shipment)}) == parts
    assert sum(header.invalid for header in headers if isinstance(header, Shipment)) == len(ship.buckets)
    payloads = [unpack(row["payload"]) for row in sent if row["payload"] is not None]
    if keys == 2:
        assert sum(partials.height for partials in payloads) == keys
    else:
        assert sorted(key for frame in payloads for key in frame["key"]) == list(range(69))


def test_rows_outside_of_the_limits_of_windows_are_invalid() -> None:
    buffers = list(shipper(limits=(2, 3)).buffers(rows(1, 2, 3, 4), task=0, part=0))
    assert [header.invalid for _, header, _ in buffers if isinstance(header, Shipment)] == [2, 2]
    kept = [unpack(payload) for _, _, payload in buffers if payload is not None]
    assert [frame[TIME].to_list() for frame in kept] == [[3], [2]]


class RecordedFolding:
    """Folds as a windowed operator does, and records which rows are folded and how many parts are merged."""

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {"window": Fixed(1_000), "key": ("key",), "event_time": TIME}
        given["accumulations"] = {"n": Count()}
        self.host = WindowHost(WindowSpec(**given | options))
        self.folded: list[list[int]] = []
        self.merged: list[int] = []

    def fold(self, rows: pl.DataFrame, carried: Sequence[str]) -> Folded | None:
        self.folded.append(rows[TIME].to_list())
        return self.host.fold(rows, carried)

    def merge_folded(self, several: Sequence[Folded], carried: Sequence[str]) -> Folded:
        self.merged.append(len(several))
        return self.host.merge_folded(several, carried)


def sent_rows(batches: list[pa.RecordBatch], **options: object) -> list[dict[str, Any]]:
    """The rows that a task sends for some Arrow batches with one column, the key."""
    ship = shipper(columns=("key",), origin="input", **options)
    return [row for batch in ship(batches) for row in batch.to_pylist()]


def test_rows_outside_of_the_limits_of_windows_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_side, "_ROWS_IN_TURNS", 15)
    folding = RecordedFolding()
    sent_rows(keyed(70, 1_000), limits=(5, 60), folding=folding)
    assert [time for rows in folding.folded for time in rows] == list(range(5, 61))


@pytest.mark.parametrize(
    ("turn", "folds", "merges"), [(15, 4, [4]), (100, 1, [1])], ids=["several turns", "one turn"]
)
def test_rows_are_folded_while_others_arrive_and_sent_as_one_partial_per_key(
    turn: int, folds: int, merges: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_side, "_ROWS_IN_TURNS", turn)
    folding = RecordedFolding(accumulations={"n": Count(), "times": Collect(TIME)})
    sent = sent_rows(keyed(70, 2), folding=folding)
    assert (len(folding.folded), folding.merged) == (folds, merges)
    partials = pl.concat(unpack(row["payload"]) for row in sent)
    rows = pl.DataFrame(pa.Table.from_batches(keyed(70, 2)))[:69].rename({column_alias(0): "key"})
    whole = folding.host.fold(rows, [])
    assert whole is not None
    assert_frame_equal(partials, whole.partials, check_row_order=False)


def test_rows_that_do_not_fold_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folding = RecordedFolding()
    sent_rows(keyed(70, 1_000), folding=folding)
    assert len(folding.folded) == 1
    monkeypatch.setattr(map_side, "_ROWS_IN_TURNS", 15)
    sent_rows(keyed(70, 1_000), folding=folding)
    assert len(folding.folded) == 1 + 4


def test_a_turn_that_does_not_fold_is_folded_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_side, "_ROWS_IN_TURNS", 10)
    folding = RecordedFolding()
    rows = pl.DataFrame(pa.Table.from_batches(keyed(40, 2)))
    keys = pl.Series(column_alias(0), [*([0] * 20), *range(10), *([0] * 10)])
    batches = rows.with_columns(keys).to_arrow().combine_chunks().to_batches(max_chunksize=10)
    sent = sent_rows(batches, folding=folding)
    assert [len(times) for times in folding.folded] == [10, 10, 10, 39]
    payloads = [unpack(row["payload"]) for row in sent if row["payload"] is not None]
    assert sum(frame.height for frame in payloads) == 10


def test_a_text_that_is_not_utf8_in_one_turn_leaves_the_other_rows_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(map_side, "_ROWS_IN_TURNS", 10)
    texts = pa.array([b"a"] * 25 + [b"\xff"] + [b"a"] * 14, pa.binary()).view(pa.string())
    table = pa.table(
        {TIME: list(range(40)), BUCKET_INDEX: pa.array([0] * 40, pa.int32()), column_alias(0): texts}
    )
    sent = sent_rows(table.to_batches(max_chunksize=10), folding=RecordedFolding())
    headers = [read_header(row["header"]) for row in sent]
    assert [header.invalid for header in headers if isinstance(header, Shipment)] == [1, 1]
    (partials,) = [unpack(row["payload"]) for row in sent if row["payload"] is not None]
    assert partials.height == 1
    assert 39 in partials.row(0)
