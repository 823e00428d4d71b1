"""Test pipelines without Spark: scripted streams, a manual clock, and text tables as test data."""

from slackwater.testing.manual_clock import ManualClock
from slackwater.testing.scripted_run import JoinRun, Step, WindowRun
from slackwater.testing.scripted_stream import TestStream
from slackwater.testing.text_table import T, assert_rows, table

__all__ = ["JoinRun", "ManualClock", "Step", "T", "TestStream", "WindowRun", "assert_rows", "table"]
