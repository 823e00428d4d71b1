"""Numbered buffers that a source divides between micro-batches: announced rows are never lost."""

from __future__ import annotations

from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import SequenceConflict
from slackwater.progress.discovery import Discover
from slackwater.progress.explanation import Reason
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import BufferHeader
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.map_side import Shipper
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.wire import numbered_chunks as chunks
from slackwater.spark.wire.buffers import OriginChunk
from slackwater.time import END_OF_TIME
from tests.model.windows import Row
from tests.support.sampling import sampled
from tests.support.windowed import ModelSubject, Options
from tests.unit.spark.bucket_stages import BUCKETS, MODES, TRIGGER, Stage, canonical, emitted, host, ticks
from tests.unit.spark.test_numbered_buffers import Buffer, frame_of, produced

Piece = tuple[int, int]
"""A buffer and one of its rows, as indices; a header without data is its row 0."""


def part(announced: int, unnumbered: int = 0, *runs: tuple[int, int], **other: Any) -> OriginChunk:
    given = {"origin": "a", "sequence": 1, "chunk": 1, "last": True, "watermark": 9, "invalid": 0, **other}
    return OriginChunk(**given, announced=announced, unnumbered=unnumbered, numbered=runs)


def shipped(buffers: list[Buffer], pieces: list[Piece], *, numbered: bool) -> list[Any]:
    """The pieces as two tasks would ship them."""
    whole = frame_of(buffers, rows_are_numbered=True).with_columns(
        pl.Series(chunks.ANNOUNCED, [len(rows) for _, rows in buffers for _ in range(max(1, len(rows)))]),
        pl.lit(value=True).alias(chunks.FIRST_RESULT),
        pl.col(chunks.ROW).alias(chunks.INPUT_ROW),
    )
    starts = [0]
    for _, rows in buffers:
        starts.append(starts[-1] + max(1, len(rows)))
    frame = whole[[starts[buffer] + row for buffer, row in pieces]]
    if not numbered:
        frame = frame.drop(chunks.ROW, chunks.INPUT_ROW)
    shipper = Shipper(BUCKETS, 0, (), None, False, True, times=())
    half = frame.height // 2
    parts = enumerate((frame[:half], frame[half:]))
    return [buffer for task, rows in parts if rows.height for buffer in shipper.buffers(rows, task, 0)]


VERSION_1 = (
    b"\x01H\x92\xc4,\x01T\x93\xc2\x91\x92\xa1a\x96\x01\x00\xc0\x93\x90\x90\x90\x80\x90\x94\x91\x00\x91\x00\xc2\x91\x95"
    b"\xa7default\n\n\x91\n\x91\x00>\x0e\xe1\x9a\x91\x92\xa1a\x00\xab1\xcf3"
)
"""Sequence 1 of origin a with the watermark 10, as release 0.1.0 saved it."""


