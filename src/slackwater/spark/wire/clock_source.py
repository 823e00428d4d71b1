"""The clock as a streaming source, so that a replayed batch gets the same processing time.

A stateful operator needs processing time for idle inputs and for processing-time triggers, and it needs
micro-batches to run when no rows arrive. Both come from a Spark source that is united with the data and
whose *offset is the time*. Spark logs the offset before the batch runs, so a batch that is repeated after a
failure gets the time of the first attempt and makes the same decisions.

The offset also contains the time at which the query was started, which distinguishes a restart from a pause
of the inputs; by how much the system clock was set back so far, so that durations go on while the time is
corrected; the end of the stream, if it has one; the bucket ids, because state that was stored with one number
of buckets cannot be found with another; and where the history of an input ends, because rows would be lost or
counted twice if it moved.

If the completeness of a table is the watermark of a stream, it is part of the offset as well. A batch uses a
time that was read *before* Spark asked the sources for the rows of the batch, so that the rows up to that
time are among them: the time that was read with the batch before, or, in the first batch of a run and in runs
with ``availableNow``, when the stream was built.
"""

from __future__ import annotations

import json
import logging
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Lock, Thread
from typing import Any, ClassVar, Final, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from slackwater import time
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import TableWatermark
from slackwater.spark.internals import register_source
from slackwater.spark.session import session_token
from slackwater.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    parse_offset,
    stream_reader,
)
from slackwater.spark.wire.buffers import BUFFER, Tick, buffer_batch
from slackwater.spark.wire.end_signals import EndSignals
from slackwater.time import DurationLike, check_int64, duration

SOURCE: Final = "slackwater_clock"
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Interval:
    """The wall clock; without new rows it starts at most one batch every ``interval`` microseconds.

    >>> Interval(1_000_000).interval
    1000000
    """

    interval: int

    def __post_init__(self) -> None:
        if check_int64(self.interval, "clock") < 1:
            raise InvalidArgument(
                "clock", self.interval, "must be greater than zero", fix='write clock="1 second"'
            )


@dataclass(frozen=True, slots=True)
class Ticks:
    """A clock with given times: one instant for each micro-batch, in ascending order.

    For tests, simulations, and streams that are replayed as they were recorded.

    >>> import slackwater as sw
    >>> sw.Ticks((10, 20)).times
    (10, 20)
    """

    times: tuple[int, ...]

    def __post_init__(self) -> None:
        for earlier, later in zip(self.times, self.times[1:], strict=False):
            if later < earlier:
                raise InvalidArgument(
                    "times", later, f"is before {earlier}", fix="give the times in ascending order"
                )


ClockSpec = Interval | Ticks


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream: when it comes.

    A clock with given times ends with the last of them. A wall clock ends with the first batch of a run; or,
    with ``trigger(availableNow=True)`` and signals, after the last batch that has rows.

    Args:
        signals: The folder of the signals that report the end of the sources; see `EndSignals`.
        limit: A limit of a source per batch, because of which the first batch is not the last.

    >>> StreamEnd(limit="maxFilesPerTrigger = '1'").signals is None
    True
    """

    signals: str | None = None
    limit: str | None = None


def clock_spec(value: DurationLike | ClockSpec) -> ClockSpec:
    """Convert the ``clock`` argument of `stream`: a duration is the interval of a wall clock.

    >>> clock_spec("1 second")
    Interval(interval=1000000)
    """
    return value if isinstance(value, (Interval, Ticks)) else Interval(duration(value, name="clock"))


def common_clock(clocks: Sequence[ClockSpec]) -> ClockSpec:
    """The clock of an operator with several inputs: the wall clock with the shortest interval.

    >>> common_clock([Interval(5_000_000), Interval(1_000_000)])
    Interval(interval=1000000)
    >>> common_clock([Interval(5_000_000), Ticks((10, 20))])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: clock = Ticks(times=(10, 20)): cannot be combined with the clock \
