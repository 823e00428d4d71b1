"""Deduplication equals a model that compares each row with every kept row, for any batching."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.time import END_OF_TIME
from slackwater.windows.engine.deduplicate_operator import DeduplicateOperator, first_within
from slackwater.windows.spec.deduplicate_spec import DeduplicateSpec

SCHEMA = {"key": pl.String, "line": pl.Int64, "ts": pl.Int64, "name": pl.String}

keys = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, None]))
batches = st.tuples(st.lists(st.tuples(st.integers(-5, 40), keys), max_size=8), st.integers(0, 9))


@given(
    st.sampled_from((0, 1, 4, 20)),
    st.sampled_from((0, 6)),
    st.sampled_from((1, 3, 1000)),
    st.lists(batches, max_size=12),
)
def test_kept_rows_equal_the_model_with_a_restart_after_every_step(
    within: int,
    lateness: int,
    chunk_rows: int,
    steps: list[tuple[list[tuple[int, tuple[str | None, int | None]]], int]],
) -> None:
    spec = DeduplicateSpec(on=("key", "line"), within=within, lateness=lateness, late="emit")
    operator = DeduplicateOperator(spec, schema=SCHEMA, chunk_rows=chunk_rows)
    blobs: dict[str, bytes] = {}
    state = operator.initial_state(blobs)
    kept: list[tuple[int, tuple[str | None, int | None]]] = []
    watermark = -5
    known = None
    total = 0
    for number, (arrived, move) in enumerate(steps):
        values = [(*key, ts, f"{number}.{n}") for n, (ts, key) in enumerate(arrived)]
        late, passed = [], []
        for n, (ts, key) in sorted(enumerate(arrived), key=lambda row: (row[1][0], row[0])):
            if known is not None and ts < known - lateness:
                late.append(f"{number}.{n}")
            elif not any(key == other and abs(ts - at) <= within for at, other in kept):
                kept.append((ts, key))
                passed.append(f"{number}.{n}")
            else:
                total += 1
        watermark += move
        known = watermark
        state, output = operator.step(
            state, pl.DataFrame(values, schema=SCHEMA, orient="row"), {"default": watermark}
        )
        state = operator.load(operator.save(state), blobs)
        assert sorted(output.rows["name"]) == sorted(passed)
        assert output.late is not None
        assert sorted(output.late["name"]) == sorted(late)
        assert state.duplicates == total
        assert operator.buffer_size(state).rows >= sum(at >= watermark - lateness - within for at, _ in kept)
    state, _ = operator.step(state, watermarks={"default": END_OF_TIME})
    assert blobs == {}


retracting_batches = st.tuples(batches, st.lists(st.integers(0, 200), max_size=4))


@given(
    st.sampled_from((0, 1, 4, 20)),
    st.sampled_from((0, 6)),
    st.sampled_from((1, 3, 1000)),
    st.lists(retracting_batches, max_size=12),
)
def test_retractions_fold_to_one_batch_of_the_remaining_rows_after_every_step(
    within: int,
    lateness: int,
    chunk_rows: int,
    steps: list[tuple[tuple[list[tuple[int, tuple[str | None, int | None]]], int], list[int]]],
) -> None:
    """Each step retracts rows that were accepted before, or in the same step."""
    spec = DeduplicateSpec(
        on=("key", "line"),
        within=within,
        lateness=lateness,
        late="emit",
        retractions="back",
        further_keys=("second",),
        further_times=("other",),
    )
    schema = {**SCHEMA, "other": pl.Int64, "back": pl.Boolean}
    operator = DeduplicateOperator(spec, schema=schema, chunk_rows=chunk_rows)
    blobs: dict[str, bytes] = {}
    state = operator.initial_state(blobs)
    live: list[tuple[str | None, int | None, int, str, int]] = []
    folded: Counter[str] = Counter()
    forwarded = watermark = -5
    for number, ((arrived, move), picks) in enumerate(steps):
        values = [(*key, ts, f"{number}.{n}", max(watermark, ts)) for n, (ts, key) in enumerate(arrived)]
        live += values
        retracted = [live[index] for index in sorted({pick % len(live) for pick in picks if live})]
        rows = [(*row, False) for row in values] + [(*row, True) for row in retracted]
        watermark += move
        state, output = operator.step(
            state,
            pl.DataFrame(rows, schema=schema, orient="row"),
            {"default": watermark, "second": watermark},
        )
        state = operator.load(operator.save(state), blobs)
        assert output.late is not None
        late = set(output.late.select("name", "back").rows())
        gone = {row[3] for row in retracted} - {name for name, back in late if back}
        gone |= {name for name, back in late if not back}
        live = [row for row in live if row[3] not in gone]
        for row in output.rows.rows(named=True):
            folded[row["name"]] += -1 if row["back"] else 1
            assert row["other"] >= forwarded
        forwarded = output.watermarks.get("second", forwarded)
        kept: dict[tuple[str | None, int | None], int] = {}
        expected: Counter[str] = Counter()
        for key, line, ts, name, _ in sorted(live, key=lambda row: row[2]):
            if (key, line) not in kept or ts - kept[key, line] > within:
                kept[key, line] = ts
                expected[name] += 1
        assert {name: count for name, count in folded.items() if count} == expected
        assert state.duplicates == len(live) - len(expected)
        assert min(output.duplicates, output.restored) >= 0
    state, _ = operator.step(state, watermarks={"default": END_OF_TIME})
    assert blobs == {}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=40),
    st.integers(0, 12),
)
@settings(max_examples=2 * settings().max_examples)
def test_rows_of_one_batch_are_kept_in_order_of_time(rows: list[tuple[int, int]], within: int) -> None:
    last: dict[int, int] = {}
    kept = []
    for number, (code, time) in sorted(enumerate(rows), key=lambda row: (row[1][1], row[0])):
        if code not in last or time - last[code] > within:
            last[code] = time
            kept.append(number)
    codes, times = (pl.Series([row[index] for row in rows], dtype=pl.Int64) for index in (0, 1))
    assert sorted(first_within(codes, times, within)) == sorted(kept)
