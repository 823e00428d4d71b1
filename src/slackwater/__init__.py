"""Event time that holds, on PySpark.

Slackwater answers one question everywhere in a data pipeline: how far are we, and what can
safely be emitted? Import it as ``sw``; every public name is here.

A name is imported when it is first used: a Spark worker that needs one module of this package
does not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater._lazy_exports import lazy_exports

__version__ = "0.1.0"

if TYPE_CHECKING:
    from slackwater.errors import AfterDone as AfterDone
    from slackwater.errors import AfterEnd as AfterEnd
    from slackwater.errors import AsyncItemFailed as AsyncItemFailed
    from slackwater.errors import CorruptState as CorruptState
    from slackwater.errors import FunctionFailed as FunctionFailed
    from slackwater.errors import IncompatibleState as IncompatibleState
    from slackwater.errors import InvalidArgument as InvalidArgument
    from slackwater.errors import InvalidDuration as InvalidDuration
    from slackwater.errors import InvalidInstant as InvalidInstant
    from slackwater.errors import MissingExtra as MissingExtra
    from slackwater.errors import NeedsNewerSpark as NeedsNewerSpark
    from slackwater.errors import ProgressError as ProgressError
    from slackwater.errors import SequenceConflict as SequenceConflict
    from slackwater.errors import SlackwaterError as SlackwaterError
    from slackwater.errors import StateError as StateError
    from slackwater.errors import SumOverflow as SumOverflow
    from slackwater.errors import UnknownSource as UnknownSource
    from slackwater.errors import UnsupportedStateVersion as UnsupportedStateVersion
    from slackwater.errors import WatermarkRegression as WatermarkRegression
    from slackwater.lineage.query_lineage import QueryLineage as QueryLineage
    from slackwater.lineage.query_lineage import send_lineage as send_lineage
    from slackwater.monitoring.advice import Advice as Advice
    from slackwater.monitoring.monitor import Monitor as Monitor
    from slackwater.monitoring.monitor import open_monitor as open_monitor
    from slackwater.progress.async_stage import AsyncStage as AsyncStage
    from slackwater.progress.async_stage import Retry as Retry
    from slackwater.progress.coalescer import Coalescer as Coalescer
    from slackwater.progress.coalescer import EdgeEmission as EdgeEmission
    from slackwater.progress.coalescer import OperatorCoalescer as OperatorCoalescer
    from slackwater.progress.coalescer import OperatorEmissions as OperatorEmissions
    from slackwater.progress.discovery import Discover as Discover
    from slackwater.progress.discovery import discover as discover
    from slackwater.progress.explanation import Explanation as Explanation
    from slackwater.progress.explanation import Gap as Gap
    from slackwater.progress.explanation import Reason as Reason
    from slackwater.progress.generator import WatermarkGenerator as WatermarkGenerator
    from slackwater.progress.numbering import OutputNumbering as OutputNumbering
    from slackwater.progress.numbering import Rechunker as Rechunker
    from slackwater.progress.ordering import OrderedResults as OrderedResults
    from slackwater.progress.ordering import Ticket as Ticket
    from slackwater.progress.ordering import UnorderedResults as UnorderedResults
    from slackwater.progress.pipeline_plan import Kind as Kind
    from slackwater.progress.pipeline_plan import PipelinePlan as PipelinePlan
    from slackwater.progress.pipeline_plan import PlanNode as PlanNode
    from slackwater.progress.tracker import Observed as Observed
    from slackwater.progress.tracker import ProgressTracker as ProgressTracker
    from slackwater.progress.values import DEFAULT_KEY as DEFAULT_KEY
    from slackwater.progress.values import DONE as DONE
    from slackwater.progress.values import IDLE as IDLE
    from slackwater.progress.values import BufferHeader as BufferHeader
    from slackwater.progress.values import Control as Control
    from slackwater.progress.values import Watermark as Watermark
    from slackwater.progress.watermark_policies import Clock as Clock
    from slackwater.progress.watermark_policies import Constant as Constant
    from slackwater.progress.watermark_policies import FixedDelay as FixedDelay
    from slackwater.progress.watermark_policies import Lag as Lag
    from slackwater.progress.watermark_policies import LagLikeSpark as LagLikeSpark
    from slackwater.progress.watermark_policies import LagThenClock as LagThenClock
    from slackwater.progress.watermark_policies import Learned as Learned
    from slackwater.progress.watermark_policies import clock as clock
    from slackwater.progress.watermark_policies import constant as constant
    from slackwater.progress.watermark_policies import fixed_delay as fixed_delay
    from slackwater.progress.watermark_policies import lag as lag
    from slackwater.progress.watermark_policies import learned as learned
    from slackwater.spark.api.declared import declared as declared
    from slackwater.spark.api.kafka import from_kafka as from_kafka
    from slackwater.spark.api.stream import stream as stream
    from slackwater.spark.api.stream_history import history as history
    from slackwater.spark.api.stream_options import headers as headers
    from slackwater.spark.api.stream_options import ingestion_time as ingestion_time
    from slackwater.spark.api.upsert import upsert_once as upsert_once
    from slackwater.spark.api.upsert import upsert_to as upsert_to
    from slackwater.spark.checkpoint.state_reader import state as state
    from slackwater.spark.monitor.advise import advise as advise
    from slackwater.spark.monitor.reports import BucketReport as BucketReport
    from slackwater.spark.monitor.reports import InputReport as InputReport
    from slackwater.spark.monitor.reports import KeyReport as KeyReport
    from slackwater.spark.monitor.reports import OperatorReport as OperatorReport
    from slackwater.spark.monitor.reports import QueryReport as QueryReport
    from slackwater.spark.monitor.reports import why as why
    from slackwater.spark.monitor.telemetry import BatchReport as BatchReport
    from slackwater.spark.monitor.telemetry import QueryHistory as QueryHistory
    from slackwater.spark.monitor.telemetry import Telemetry as Telemetry
    from slackwater.spark.monitor.telemetry import telemetry as telemetry
    from slackwater.spark.session import SlowSession as SlowSession
    from slackwater.spark.session import session as session
    from slackwater.spark.session import settings as settings
    from slackwater.spark.wire.clock_source import Ticks as Ticks
    from slackwater.sql.commit_owner import IdentityInUse as IdentityInUse
    from slackwater.sql.dead_letters import RowsRejected as RowsRejected
    from slackwater.sql.dead_letters import dead_letters as dead_letters
    from slackwater.streams.log.catalog import Streams as Streams
    from slackwater.streams.log.reader_group import ReaderGroup as ReaderGroup
    from slackwater.streams.log.transactions import TransactionalWriter as TransactionalWriter
    from slackwater.streams.log.writer import Batching as Batching
    from slackwater.streams.log.writer import Writer as Writer
    from slackwater.streams.maintenance.controller import Controller as Controller
    from slackwater.streams.settings import MarkSettings as MarkSettings
    from slackwater.streams.settings import Retention as Retention
    from slackwater.streams.settings import ScalingPolicy as ScalingPolicy
    from slackwater.streams.settings import StreamSettings as StreamSettings
    from slackwater.streams.spark.stream_event_time import read_stream as read_stream
    from slackwater.streams.spark.stream_event_time import stream_headers as stream_headers
    from slackwater.streams.spark.stream_output import write_stream as write_stream
    from slackwater.streams.time.notes import NoteResult as NoteResult
    from slackwater.table_progress.completeness_reader import complete_until as complete_until
    from slackwater.table_progress.replaced_results import replace_results as replace_results
    from slackwater.table_progress.table_watermark import completeness as completeness
    from slackwater.table_progress.waiting import WaitResult as WaitResult
    from slackwater.table_progress.waiting import wait_until as wait_until
    from slackwater.tables.manifest import parquet_dataset as parquet_dataset
    from slackwater.time import BEGINNING_OF_TIME as BEGINNING_OF_TIME
    from slackwater.time import END_OF_TIME as END_OF_TIME
    from slackwater.time import Range as Range
    from slackwater.time import duration as duration
    from slackwater.time import format_duration as format_duration
    from slackwater.time import format_instant as format_instant
    from slackwater.time import instant as instant
    from slackwater.time import to_datetime as to_datetime
    from slackwater.ui.running_console import RunningConsole as RunningConsole
    from slackwater.ui.running_console import ui as ui
    from slackwater.windows import Accumulation as Accumulation
    from slackwater.windows import AsofOperator as AsofOperator
    from slackwater.windows import AsofSpec as AsofSpec
    from slackwater.windows import CogroupSpec as CogroupSpec
    from slackwater.windows import DeduplicateOperator as DeduplicateOperator
    from slackwater.windows import DeduplicateSpec as DeduplicateSpec
    from slackwater.windows import JoinOperator as JoinOperator
    from slackwater.windows import JoinSpec as JoinSpec
    from slackwater.windows import MergeOperator as MergeOperator
    from slackwater.windows import WindowedOperator as WindowedOperator
    from slackwater.windows import WindowSpec as WindowSpec
    from slackwater.windows import after_all as after_all
    from slackwater.windows import after_any as after_any
    from slackwater.windows import after_count as after_count
    from slackwater.windows import after_each as after_each
    from slackwater.windows import after_event_time as after_event_time
    from slackwater.windows import after_processing_time as after_processing_time
    from slackwater.windows import after_watermark as after_watermark
    from slackwater.windows import all as all
    from slackwater.windows import always as always
    from slackwater.windows import any as any
    from slackwater.windows import approx_count_distinct as approx_count_distinct
    from slackwater.windows import approx_quantile as approx_quantile
    from slackwater.windows import asof_join as asof_join
    from slackwater.windows import avg as avg
    from slackwater.windows import calendar as calendar
    from slackwater.windows import collect as collect
    from slackwater.windows import collect_set as collect_set
    from slackwater.windows import count as count
    from slackwater.windows import count_distinct as count_distinct
    from slackwater.windows import deduplication as deduplication
    from slackwater.windows import every as every
    from slackwater.windows import first as first
    from slackwater.windows import fixed as fixed
    from slackwater.windows import fold as fold
    from slackwater.windows import global_window as global_window
    from slackwater.windows import inherited as inherited
    from slackwater.windows import last as last
    from slackwater.windows import max as max
    from slackwater.windows import max_by as max_by
    from slackwater.windows import mean as mean
    from slackwater.windows import min as min
    from slackwater.windows import min_by as min_by
    from slackwater.windows import never as never
    from slackwater.windows import or_finally as or_finally
    from slackwater.windows import reduce as reduce
    from slackwater.windows import repeatedly as repeatedly
    from slackwater.windows import sessions as sessions
    from slackwater.windows import sliding as sliding
    from slackwater.windows import sort as sort
    from slackwater.windows import stddev as stddev
    from slackwater.windows import sum as sum
    from slackwater.windows import sum_distinct as sum_distinct
    from slackwater.windows import time_bounded_join as time_bounded_join
    from slackwater.windows import top_n as top_n
    from slackwater.windows import top_n_by_key as top_n_by_key
    from slackwater.windows import tumbling as tumbling
    from slackwater.windows import variance as variance
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        renamed={"TimeBoundedJoin": "JoinSpec"},
        spellings={  # of PySpark
            "approxCountDistinct": "approx_count_distinct",
            "bool_and": "all",
            "bool_or": "any",
            "collect_list": "collect",
            "countDistinct": "count_distinct",
            "stddev_samp": "stddev",
            "sumDistinct": "sum_distinct",
            "var_samp": "variance",
        },
    )
