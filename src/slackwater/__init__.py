"""Event time that holds, on PySpark.

Slackwater answers one question everywhere in a data pipeline: how far are we, and what can
safely be emitted? Import it as ``sw``; every public name is here.
"""

from slackwater.errors import (
    AfterDone,
    AsyncItemFailed,
    CorruptState,
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
from slackwater.progress.stage import AsyncStage, Retry
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

__version__ = "0.1.0"

__all__ = [
    "BEGINNING_OF_TIME",
    "DEFAULT_KEY",
    "DONE",
    "END_OF_TIME",
    "IDLE",
    "AfterDone",
    "AsyncItemFailed",
    "AsyncStage",
    "BufferHeader",
    "Clock",
    "Coalescer",
    "Constant",
    "Control",
    "CorruptState",
    "EdgeEmission",
    "Explanation",
    "FixedDelay",
    "Gap",
    "InvalidArgument",
    "InvalidDuration",
    "InvalidInstant",
    "Kind",
    "Lag",
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
    "Reason",
    "Rechunker",
    "Retry",
    "SequenceConflict",
    "SlackwaterError",
    "StateError",
    "Ticket",
    "UnknownSource",
    "UnorderedResults",
    "UnsupportedStateVersion",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkRegression",
    "clock",
    "constant",
    "duration",
    "fixed_delay",
    "format_duration",
    "format_instant",
    "instant",
    "lag",
    "to_datetime",
]
