"""What a sink states after a batch, in buckets without Spark: never more than what it has been given."""

from __future__ import annotations

from random import Random

import pytest

from slackwater import windows
from slackwater.progress.completeness import Completeness
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.sink_progress import BucketProgress, CompletenessClaim
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.time import END_OF_TIME
from tests.model.windows import Pane
from tests.support.sampling import sampled
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import (
    BUCKETS,
    Stage,
    emitted,
    host,
    random_batches,
    rows_frame,
    shipped,
    ticks,
)

EARLY_AND_LATE = windows.after_watermark(early=windows.every(count=2), late=windows.every(count=1))
PIPELINES = {
    "fixed": Options(windows.Fixed(10), allowed_lateness=7),
    "fixed, retracting": Options(
        windows.Fixed(10), EARLY_AND_LATE, mode="accumulating_and_retracting", allowed_lateness=7
    ),
    "sessions, retracting": Options(
        windows.Sessions(4), EARLY_AND_LATE, mode="accumulating_and_retracting", allowed_lateness=9
    ),
    "sliding": Options(windows.Sliding(12, 4), allowed_lateness=0),
}


def stated(outputs: list[BucketOutput], lateness: int | None) -> Completeness:
    claim = CompletenessClaim(BUCKETS, "default", lateness)
    return claim.stated(BucketProgress(one.report.bucket, one.report.forwarded) for one in outputs)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("seed", sampled(range(5), keep=range(5), check=[0]))
def test_no_batch_states_more_than_what_was_emitted(name: str, seed: int) -> None:
    options = PIPELINES[name]
    stage = Stage(OperatorPlan((SourceRules(Lag(5)),), host(options)))
    steps: list[tuple[Completeness, list[Pane]]] = []
    for now, rows in enumerate(random_batches(Random(seed), count=14)):
        buffers = shipped(rows_frame(rows)) if rows else []
        outputs = stage.step([*buffers, *ticks(now)])
        steps.append((stated(outputs, options.allowed_lateness), emitted(outputs, ("key",))))
    outputs = stage.step(ticks(99, end=True))
    steps.append((stated(outputs, options.allowed_lateness), emitted(outputs, ("key",))))
    assert steps[-1][0] == Completeness(END_OF_TIME, END_OF_TIME)
    known = [one.complete_until for one, _ in steps if one.complete_until is not None]
    assert known == sorted(known)
    assert len(set(known)) > 3
    for number, (now_stated, _) in enumerate(steps):
        for pane in (pane for _, panes in steps[number + 1 :] for pane in panes):
            if now_stated.final_until is not None:
                assert pane.end > now_stated.final_until, "a final result has changed"
            if now_stated.complete_until is not None and pane.end <= now_stated.complete_until:
                assert pane.retraction or pane.timing == "LATE", "a result was missing"


def test_nothing_is_stated_before_the_first_watermark_of_every_bucket() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(5)),), host(PIPELINES["fixed"])))
    assert stated(stage.step(ticks(0)), 7) == Completeness()
    outputs = stage.step([*shipped(rows_frame([{"key": "a", "ts": 30, "value": 1}])), *ticks(1)])
    assert stated(outputs, 7) == Completeness(25, 18)
    assert stated(outputs[1:], 7) == Completeness(), "the report of a bucket is missing"
    assert stated(stage.step(ticks(2)), 7) == Completeness(25, 18), "also if nothing has advanced"
