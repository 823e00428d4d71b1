"""Trigger transcripts on Spark: each action is a micro-batch, and watermarks come from headers.

A sample of the conformance cases of every kind; the conformance suite compares panes with the expected ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.stream_options import headers
from slackwater.spark.monitor.reports import reported
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import END_OF_TIME, SECOND
from tests.conformance.framework import Case
from tests.conformance.loading import TRANSCRIPTS, shipped_cases
from tests.conformance.suites import transcripts
from tests.model.windows import Row
from tests.spark.running import Batch, Scenario, collector, panes_of, run_available, write
from tests.support.windowed import Observed, Options

pytestmark = pytest.mark.spark

CASES: dict[str, Case] = {
    str(test.case["id"]): test.case
    for test in shipped_cases().tests
    if test.case is not None and test.suite is not None and test.suite.name == TRANSCRIPTS
}
SAMPLE = (
    "apex_early_time_retracting",
    "apex_unchanged_pane_only_updated_retracting",
    "apex_session_extend_and_merge_retracting",
    "apex_drop_by_element",
    "apex_late_count_counts_late_elements",
    "apex_session_late_extension_of_a_complete_session",
    "java_or_finally_watermark_final_and_on_time",
    "java_late_element_flushed_at_gc",
    "java_drop_data_for_finished_windows_only",
    "java_processing_time_trigger_first_element_delay",
    "early_late_sessions",
    "discarding_early_fixed",
    "garbage_collection",
    "rule_sliding_gaps",
    "rule_global_completes_at_the_end_of_input",
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("at", pa.int64()),
        ("value", pa.int64()),
        ("number", pa.int64()),
        ("complete", pa.int64()),
        ("bare", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Transcript(Scenario):
    """A case with times in microseconds, each of its actions a numbered buffer."""

    schema: pa.Schema = SCHEMA

    def stream(self, df: DataFrame, times: Sequence[int]) -> Stream:
        moments = df.selectExpr(
            "* except (at, complete)",
            "'transcript' as origin",
            "timestamp_micros(at) as at",
            "timestamp_micros(complete) as complete",
        )
        header_columns = headers(origin="origin", sequence="number", watermark="complete", empty="bare")
        return stream(moments, event_time="at", headers=header_columns, clock=Ticks(tuple(times)))


@dataclass
class Played:
    """The results of Spark, one step at a time."""

    observed: list[Observed]

    def step(self, rows: Sequence[Row], watermark: int | None, now: int) -> Observed:
        return self.observed.pop(0)


def played(spark: SparkSession, case: Case, options: Options, folder: Path) -> Played:
    """Run all steps of a case as micro-batches of one query."""
    assert options.timestamp == "end_of_window", "panes on Spark do not tell another timestamp"
    steps = transcripts.steps_of(case)
    for number, (rows, watermark, _) in enumerate(steps):
        header = number + 1, watermark
        listed = [(row["key"], row["ts"], row["value"], *header, False) for row in rows]
        write(folder / "in", number, Batch(listed or [(None, None, None, *header, True)], 0, None), SCHEMA)
    schema = spark.read.parquet(str(folder / "in")).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    panes = Transcript(options, []).build(df, [clock for _, _, clock in steps])
    collected: dict[int, list[SparkRow]] = {}
    query = run_available(panes.to_df(), folder / "checkpoint", collector(collected))
    reports = {progress.batchId: reported(progress) for progress in query.recentProgress}
    assert sorted(collected) == list(range(len(steps)))
    observed: list[Observed] = []
    late_before = closed_before = 0
    for number in range(len(steps)):
        report = reports[number]
        assert report is not None
        totals = report.operators[0].totals
        found = [replace(pane, timestamp=pane.end - 1) for pane in panes_of(collected[number], options)]
        late, closed = totals["dropped_late"], totals["dropped_closed"]
        observed.append(Observed(tuple(found), late - late_before, closed - closed_before))
        late_before, closed_before = late, closed
    return Played(observed)


@pytest.mark.proof
@pytest.mark.parametrize("name", SAMPLE)
def test_a_transcript_through_spark(spark: SparkSession, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    transcripts.run(case, lambda options: played(spark, case, options, tmp_path))


def test_the_sample_has_every_kind() -> None:
    options = [transcripts.options_of(CASES[name]) for name in SAMPLE]
    assert {option.mode for option in options} == {
        "discarding", "accumulating", "accumulating_and_retracting"
    }  # fmt: skip
    assert {type(option.window).__name__ for option in options} == {"Fixed", "Sliding", "Sessions", "Global"}
    steps = [step for name in SAMPLE for step in transcripts.steps_of(CASES[name])]
    assert any(clock > 0 for _, _, clock in steps)
    assert any(watermark == END_OF_TIME for _, watermark, _ in steps)
    assert max(clock for _, _, clock in steps) < SECOND