@pytest.mark.parametrize("numbered", sampled([False, True], keep=[False, True], check=[True]))
@pytest.mark.parametrize("mode", sampled(MODES, keep=MODES, check=MODES[-1:]))
@pytest.mark.parametrize("seed", sampled(range(4), keep=[0]))
def test_divided_buffers_equal_the_model(seed: int, mode: str, numbered: bool) -> None:
    random = Random(seed)
    options = Options(windows.Fixed(10), TRIGGER, ("count", "sum"), mode=mode, allowed_lateness=8)
    stage = Stage(OperatorPlan((NumberedRules(origins=("a", "b", "c")),), host(options)))
    model, tracker = ModelSubject(options), ProgressTracker(["a", "b", "c"])
    buffers = produced(random)
    rows: dict[Piece, Row | None] = {
        (index, number): row
        for index, (_, mine) in enumerate(buffers)
        for number, row in enumerate(mine or [None])
    }
    missing = [max(1, len(mine)) for _, mine in buffers]
    waiting = sorted(rows, key=lambda piece: buffers[piece[0]][0].sequence + random.uniform(-1.5, 1.5))
    sent: list[Piece] = []
    repeats = 0
    for number in range(12):
        new, waiting = waiting[:8], waiting[8:]
        # Without row numbers only the copy of a complete buffer can be recognized.
        known = sent if numbered else [piece for piece in sent if not missing[piece[0]]]
        again = random.sample(known, min(len(known), 3))
        again += random.sample(new, min(len(new), 2)) if numbered else []
        sent += new
        batch = [*new, *again]
        random.shuffle(batch)
        outputs = stage.step([*shipped(buffers, batch, numbered=numbered), *ticks(number)])
        for index, _ in new:
            missing[index] -= 1
            if not missing[index]:
                tracker.observe(buffers[index][0])
        arrived = [row for piece in new if (row := rows[piece]) is not None]
        said = model.step(arrived, tracker.current(), number)
        assert canonical(emitted(outputs, options.key)) == canonical(said.panes)
        assert {output.report.watermark for output in outputs} == {tracker.current()}
        repeats += sum(1 for piece in again if rows[piece] is not None)
        assert sum(output.report.totals["dropped_duplicate"] for output in outputs) == repeats
    assert not waiting
    outputs = stage.step(ticks(100, end=True))
    assert canonical(emitted(outputs, options.key)) == canonical(model.step([], END_OF_TIME, 100).panes)
    assert repeats > 0


def test_the_second_half_of_a_divided_buffer_is_not_a_duplicate() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    assert progress.advance([part(5, 3)], now=0).chunks == set()
    assert progress.watermark is None
    assert progress.advance([part(5, 2)], now=1).chunks == set()
    assert progress.duplicates == 0
    assert progress.watermark == 9


def test_why_names_the_chunk_whose_rows_are_missing() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([OriginChunk("a", 1, 1, True, 4, 0), part(5, 3, sequence=2)], now=0)
    why = progress.why()
    assert (why.reason, why.held_by, str(why.gap)) == (
        Reason.GAP,
        "origin 'a'",
        "gap at sequence 2 (chunks missing: 1)",
    )


def test_a_copy_of_a_complete_buffer_is_a_duplicate_whatever_part_of_it_arrives() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([part(5, 5)], now=0)
    assert progress.advance([part(5, 2)], now=1).chunks == {("a", 1, 1, True)}
    assert progress.duplicates == 1


def test_repeated_rows_of_an_incomplete_buffer_are_recognized_by_their_numbers() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([part(5, 0, (1, 3))], now=0)
    found = progress.advance([part(5, 0, (1, 4))], now=1)
    assert found.rows == {("a", 1, 1, True): ((1, 3),)}
    assert progress.watermark is None
    progress.advance([part(5, 0, (5, 5))], now=2)
    assert progress.watermark == 9


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [part(5, 3), part(5, 3)],
            "6 rows have arrived, but its header announces 5: some arrived twice; number",
        ),
        ([part(2, 0, (1, 3))], "3 rows have arrived, but its header announces 2; correct the number"),
        ([part(5, 3), part(6, 2)], "announces 6 rows, but 5 were announced before"),
        ([part(-1, 0)], "0 rows have arrived, but its header announces -1"),
    ],
)
def test_too_many_rows_stop_the_query(parts: list[OriginChunk], message: str) -> None:
    together, apart = (NumberedProgress(NumberedRules(), now=0) for _ in range(2))
    with pytest.raises(SequenceConflict, match=message):
        together.advance(parts, now=0)
    for one in parts[:-1]:
        apart.advance([one], now=0)
    with pytest.raises(SequenceConflict, match=message):
        apart.advance(parts[-1:], now=1)


def test_an_incomplete_buffer_survives_a_restart() -> None:
    rules = NumberedRules(idle_after=10)
    progress = NumberedProgress(rules, now=0)
    progress.advance([part(5, 1, (7, 8))], now=0)
    progress = NumberedProgress(rules, 0, progress.save())
    progress.advance([part(5, 0, (8, 10))], now=1, restarted=True)
    assert progress.watermark == 9


