"""Rows per second of the time-bounded join, in one process on one core.

Two streams, each a little out of order. The peer is a plain join of everything at once, hash join on
key and bucket of time; both must give the same rows before anything is timed. The second part grows
the buffers with rows that a batch cannot match: the time of a batch must not follow.
"""

from __future__ import annotations

import statistics
import time

import polars as pl

from benchmarks.report import Report, record, timed
from slackwater.time import END_OF_TIME, SECOND, format_duration
from slackwater.windows.engine.join_operator import JoinOperator
from slackwater.windows.spec.join_spec import JoinHow, JoinSpec

SCHEMA = {"key": pl.Int64, "ts": pl.Int64, "amount": pl.Int64}
DISORDER = SECOND
ROWS = 2_500_000
BATCH = 250_000
GROWTH_BATCH = 50_000
FLAT = 1.3
"""With millions of buffered rows that cannot match, a batch may cost at most this many times as much."""
SCENARIOS: tuple[tuple[JoinHow, int, int], ...] = (
    ("inner", 1_000, 10_000),
    ("inner", 200_000, 2 * SECOND),
    ("full", 1_000, 10_000),
    ("full", 200_000, 2 * SECOND),
    ("inner", 10, 1_000),
)
"""How to join, number of keys, width of the time range in microseconds."""


def stream(rows: int, keys: int, span: int, seed: int) -> pl.DataFrame:
    """Rows over ``span`` microseconds, roughly in order of time."""
    ordered = pl.int_range(rows, eager=True) * span // rows
    noise = pl.int_range(rows, eager=True).shuffle(seed) % DISORDER
    key = pl.int_range(rows, eager=True).shuffle(seed + 1) % keys
    return pl.DataFrame({"key": key, "ts": ordered - noise, "amount": noise}, schema=SCHEMA)


def join_all(join: JoinSpec, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Join all rows with the operator, in batches, each followed by watermarks."""
    operator = JoinOperator(join, left=SCHEMA, right=SCHEMA)
    state = operator.initial_state()
    output = []
    for here, there in zip(left.iter_slices(BATCH), right.iter_slices(BATCH), strict=True):
        mark = watermark(here)
        state, result = operator.step(state, here, there, {"left": mark, "right": mark})
        output.append(result.rows)
    state, result = operator.step(state, watermarks={"left": END_OF_TIME, "right": END_OF_TIME})
    return pl.concat([*output, result.rows])


def watermark(batch: pl.DataFrame) -> int:
    """The watermark after a batch: above most of its rows, below all later rows."""
    return int(batch["ts"].max()) - 2 * DISORDER  # type: ignore[arg-type]  # integers


def expected(join: JoinSpec, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """The same join in plain Polars: hash join on key and time bucket, filter, then the unmatched rows."""
    width = join.before + join.after + 1
    low, high = pl.col("ts") - join.before, pl.col("ts") + join.after
    numbered = left.with_row_index("row")
    probes = pl.concat(
        [
            numbered.with_columns(bucket=low // width),
            numbered.filter(low // width != high // width).with_columns(bucket=high // width),
        ]
    )
    offered = right.with_row_index("row").with_columns(bucket=pl.col("ts") // width)
    inside = pl.col("ts_right").is_between(low, high)
    pairs = probes.join(offered, on=["key", "bucket"], suffix="_right").filter(inside)
    names = {"ts": "ts_left", "amount": "amount_left"}
    parts = [pairs.rename(names)]
    if join.pads("left"):
        parts.append(numbered.join(pairs, on="row", how="anti").rename(names))
    if join.pads("right"):
        alone = offered.join(pairs, left_on="row", right_on="row_right", how="anti")
        parts.append(alone.rename({"ts": "ts_right", "amount": "amount_right"}))
    columns = ["key", "ts_left", "amount_left", "ts_right", "amount_right"]
    return pl.concat(parts, how="diagonal").select(columns)


def same_rows(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether two frames have the same rows, in any order."""
    columns = one.columns
    return one.sort(columns).equals(other.select(columns).sort(columns))


def run(report: Report) -> None:
    """Both sections."""
    _throughput(report)
    _growth(report)


def _throughput(report: Report) -> None:
    section = report.section(
        "Time-bounded join: throughput",
        f"{ROWS:,} rows on each side, 100,000 per second and side, in batches of {BATCH:,} per side. "
        "Input rows of both sides per second, compared with a plain join of all rows at once.",
        ["join", "keys", "reach", "rows out", "operator rows/s", "plain join rows/s"],
    )
    for how, keys, reach in SCENARIOS:
        left, right = (stream(ROWS, keys, ROWS * 10, seed) for seed in (1, 7))
        join = JoinSpec(on=("key",), before=0, after=reach, how=how)
        output = join_all(join, left, right)
        if not same_rows(output, expected(join, left, right)):
            raise AssertionError(f"{join}: the operator and the plain join differ")
        operator = timed(lambda: join_all(join, left, right))  # noqa: B023  # called at once
        plain = timed(lambda: expected(join, left, right), runs=3)  # noqa: B023  # called at once
        section.row(
            how,
            keys,
            format_duration(reach),
            output.height,
            round(2 * ROWS / operator.undisturbed),
            round(2 * ROWS / plain.undisturbed),
        )
    report.show(section)


def _growth(report: Report) -> None:
    section = report.section(
        "Time-bounded join: buffered rows out of reach",
        f"Milliseconds for a batch of {GROWTH_BATCH:,} rows per side, while rows far ahead in time are "
        "buffered.",
        ["buffered rows on each side", "ms per batch"],
    )
    costs = {waiting: _batch_milliseconds(waiting) for waiting in (0, 500_000, 2_000_000)}
    for waiting, cost in costs.items():
        section.row(waiting, f"{cost:.1f}")
    ratio = costs[2_000_000] / costs[0]
    flat = "flat" if ratio <= FLAT else "NOT flat"
    section.verdict(
        f"{flat}: with 2,000,000 buffered rows a batch takes {ratio:.2f} times as long as with none"
    )
    report.show(section)


def _batch_milliseconds(waiting: int) -> float:
    """The median time of a batch while each buffer has ``waiting`` much later rows."""
    join = JoinSpec(on=("key",), before=0, after=SECOND, how="full")
    operator = JoinOperator(join, left=SCHEMA, right=SCHEMA)
    state = operator.initial_state()
    if waiting:
        ahead = stream(waiting, 1_000, waiting * 10, seed=3).with_columns(pl.col("ts") + 10**15)
        state, _ = operator.step(state, ahead, ahead.with_columns(key=pl.col("key") + 10**6))
    left, right = (stream(20 * GROWTH_BATCH, 100_000, 200 * GROWTH_BATCH, seed) for seed in (1, 7))
    times = []
    for here, there in zip(left.iter_slices(GROWTH_BATCH), right.iter_slices(GROWTH_BATCH), strict=True):
        mark = watermark(here)
        start = time.process_time()
        state, _ = operator.step(state, here, there, {"left": mark, "right": mark})
        times.append(time.process_time() - start)
    record(times)
    return statistics.median(times) * 1000
