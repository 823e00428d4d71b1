"""The completeness of what a sink commits, from the reports that buckets send with their rows.

Reports travel in rows of their own, in the same tasks as the rows of the batch. So a commit states a time
only if it contains the rows up to that time, and a repeated batch states the same time again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.progress.completeness import Completeness, lowest
from slackwater.progress.values import DEFAULT_KEY
from slackwater.spark.wire.wire_columns import REPORT


class BucketProgress(msgspec.Struct, frozen=True):
    """The part of a bucket's report that a sink uses.

    >>> BucketProgress(0, {"default": 5}).forwarded
    {'default': 5}
    """

    bucket: int
    forwarded: dict[str, int] = {}
    """The watermarks of the rows that the bucket has emitted, by watermark key."""
    now: int | None = None
    """The processing time of the batch; None in reports of an earlier release."""


@dataclass(frozen=True, slots=True)
class CompletenessClaim:
    """How the completeness of an operator's output follows from the progress of its buckets.

    >>> claim = CompletenessClaim((0, 2), "default", lateness=5)
    >>> claim.stated([BucketProgress(0, {"default": 20}), BucketProgress(2, {"default": 30})])
    Completeness(complete_until=20, final_until=15)
    >>> claim.stated([BucketProgress(0, {"default": 20})])  # bucket 2 is missing
    Completeness(complete_until=None, final_until=None)
    """

    buckets: tuple[int, ...]
    """The ids of all buckets, each of which must report."""
    key: str = DEFAULT_KEY
    lateness: int | None = None
    """How far output rows may be behind the forwarded watermark; None for no limit."""

    def stated(self, reports: Iterable[BucketProgress]) -> Completeness:
        """The completeness after a batch; unknown if that of one bucket is."""
        known = {one.bucket: one.forwarded.get(self.key) for one in reports}
        return Completeness.of(lowest(known.get(bucket) for bucket in self.buckets), self.lateness)


class ReportsProgress(Protocol):
    """A commit message with the progress of buckets."""

    @property
    def progress(self) -> Sequence[BucketProgress]:
        """The progress of the buckets whose rows a task wrote."""


def stated_completeness(claim: CompletenessClaim | None, messages: Iterable[ReportsProgress]) -> Completeness:
    """The completeness that a commit states, from the messages of its tasks; unknown without a claim.

    >>> stated_completeness(None, [])
    Completeness(complete_until=None, final_until=None)
    """
    if claim is None:
        return Completeness()
    return claim.stated(one for message in messages for one in message.progress)


def batch_clock(reports: Iterable[BucketProgress]) -> int | None:
    """The processing time of a batch; None if no bucket has reported it.

    It is a part of the offsets that Spark logs, so a repeated batch has the time of the first attempt.

    >>> batch_clock([BucketProgress(0, now=5), BucketProgress(2, now=7)])
    7
    """
    return max((one.now for one in reports if one.now is not None), default=None)


def without_reports(
    batches: Iterable[pa.RecordBatch], found: list[BucketProgress]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task without the reports of buckets, which are added to ``found``.

    >>> report = '{"bucket": 2, "forwarded": {"default": 5}, "open_windows": 1}'
    >>> batch = pa.record_batch({"n": [1, None], REPORT: [None, report]})
    >>> found = []
    >>> [rows.to_pydict() for rows in without_reports([batch], found)], found
    ([{'n': [1]}], [BucketProgress(bucket=2, forwarded={'default': 5}, now=None)])
    """
    for batch in batches:
        if REPORT not in batch.schema.names:
            yield batch
            continue
        reports = batch.column(REPORT)
        found += [msgspec.json.decode(text, type=BucketProgress) for text in reports.drop_null().to_pylist()]
        yield batch.filter(pc.is_null(reports)).drop_columns([REPORT])