def test_a_part_of_a_buffer_keeps_its_origin_active_and_its_copy_does_not() -> None:
    progress = NumberedProgress(NumberedRules(idle_after=10), now=0)
    progress.advance([OriginChunk("b", 1, 1, True, 50, 0), part(5, 0, (1, 1))], now=0)
    progress.advance([part(5, 0, (1, 2))], now=5)
    progress.advance([OriginChunk("b", 2, 1, True, 60, 0), part(5, 0, (1, 2))], now=10)
    assert progress.watermark is None
    progress.advance([part(5, 0, (1, 2))], now=15)
    assert progress.watermark == 60, "a has sent nothing new for 10"


def test_a_header_alone_completes_a_buffer_of_no_rows() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([part(0)], now=0)
    assert progress.watermark == 9


def test_a_partial_buffer_of_version_2_loads() -> None:
    version_2 = (
        "024894c41d015493c29192a161960000c09390909080909491009100c290f22f08249192a161009198a1610101"
        "c30501919202030a92001eb989cfca"
    )
    rules = NumberedRules(origins=Discover(30))
    saved = NumberedProgress(rules, now=0)
    saved.advance([part(5, 1, (2, 3), watermark=10)], now=0)
    loaded = NumberedProgress(rules, 0, bytes.fromhex(version_2))
    assert loaded.save() == saved.save()


def test_state_without_partial_buffers_of_an_older_version_loads() -> None:
    loaded = NumberedProgress(NumberedRules(), 0, VERSION_1)
    assert loaded.watermark == 10
    assert loaded.advance([OriginChunk("a", 1, 1, True, 10, 0)], now=1).chunks == {("a", 1, 1, True)}


def sized(sequence: int, rows: int, times: int) -> OriginChunk:
    return OriginChunk("a", sequence, 1, True, 10 * sequence, 0, rows=rows, times=times)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("rows", "times"), [(3, 41), (2, 40), (7, 80), (0, 0)])
def test_other_rows_of_a_buffer_in_the_next_batch_stop_the_query(
    rows: int, times: int, restart: bool
) -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([sized(1, 9, 9), sized(2, 3, 40)], now=0)
    if restart:
        progress = NumberedProgress(NumberedRules(), 0, progress.save())
    with pytest.raises(SequenceConflict, match=r"sequence 2.*not a copy.*before 3\).*headers\(rows=…\)"):
        progress.advance([sized(2, rows, times), sized(3, 1, 1)], now=1)


def test_rows_after_a_header_without_rows_stop_the_query() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([sized(1, 0, 0)], now=0)
    with pytest.raises(SequenceConflict, match=r"not a copy .*now 2, before 0"):
        progress.advance([sized(1, 2, 8)], now=1)


def test_copies_are_dropped_also_several_and_also_of_buffers_that_are_not_remembered() -> None:
    progress = NumberedProgress(NumberedRules(), now=0)
    progress.advance([sized(1, 5, 1), sized(2, 5, 2), sized(3, 3, 40), sized(3, 3, 40)], now=0)
    again = [sized(1, 1, 99), sized(3, 3, 40)]
    assert progress.advance(again, now=1).chunks == {chunk.number for chunk in again}
    assert progress.advance([sized(3, 6, 80), sized(3, 6, 80)], now=2).chunks == {again[1].number}


def test_a_buffer_that_a_source_divides_without_announcing_its_rows_stops_the_query() -> None:
    options = Options(windows.Fixed(10), TRIGGER, ("count", "sum"))
    stage = Stage(OperatorPlan((NumberedRules(),), host(options)))
    rows: list[Row] = [{"key": "k", "ts": ts, "value": 1} for ts in (1, 2, 3, 4)]
    header = BufferHeader("a", 1, watermarks={"default": 5})
    shipper = Shipper(BUCKETS, 0, (), None, False, True, times=())
    frame = frame_of([(header, rows)], rows_are_numbered=False)
    stage.step([*shipper.buffers(frame[:2], 0, 0), *ticks(0)])
    with pytest.raises(SequenceConflict, match=r"not a copy .*now 2, before 2"):
        stage.step([*shipper.buffers(frame[2:], 0, 0), *ticks(1)])
