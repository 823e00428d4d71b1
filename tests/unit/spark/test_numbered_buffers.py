"""Numbered buffers without Spark, compared with the model: any order, any copies, any batches."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import SequenceConflict, UnknownSource
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import BufferHeader
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.map_side import Shipper
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.wire import numbered_chunks as chunks
from slackwater.spark.wire.buffers import OriginChunk, Shipment, unpack
from slackwater.spark.wire.wire_columns import BUCKET_INDEX, TIME
from slackwater.time import END_OF_TIME
from tests.model.windows import Row
from tests.support.sampling import sampled
from tests.support.windowed import ModelSubject, Options
from tests.unit.spark.bucket_stages import (
    BUCKETS,
    MODES,
    TRIGGER,
    Stage,
    canonical,
    emitted,
    host,
    ticks,
)

Buffer = tuple[BufferHeader, list[Row]]


def produced(random: Random) -> list[Buffer]:
    """The buffers of three origins: sequences of one to three chunks, drifting times, some without rows."""
    buffers: list[Buffer] = []
    for origin in "abc":
        for sequence in range(1, 7):
            last = random.randint(1, 3)
            for chunk in range(1, last + 1):
                rows: list[Row] = [
                    {"key": random.choice("wxyz"), "ts": 6 * sequence + random.randint(-9, 6), "value": 1 + n}
                    for n in range(random.choice([0, 1, 3]))
                ]
                marks = {"default": 6 * sequence - 5} if random.random() < 0.7 else {}
                buffers.append((BufferHeader(origin, sequence, chunk, chunk == last, marks), rows))
    return buffers


def frame_of(buffers: list[Buffer], *, rows_are_numbered: bool) -> pl.DataFrame:
    """The rows of a task, each with the header of its buffer; a buffer without rows is a header alone."""
    listed: list[dict[str, Any]] = []
    for header, rows in buffers:
        for number, row in enumerate(rows or [None]):
            key = None if row is None else row["key"]
            listed.append(
                {
                    TIME: None if row is None else row["ts"],
                    BUCKET_INDEX: zlib.crc32(repr(key).encode()) % len(BUCKETS),
                    chunks.ORIGIN: header.origin,
                    chunks.SEQUENCE: header.sequence,
                    chunks.CHUNK: header.chunk,
                    chunks.LAST: header.last_chunk,
                    chunks.WATERMARK: header.watermarks.get("default"),
                    chunks.EMPTY: row is None,
                    **({chunks.ROW: number} if rows_are_numbered else {}),
                    "key": key,
                    "value": None if row is None else row["value"],
                }
            )
    kinds = {TIME: pl.Int64, chunks.WATERMARK: pl.Int64, "key": pl.String, "value": pl.Int64}
    return pl.DataFrame(listed, schema_overrides=kinds, infer_schema_length=None)


def shipped(buffers: list[Buffer], *, rows_are_numbered: bool) -> list[Any]:
    """As two tasks would ship them; a buffer may be divided between the two."""
    if not buffers:
        return []
    frame = frame_of(buffers, rows_are_numbered=rows_are_numbered)
    shipper = Shipper(BUCKETS, 0, (), None, False, True, times=())
    half = frame.height // 2
    parts = enumerate((frame[:half], frame[half:]))
    return [buffer for task, part in parts if part.height for buffer in shipper.buffers(part, task, 0)]


@pytest.mark.parametrize("rows_are_numbered", sampled([False, True], keep=[False, True], check=[True]))
@pytest.mark.parametrize("mode", sampled(MODES, keep=MODES, check=MODES[-1:]))
@pytest.mark.parametrize("seed", sampled(range(5), keep=[2]))
def test_any_order_and_any_copies_equal_the_model(seed: int, mode: str, rows_are_numbered: bool) -> None:
    random = Random(seed)
    options = Options(windows.Fixed(10), TRIGGER, ("count", "sum"), mode=mode, allowed_lateness=8)
    stage = Stage(OperatorPlan((NumberedRules(origins=("a", "b", "c")),), host(options)))
    model, tracker = ModelSubject(options), ProgressTracker(["a", "b", "c"])
    waiting = produced(random)
    waiting.sort(key=lambda buffer: buffer[0].sequence + random.uniform(-1.5, 1.5))
    sent: list[Buffer] = []
    copies = dropped = 0
    for number in range(12):
        new, waiting = waiting[:6], waiting[6:]
        again = random.sample(sent, min(len(sent), 3))
        # Only with numbered rows can a copy be recognized in the batch in which the buffer arrived first.
        again += random.sample(new, min(len(new), 2)) if rows_are_numbered else []
        sent += new
        batch = [*new, *again]
        random.shuffle(batch)
        outputs = stage.step([*shipped(batch, rows_are_numbered=rows_are_numbered), *ticks(number)])
        for header, _ in new:
            tracker.observe(header)
        said = model.step([row for _, rows in new for row in rows], tracker.current(), number)
        assert canonical(emitted(outputs, options.key)) == canonical(said.panes)
        assert {output.report.watermark for output in outputs} == {tracker.current()}
        dropped += sum(len(rows) for _, rows in again)
        assert sum(output.report.totals["dropped_duplicate"] for output in outputs) == dropped
        copies += sum(1 for header, _ in again if (header, _) not in new)
        assert {output.report.totals["duplicates"] for output in outputs} == {copies}
    outputs = stage.step(ticks(100, end=True))
    assert canonical(emitted(outputs, options.key)) == canonical(model.step([], END_OF_TIME, 100).panes)
    assert copies > 0


def numbered_chunk(origin: str, sequence: int, watermark: int | None) -> OriginChunk:
    return OriginChunk(origin, sequence, 1, True, watermark, 0)


def test_all_origins_of_a_batch_count_before_the_watermark_advances() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([numbered_chunk("a", 1, 90), numbered_chunk("b", 1, 7)], now=0)
    assert progress.watermark == 7


def test_an_origin_is_idle_after_exactly_idle_after_and_a_copy_does_not_count() -> None:
    progress = NumberedProgress(NumberedRules(idle_after=10), now=0)
    progress.advance([numbered_chunk("a", 1, 10), numbered_chunk("b", 1, 5)], now=0)
    for now in (4, 8, 9):
        progress.advance([numbered_chunk("a", now, 10 + now), numbered_chunk("b", 1, 5)], now=now)
        progress.advance([numbered_chunk("a", number, None) for number in range(2, now + 1)], now=now)
        assert progress.watermark == 5
    progress.advance([numbered_chunk("a", 10, 30)], now=10)
    assert progress.watermark == 30
    assert not progress.idle
    progress.advance([numbered_chunk("a", 11, 60), numbered_chunk("b", 2, 40)], now=12)
    assert progress.watermark == 40


def test_a_slow_batch_and_a_restart_make_no_origin_idle() -> None:
    rules = NumberedRules(idle_after=10)
    progress = NumberedProgress(rules, now=0)
    progress.advance([numbered_chunk("a", 1, 10), numbered_chunk("b", 1, 5)], now=0)
    progress.advance([numbered_chunk("a", 2, 20)], now=500)
    progress = NumberedProgress(rules, 500, progress.save())
    progress.advance([numbered_chunk("a", 3, 30)], now=9_000, restarted=True)
    assert progress.watermark == 5
    progress.advance([], now=9_005)
    assert progress.watermark == 30, "silent for 5 before and 5 after the restart"
    progress.advance([], now=9_010)
    assert progress.idle


def test_an_origin_that_is_declared_later_is_waited_for() -> None:
    progress = NumberedProgress(NumberedRules(origins=("a",)), now=0)
    progress.advance([numbered_chunk("a", 1, 10)], now=0)
    with pytest.raises(UnknownSource, match="'b'"):
        progress.advance([numbered_chunk("b", 1, 10)], now=1)
    more = NumberedProgress(NumberedRules(origins=("a", "b")), 1, progress.save())
    more.advance([numbered_chunk("a", 2, 20)], now=2)
    assert more.watermark == 10
    more.advance([numbered_chunk("b", 1, 15)], now=3)
    assert more.watermark == 15


def test_two_last_chunks_in_one_batch_conflict_in_any_order() -> None:
    for pair in ([True, False], [False, True]):
        progress = NumberedProgress(NumberedRules(), now=0)
        with pytest.raises(SequenceConflict, match="arrived before, but is now flagged as"):
            progress.advance([OriginChunk("a", 1, 1, last, None, 0) for last in pair], now=0)


def test_rows_without_a_number_are_invalid_and_rows_of_a_copy_are_not_counted_again() -> None:
    shipper = Shipper(BUCKETS, 0, (), None, False, True, times=())
    frame = pl.DataFrame(
        {
            TIME: [5, None, 6, None],
            BUCKET_INDEX: [0, 0, 1, 1],
            chunks.ORIGIN: ["a", "a", None, "a"],
            chunks.SEQUENCE: [1, 1, 1, None],
            chunks.CHUNK: [1, 1, 1, 1],
            chunks.LAST: [True, True, True, True],
            chunks.WATERMARK: pl.Series([9, None, 99, 99], dtype=pl.Int64),
            chunks.EMPTY: [False, False, False, False],
            "value": [1, 2, 3, 4],
        }
    )
    (_, header, payload), *_ = shipper.buffers(frame, 0, 0)
    assert isinstance(header, Shipment)
    assert header.chunks == [OriginChunk("a", 1, 1, True, 9, 1, rows=2, times=5)]
    assert header.invalid == 2
    assert payload is not None
    assert unpack(payload)["value"].to_list() == [1]
