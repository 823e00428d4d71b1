"""Test pipelines without Spark: scripted streams and watermarks, a manual clock, and text tables."""

from slackwater.testing.manual_clock import ManualClock
from slackwater.testing.pipeline_run import PipelineRun, PipelineStep
from slackwater.testing.scripted_progress import ProgressRun, TestProgress
from slackwater.testing.scripted_run import (
    DeduplicateRun,
    JoinRun,
    Leftovers,
    Step,
    WindowRun,
    assert_cleaned_up,
)
from slackwater.testing.scripted_stream import TestStream
from slackwater.testing.text_table import T, assert_rows, table

__all__ = [
    "DeduplicateRun",
    "JoinRun",
    "Leftovers",
    "ManualClock",
    "PipelineRun",
    "PipelineStep",
    "ProgressRun",
    "Step",
    "T",
    "TestProgress",
    "TestStream",
    "WindowRun",
    "assert_cleaned_up",
    "assert_rows",
    "table",
]