Interval(interval=5000000) of another input; give all streams the same clock
    """
    first = clocks[0]
    for other in clocks[1:]:
        if isinstance(first, Interval) and isinstance(other, Interval):
            first = min(first, other, key=lambda clock: clock.interval)
        elif other != first:
            raise InvalidArgument(
                "clock",
                other,
                f"cannot be combined with the clock {first} of another input",
                fix="give all streams the same clock",
            )
    return first


def clock_buffers(
    spark: SparkSession,
    clock: ClockSpec,
    buckets: Sequence[int],
    *,
    end: StreamEnd | None,
    tables: Sequence[TableWatermark] = (),
    seams: Sequence[str] = (),
) -> DataFrame:
    """The clock as a streaming DataFrame with one buffer per bucket and tick; with an ``end`` if it has one.

    ``tables`` are those whose completeness drives a watermark. ``seams`` are where the histories of the
    inputs end.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> clock_buffers(spark, Interval(1_000_000), [0, 1], end=None).columns
    ['bucket', 'header', 'payload']
    """
    options = _options(clock, buckets, end, seams)
    prepared = _prepared.pop(spark, None)
    if prepared is not None and not tables and prepared.options == options:
        with suppress(Exception):  # it is created again below, and raises the error here
            return prepared.clock.result()
    return _load(spark, options, tuple(tables))


def prepare_clock(spark: SparkSession, clock: ClockSpec, buckets: Sequence[int]) -> None:
    """Create a clock in the background, for the next call of `clock_buffers` in this session.

    Creating a clock starts a Python process. Without this call, building the first query of a session waits
    for that process.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> prepare_clock(spark, Interval(1_000_000), [0, 1])
    >>> clock_buffers(spark, Interval(1_000_000), [0, 1], end=None).columns
    ['bucket', 'header', 'payload']
    """
    prepared = _prepared[spark] = _PreparedClock(_options(clock, buckets, None, ()), Future())

    def create() -> None:
        try:
            prepared.clock.set_result(_load(spark, prepared.options, ()))
        except BaseException as error:  # passed on, also when the session has ended meanwhile
            prepared.clock.set_exception(error)

    Thread(target=create, daemon=True).start()


@dataclass(frozen=True)
class _PreparedClock:
    options: Mapping[str, str]
    clock: Future[DataFrame]


_registering: Final = Lock()
"""Spark raises if two threads register the same name for the first time at the same moment."""
_prepared: Final[WeakKeyDictionary[SparkSession, _PreparedClock]] = WeakKeyDictionary()


def _options(
    clock: ClockSpec, buckets: Sequence[int], end: StreamEnd | None, seams: Sequence[str]
) -> dict[str, str]:
    options = {"buckets": json.dumps(list(buckets))}
    if end is not None:
        options["end"] = json.dumps(asdict(end))
    if seams:
        options["seams"] = json.dumps(list(seams))
    if isinstance(clock, Interval):
        options["interval"] = str(clock.interval)
    else:
        options["times"] = json.dumps(clock.times)
    return options


def _load(spark: SparkSession, options: Mapping[str, str], tables: tuple[TableWatermark, ...]) -> DataFrame:
    return spark.readStream.format(_registered(spark, tables)).options(**options).load()


def _registered(spark: SparkSession, tables: tuple[TableWatermark, ...]) -> str:
    """Register the source; tables travel inside the class, so that no query plan shows their addresses."""
    suffix = f"_{uuid.uuid4().hex[:12]}" if tables else ""
    registered = f"{SOURCE}_{session_token(spark)}{suffix}"
    known = TableTimes(tables, {one.table: at for one in tables if (at := one.read()) is not None})

    class SessionClock(ClockSource):
        times = known

        @classmethod
        def name(cls) -> str:
            return registered

    with _registering:
        register_source(spark, SessionClock)
    return registered


_Times = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class TableTimes:
    """The tables whose completeness drives a watermark, and the times that were read when it was built.

    >>> times = TableTimes((TableWatermark("delta:/data/totals", read=lambda: 9),), {"delta:/data/totals": 5})
    >>> times.next({}, first=True, once=False)
    {'seen': {'delta:/data/totals': 9}, 'used': {'delta:/data/totals': 5}}
    """

    tables: tuple[TableWatermark, ...] = ()
    built: Mapping[str, int] = field(default_factory=dict)

    def next(self, before: _Times, *, first: bool, once: bool) -> _Times:
        """The times in the offset after one with the times ``before``.

        Args:
            before: The times in the offset before.
            first: Whether this is the first offset of a run.
            once: Whether sources read what was there when the run began.
        """
        used = {**before.get("used", {})}
        for table, at in (self.built if first or once else before.get("seen", {})).items():
            used[table] = max(at, used.get(table, at))
        found = {} if once else {one.table: self._read(one) for one in self.tables}
        seen = {table: time for table, time in found.items() if time is not None}
        return {"seen": seen, "used": used}

    def _read(self, one: TableWatermark) -> int | None:
        try:
            return one.read()
        except Exception:
            # not an error of this query: the watermark waits until the table can be read again
            _log.warning("the completeness of %s cannot be read", one.table, exc_info=True)
            return None


def is_tick(offset: str | None) -> bool:
    """Whether an offset in the progress report of a query is the offset of a clock source.

    >>> is_tick('{"buckets": [0, 2], "end": false, "now": 5, "run": 1, "tick": 2}'), is_tick(None)
    (True, False)
    >>> is_tick('{"logOffset": 3}'), is_tick("offsets of other sources need not be JSON")
    (False, False)
    """
    parsed = parse_offset(offset)
    known = _offset((), end=False, now=None, run=0, tick=0).keys()
    return isinstance(parsed, dict) and parsed.keys() - {"back", "seams", "tables"} == known


NO_TABLES: Final = TableTimes()


class ClockSource(DataSource):
    """The data source behind `clock_buffers`."""

    times: ClassVar[TableTimes] = TableTimes()
    """The tables whose completeness drives a watermark."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE

    def schema(self) -> StructType:
        """The schema of buffers."""
        return BUFFER

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader, which runs in the process that plans the batches."""
        end = StreamEnd(**json.loads(self.options["end"])) if "end" in self.options else None
        buckets = json.loads(self.options["buckets"])
        seams = json.loads(self.options.get("seams", "[]"))
        if "times" in self.options:
            times = json.loads(self.options["times"])
            return stream_reader(TicksReader(buckets, times, end, self.times, seams))
        reader = IntervalReader(buckets, int(self.options["interval"]), end, self.times, seams)
        # counts from the time of day, which is more than an earlier run has counted
        return stream_reader(reader, unknown_start={**reader.initialOffset(), "tick": time.now()})


@dataclass
class _TickPartition(InputPartition):
    """The tick of one batch, and the buckets it is sent to."""

    buckets: tuple[int, ...]
    tick: Tick


class _ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"buckets": …, "end": …, "now": …, "run": …, "tick": …}``, one per batch."""

    def __init__(
        self, buckets: Sequence[int], end: StreamEnd | None, tables: TableTimes, seams: Sequence[str]
    ) -> None:
        self._buckets = tuple(buckets)
        self._end = end
        self._tables = tables
        # where the histories of the inputs end; part of the offset, so that a restart cannot move them
        self._seams = list(seams)
        self._once = False
        self._run = time.now()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._with_seams(_offset(self._buckets, end=False, now=None, run=0, tick=0))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        if start["tick"] > 0:
            self._check(start)
        if start["tick"] == end["tick"]:
            return []
        used = end.get("tables", {}).get("used", {})
        tick = Tick(end["now"], end["run"], end["end"], end.get("back", 0), used)
        return [_TickPartition(self._buckets, tick)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ticking = cast(_TickPartition, partition)
        yield buffer_batch([(bucket, ticking.tick, None) for bucket in ticking.buckets])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The next offset; raises before Spark logs it if the bucket ids differ from the checkpoint's."""
        self._check(start)
        return self._latest(start)

    @abstractmethod
    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset after ``start``, or ``start`` if there is no new one."""

    def _next(self, start: dict[str, Any], now: int, *, end: bool) -> dict[str, Any]:
        last, back = start["now"], start.get("back", 0)
        if last is not None and now < last:  # the system clock was set back
            back += last - now
        offset = self._with_seams(
            _offset(self._buckets, end=end, now=now, run=self._run, tick=start["tick"] + 1, back=back)
        )
        if not self._tables.tables:
            return offset
        first = start["run"] != self._run
        tables = self._tables.next(start.get("tables", {}), first=first, once=self._once)
        return {**offset, "tables": tables}

    def _with_seams(self, offset: dict[str, Any]) -> dict[str, Any]:
        return {**offset, "seams": self._seams} if self._seams else offset

    def _check(self, offset: dict[str, Any]) -> None:
        """Raise if the buckets or the seams differ from the checkpoint's."""
        if (seams := offset.get("seams", [])) != self._seams:
            raise InvalidArgument(
                "until",
                ", ".join(self._seams) or None,
                f"is not {', '.join(seams) or None}, the end of the history in the checkpoint: rows in "
                f"between would be lost or counted twice",
                fix="pass the same until= as at the first start, or start with an empty checkpoint",
            )
        known = tuple(offset["buckets"])
        if known != self._buckets:
            if len(known) == len(self._buckets):  # before 0.1.0, with more buckets than partitions
                raise InvalidArgument(
                    "buckets",
                    len(self._buckets),
                    "gives other bucket ids than those in the checkpoint",
                    fix=f"write buckets={list(known)}",
                )
            raise InvalidArgument(
                "buckets",
                len(self._buckets),
                f"is not {len(known)}, the number in the checkpoint: keys would be assigned to buckets "
                "without their state",
                fix=f"set spark.sql.shuffle.partitions (and buckets=, if given) as at the first start, for "
                f"example with session(partitions={len(known)}), or start with an empty checkpoint",
            )


class IntervalReader(_ClockReader):
    """Reads the wall clock whenever Spark asks for the latest offset."""

    def __init__(
        self,
        buckets: Sequence[int],
        interval: int,
        end: StreamEnd | None,
        tables: TableTimes = NO_TABLES,
        seams: Sequence[str] = (),
    ) -> None:
        super().__init__(buckets, end, tables, seams)
        self._interval = interval

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Emit no more ticks than necessary: the run would not end otherwise."""
        self._once = True
        if self._signals is not None:
            self._signals.request(self._run)

    @property
    def _signals(self) -> EndSignals | None:
        folder = None if self._end is None else self._end.signals
        return None if folder is None else EndSignals(folder)

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The current time if the interval has passed; the first tick of a run comes at once."""
        last, now = start["now"], time.now()
        if self._once and self._signals is not None:
            return self._latest_before_end(start, self._signals)
        if self._end is not None and self._end.limit is not None:
            raise InvalidArgument(
                "flush",
                True,  # noqa: FBT003 - the value that was given
                f"a source is limited by {self._end.limit}, and only a run with availableNow has a known end",
                fix="add trigger(availableNow=True), or remove the limit",
            )
        if start["run"] == self._run and (self._once or last <= now < last + self._interval):
            return start
        return self._next(start, now, end=self._end is not None)

    def _latest_before_end(self, start: dict[str, Any], signals: EndSignals) -> dict[str, Any]:
        """A tick with every batch, and the end after the batch in which no other source had anything new.

        The sources of the run do not get more rows than they had when it started, so none follow.
        """
        if start["run"] != self._run:
            # A stream that has ended before stays ended.
            return self._next(start, time.now(), end=start["end"])
        if start["end"]:
            return start
        quiet = signals.quiet_after(self._run, tick=start["tick"])
        return self._next(start, time.now(), end=quiet)


class TicksReader(_ClockReader):
    """Emits the given times, one per batch."""

    def __init__(
        self,
        buckets: Sequence[int],
        times: Sequence[int],
        end: StreamEnd | None,
        tables: TableTimes = NO_TABLES,
        seams: Sequence[str] = (),
    ) -> None:
        super().__init__(buckets, end, tables, seams)
        self._times = tuple(times)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The given times are what is available."""
        self._once = True

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The next of the given times."""
        if start["tick"] >= len(self._times):
            return start
        is_last = start["tick"] + 1 == len(self._times)
        return self._next(start, self._times[start["tick"]], end=self._end is not None and is_last)


def _offset(
    buckets: Sequence[int], *, end: bool, now: int | None, run: int, tick: int, back: int = 0
) -> dict[str, Any]:
    # Spark compares offsets as strings, so the order of the keys is part of the format.
    offset = {"buckets": list(buckets), "end": end, "now": now, "run": run, "tick": tick}
    return {**offset, "back": back} if back else offset
