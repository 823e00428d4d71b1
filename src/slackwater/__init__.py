"""Event time that holds, on PySpark.

Slackwater answers one question everywhere in a data pipeline: how far are we, and what can
safely be emitted? Import it as ``sw``; every public name is here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from slackwater.errors import (
    AfterDone,
    AfterEnd,
    AsyncItemFailed,
    CorruptState,
    FunctionFailed,
    InvalidArgument,
    InvalidDuration,
    InvalidInstant,
    ProgressError,
    SequenceConflict,
    SlackwaterError,
    StateError,
    UnknownSource,
    UnsupportedStateVersion,
    WatermarkRegression,
)
from slackwater.progress.coalescer import Coalescer, EdgeEmission, OperatorCoalescer, OperatorEmissions
from slackwater.progress.explanation import Explanation, Gap, Reason
from slackwater.progress.generator import (
    Clock,
    Constant,
    FixedDelay,
    Lag,
    WatermarkGenerator,
    clock,
    constant,
    fixed_delay,
    lag,
)
from slackwater.progress.numbering import OutputNumbering, Rechunker
from slackwater.progress.ordering import OrderedResults, Ticket, UnorderedResults
from slackwater.progress.plan import Kind, PipelinePlan, PlanNode
from slackwater.progress.tracker import Observed, ProgressTracker
from slackwater.progress.values import DEFAULT_KEY, DONE, IDLE, BufferHeader, Control, Watermark
from slackwater.time import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    Range,
    duration,
    format_duration,
    format_instant,
    instant,
    to_datetime,
)

if TYPE_CHECKING:
    from slackwater.progress.stage import AsyncStage, Retry
    from slackwater.spark.api.stream import stream
    from slackwater.spark.api.stream_options import headers, ingestion_time
    from slackwater.spark.api.upsert import upsert_once, upsert_to
    from slackwater.spark.monitor.reports import why
    from slackwater.spark.monitor.telemetry import telemetry
    from slackwater.spark.session import SlowSession, session
    from slackwater.streams.log.catalog import Streams
    from slackwater.streams.log.reader_group import ReaderGroup
    from slackwater.streams.log.transactions import TransactionalWriter
    from slackwater.streams.log.writer import Writer
    from slackwater.streams.maintenance.controller import Controller
    from slackwater.streams.maintenance.retention import Retention
    from slackwater.streams.maintenance.scaling import ScalingPolicy
    from slackwater.streams.settings import StreamSettings
    from slackwater.streams.spark.stream_event_time import read_stream, stream_headers
    from slackwater.streams.time.marks import MarkSettings, NoteResult
    from slackwater.windows import (
        Accumulation,
        JoinOperator,
        MergeOperator,
        TimeBoundedJoin,
        WindowedOperator,
        after_all,
        after_any,
        after_count,
        after_each,
        after_processing_time,
        after_watermark,
        all,
        always,
        any,
        approx_count_distinct,
        approx_quantile,
        calendar,
        collect,
        collect_set,
        count,
        every,
        first,
        fixed,
        fold,
        global_window,
        inherited,
        last,
        max,
        mean,
        min,
        never,
        or_finally,
        reduce,
        repeatedly,
        sessions,
        sliding,
        sort,
        stddev,
        sum,
        time_bounded_join,
        top_n,
        top_n_by_key,
        variance,
    )

__version__ = "0.1.0"

_LATER = {
    "AsyncStage": "slackwater.progress.stage",
    "Retry": "slackwater.progress.stage",
    "SlowSession": "slackwater.spark.session",
    "headers": "slackwater.spark.api.stream_options",
    "ingestion_time": "slackwater.spark.api.stream_options",
    "session": "slackwater.spark.session",
    "stream": "slackwater.spark.api.stream",
    "telemetry": "slackwater.spark.monitor.telemetry",
    "upsert_once": "slackwater.spark.api.upsert",
    "upsert_to": "slackwater.spark.api.upsert",
    "why": "slackwater.spark.monitor.reports",
    "Controller": "slackwater.streams.maintenance.controller",
    "MarkSettings": "slackwater.streams.time.marks",
    "NoteResult": "slackwater.streams.time.marks",
    "ReaderGroup": "slackwater.streams.log.reader_group",
    "Retention": "slackwater.streams.maintenance.retention",
    "ScalingPolicy": "slackwater.streams.maintenance.scaling",
    "StreamSettings": "slackwater.streams.settings",
    "Streams": "slackwater.streams.log.catalog",
    "TransactionalWriter": "slackwater.streams.log.transactions",
    "Writer": "slackwater.streams.log.writer",
    "read_stream": "slackwater.streams.spark.stream_event_time",
    "stream_headers": "slackwater.streams.spark.stream_event_time",
}


def __getattr__(name: str) -> object:
    """What needs much else is imported when it is first used: Spark starts processes that need little."""
    if name not in __all__:
        raise AttributeError(f"module 'slackwater' has no attribute {name!r}")
    return getattr(import_module(_LATER.get(name, "slackwater.windows")), name)


__all__ = [
    "BEGINNING_OF_TIME",
    "DEFAULT_KEY",
    "DONE",
    "END_OF_TIME",
    "IDLE",
    "Accumulation",
    "AfterDone",
    "AfterEnd",
    "AsyncItemFailed",
    "AsyncStage",
    "BufferHeader",
    "Clock",
    "Coalescer",
    "Constant",
    "Control",
    "Controller",
    "CorruptState",
    "EdgeEmission",
    "Explanation",
    "FixedDelay",
    "FunctionFailed",
    "Gap",
    "InvalidArgument",
    "InvalidDuration",
    "InvalidInstant",
    "JoinOperator",
    "Kind",
    "Lag",
    "MarkSettings",
    "MergeOperator",
    "NoteResult",
    "Observed",
    "OperatorCoalescer",
    "OperatorEmissions",
    "OrderedResults",
    "OutputNumbering",
    "PipelinePlan",
    "PlanNode",
    "ProgressError",
    "ProgressTracker",
    "Range",
    "ReaderGroup",
    "Reason",
    "Rechunker",
    "Retention",
    "Retry",
    "ScalingPolicy",
    "SequenceConflict",
    "SlackwaterError",
    "SlowSession",
    "StateError",
    "StreamSettings",
    "Streams",
    "Ticket",
    "TimeBoundedJoin",
    "TransactionalWriter",
    "UnknownSource",
    "UnorderedResults",
    "UnsupportedStateVersion",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkRegression",
    "WindowedOperator",
    "Writer",
    "after_all",
    "after_any",
    "after_count",
    "after_each",
    "after_processing_time",
    "after_watermark",
    "all",
    "always",
    "any",
    "approx_count_distinct",
    "approx_quantile",
    "calendar",
    "clock",
    "collect",
    "collect_set",
    "constant",
    "count",
    "duration",
    "every",
    "first",
    "fixed",
    "fixed_delay",
    "fold",
    "format_duration",
    "format_instant",
    "global_window",
    "headers",
    "ingestion_time",
    "inherited",
    "instant",
    "lag",
    "last",
    "max",
    "mean",
    "min",
    "never",
    "or_finally",
    "read_stream",
    "reduce",
    "repeatedly",
    "session",
    "sessions",
    "sliding",
    "sort",
    "stddev",
    "stream",
    "stream_headers",
    "sum",
    "telemetry",
    "time_bounded_join",
    "to_datetime",
    "top_n",
    "top_n_by_key",
    "upsert_once",
    "upsert_to",
    "variance",
    "why",
]
