"""Testing pipelines without Spark: scripted streams, a manual clock, tables as test data."""

from slackwater.testing.clock import ManualClock
from slackwater.testing.run import JoinRun, Step, WindowRun
from slackwater.testing.stream import TestStream
from slackwater.testing.table import T, assert_rows, table

__all__ = ["JoinRun", "ManualClock", "Step", "T", "TestStream", "WindowRun", "assert_rows", "table"]
