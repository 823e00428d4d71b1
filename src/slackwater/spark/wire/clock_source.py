"""The clock as a stream: processing time that a replayed batch sees again.

A stateful operator needs the time of day for idle inputs and for triggers that wait, and it needs a
batch to happen when nothing arrives. Both come from a source of Spark's own kind, united with the data:
its *offset is the time*. Spark logs the offset before the batch runs, so a batch that is repeated after
a failure gets the very time of the first attempt, and every decision is made again as it was made.

The offset also tells when the query was started, so that an operator knows a restart from a pause of its
inputs, carries the end of the stream, if there is one, and keeps the buckets: what is stored under one
number of them is out of reach under another.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from slackwater import time
from slackwater.errors import InvalidArgument
from slackwater.spark.session import session_mark
from slackwater.spark.wire.buffers import BUFFER, Tick, buffer_batch
from slackwater.time import DurationLike, check_int64, duration

SOURCE: Final = "slackwater_clock"


@dataclass(frozen=True, slots=True)
class Interval:
    """The wall clock, at most one batch in ``interval`` microseconds when nothing else happens.

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
    """A clock that is told the time: one instant for each micro-batch, in ascending order.

    For tests, simulations, and streams that are replayed as they were recorded.

    >>> Ticks((10, 20)).times
    (10, 20)
    """

    times: tuple[int, ...]

    def __post_init__(self) -> None:
        for earlier, later in zip(self.times, self.times[1:], strict=False):
            if later < earlier:
                raise InvalidArgument(
                    "times", later, f"lies before {earlier}", fix="give them in ascending order"
                )


Clocking = Interval | Ticks


def clocking(value: DurationLike | Clocking) -> Clocking:
    """The clock that an argument describes.

    >>> clocking("1 second")
    Interval(interval=1000000)
    """
    return value if isinstance(value, (Interval, Ticks)) else Interval(duration(value, name="clock"))


def quickest(clocks: Sequence[Clocking]) -> Clocking:
    """The one clock of inputs that meet: of several intervals the shortest.

    >>> quickest([Interval(5_000_000), Interval(1_000_000)])
    Interval(interval=1000000)
    >>> quickest([Interval(5_000_000), Ticks((10, 20))])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: clock = Ticks(times=(10, 20)): meets another clock, \
Interval(interval=5000000), and both cannot be followed; give all streams the same
    """
    first = clocks[0]
    for other in clocks[1:]:
        if isinstance(first, Interval) and isinstance(other, Interval):
            first = min(first, other, key=lambda clock: clock.interval)
        elif other != first:
            raise InvalidArgument(
                "clock", other, f"meets another clock, {first}, and both cannot be followed",
                fix="give all streams the same",
            )  # fmt: skip
    return first


def clock_buffers(spark: SparkSession, clock: Clocking, buckets: Sequence[int], *, end: bool) -> DataFrame:
    """The clock as a streaming DataFrame of buffers, one for every bucket and tick.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> clock_buffers(spark, Interval(1_000_000), [0, 1], end=False).columns
    ['bucket', 'header', 'payload']
    """
    reader = spark.readStream.format(_registered(spark))
    reader = reader.option("buckets", json.dumps(list(buckets))).option("end", str(end))
    if isinstance(clock, Interval):
        reader = reader.option("interval", str(clock.interval))
    else:
        reader = reader.option("times", json.dumps(clock.times))
    return reader.load()


def _registered(spark: SparkSession) -> str:
    registered = f"{SOURCE}_{session_mark(spark)}"

    class SessionClock(ClockSource):
        @classmethod
        def name(cls) -> str:
            return registered

    spark.dataSource.register(SessionClock)
    return registered


def is_tick(offset: str | None) -> bool:
    """Whether an offset, as the progress of a query tells it, is one of a clock.

    >>> is_tick('{"buckets": [0, 2], "end": false, "now": 5, "run": 1, "tick": 2}'), is_tick(None)
    (True, False)
    >>> is_tick('{"logOffset": 3}')
    False
    """
    try:
        told = json.loads(offset or "null")
    except ValueError:
        return False  # other sources tell their offsets as they like
    return isinstance(told, dict) and told.keys() == _offset((), end=False, now=None, run=0, tick=0).keys()


class ClockSource(DataSource):
    """The data source behind `clock_buffers`."""

    @classmethod
    def name(cls) -> str:
        """The name of its format."""
        return SOURCE

    def schema(self) -> StructType:
        """That of buffers."""
        return BUFFER

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader, in the process that plans the batches."""
        end = self.options["end"] == "True"
        buckets = json.loads(self.options["buckets"])
        if "times" in self.options:
            return TicksReader(buckets, json.loads(self.options["times"]), end)
        return IntervalReader(buckets, int(self.options["interval"]), end)


@dataclass
class _Moment(InputPartition):
    """What one batch is told."""

    buckets: tuple[int, ...]
    tick: Tick


class _ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"buckets": …, "end": …, "now": …, "run": …, "tick": …}``; each batch has another."""

    def __init__(self, buckets: Sequence[int], end: bool) -> None:
        self._buckets = tuple(buckets)
        self._end = end
        self._run = time.now()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return _offset(self._buckets, end=False, now=None, run=0, tick=0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        if start["tick"] == end["tick"]:
            return []
        return [_Moment(self._buckets, Tick(end["now"], end["run"], end["end"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        moment = cast(_Moment, partition)
        yield buffer_batch([(bucket, moment.tick, None) for bucket in moment.buckets])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The next time, if there is one; refused before Spark logs it if the state does not fit."""
        self._check(start)
        return self._latest(start)

    @abstractmethod
    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset after this one, or the same."""

    def _next(self, start: dict[str, Any], now: int) -> dict[str, Any]:
        return _offset(self._buckets, end=self._end, now=now, run=self._run, tick=start["tick"] + 1)

    def _check(self, offset: dict[str, Any]) -> None:
        """Refuse buckets that are not those of the checkpoint: their keys would find no state."""
        known = tuple(offset["buckets"])
        if known != self._buckets:
            raise InvalidArgument(
                "buckets",
                len(self._buckets),
                f"are not the {len(known)} that the checkpoint was begun with: keys would lose their state",
                fix=f"set spark.sql.shuffle.partitions (and buckets=, if given) as at the first start, like "
                f"session(partitions={len(known)}), or begin with an empty checkpoint",
            )


class IntervalReader(_ClockReader):
    """Reads the wall clock when Spark asks for the latest offset."""

    def __init__(self, buckets: Sequence[int], interval: int, end: bool) -> None:
        super().__init__(buckets, end)
        self._interval = interval
        self._once = False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """One tick for the whole run, or it would never be over."""
        self._once = True

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The time, if the interval is over; the first one of a run comes at once."""
        last, now = start["now"], time.now()
        if start["run"] == self._run and (self._once or now < last + self._interval):
            return start
        # A clock that was set back stands still until it has caught up.
        return self._next(start, now if last is None else max(last, now))


class TicksReader(_ClockReader):
    """Goes from one given time to the next, a batch each."""

    def __init__(self, buckets: Sequence[int], times: Sequence[int], end: bool) -> None:
        super().__init__(buckets, end)
        self._times = tuple(times)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is available are the times; they are fixed anyway."""

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """The next time, if there is one."""
        if start["tick"] >= len(self._times):
            return start
        offset = self._next(start, self._times[start["tick"]])
        offset["end"] = self._end and offset["tick"] == len(self._times)
        return offset


def _offset(buckets: Sequence[int], *, end: bool, now: int | None, run: int, tick: int) -> dict[str, Any]:
    # Spark compares offsets as text, so the order of the names is part of the format.
    return {"buckets": list(buckets), "end": end, "now": now, "run": run, "tick": tick}
