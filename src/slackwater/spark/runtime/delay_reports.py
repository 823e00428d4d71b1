"""The delays of a source's rows: observed by map tasks, and reported by one bucket.

A map task does not know the watermark, and the bucket, which does, gets partials instead of rows. So a task
sends how far rows are behind the latest row of their origin in the task, in fine bins. The bucket converts
that to delays behind the event time that the source had reached before the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from slackwater.progress.delays import DelayHistogram
from slackwater.progress.values import Origin
from slackwater.spark.wire.buffers import Observation, OriginDelays
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from slackwater.time import MILLISECOND

OTHERS: Final = "(others)"
"""The name of the origins that are not reported one by one."""
LISTED_ORIGINS: Final = 64
"""How many origins are reported one by one, those with most rows."""
SAMPLED_ROWS: Final = 5_000
"""A task looks at about this many of its rows, and counts each for those in between."""
_GROWTH: Final = 1.02
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Its multiples are spread evenly between 0 and 1, without a period."""
_LOG_GROWTH: Final = math.log(_GROWTH)


def observed_delays(rows: pl.DataFrame, origin: Origin | None) -> list[OriginDelays]:
    """How far rows with an event time are behind the latest of their origin; ``origin`` is the only one.

    >>> rows = pl.DataFrame({TIME: [0, 4_000_000, 5_000_000]})
    >>> [(delays.origin, delays.peak, sum(delays.rows)) for delays in observed_delays(rows, "a")]
    [('a', 5000000, 3)]
    """
    if rows.is_empty():
        return []
    stride = max(1, rows.height // SAMPLED_ROWS)
    if stride > 1:
        # One row of each stride, at a place that does not repeat: origins often take turns.
        strides = np.arange(rows.height // stride)
        rows = rows[((strides + strides * _GOLDEN % 1) * stride).astype(np.int64)]
    if origin is not None:
        return [_counted(origin, rows[TIME], stride)]
    times = rows.group_by(ORIGIN).agg(TIME).sort(pl.col(TIME).list.len(), ORIGIN, descending=[True, False])
    found = [_counted(name, pl.Series(mine), stride) for name, mine in times.head(LISTED_ORIGINS).rows()]
    others = times.slice(LISTED_ORIGINS)
    if others.height:
        found.append(_counted(OTHERS, others[TIME].explode(), stride))
    return found


def _counted(origin: Origin, times: pl.Series, stride: int) -> OriginDelays:
    """The number of rows by bin; each time stands for ``stride`` rows."""
    peak = int(times.to_numpy().max())
    bins, counts = binned(times, peak)
    return OriginDelays(origin, peak, bins, [count * stride for count in counts])


def binned(times: pl.Series, peak: int) -> tuple[list[int], list[int]]:
    """How far event times are behind the latest of them: the bins, and the number of rows in each.

    >>> binned(pl.Series([0, 4_000_000, 5_000_000]), 5_000_000)
    ([0, 349, 431], [1, 1, 1])
    """
    behind = np.maximum((peak - times.to_numpy()) / MILLISECOND, 1.0)
    bins, counts = np.unique(np.ceil(np.log(behind) / _LOG_GROWTH).astype(np.int64), return_counts=True)
    return bins.tolist(), counts.tolist()


def learned_delays(observation: Observation, reached: int) -> DelayHistogram:
    """The delays of rows behind the event time that their origin had reached before the batch.

    The rows of a bin count as not behind if the latest of them may be that: a batch that spans much more
    time than its rows are late does not lengthen the lag.

    >>> from slackwater.spark.wire.buffers import Peak
    >>> behind = Observation("a", [Peak(5_000_000, 3)], bins=[0, 349, 431], rows=[1, 1, 1])
    >>> delays = learned_delays(behind, reached=2_000_000)
    >>> delays.rows, round(delays.highest / 1e6, 1)
    (3, 2.1)
    """
    delays = DelayHistogram({})
    shift = reached - observation.peaks[0].time
    for number, rows in zip(observation.bins, observation.rows, strict=True):
        latest = 0 if number == 0 else math.floor(MILLISECOND * _GROWTH ** (number - 1))
        earliest = 0 if number == 0 else math.floor(MILLISECOND * _GROWTH**number)
        delays.count(shift + earliest if shift + latest > 0 else 0, rows)
    return delays


def reported_delays(
    observed: Iterable[tuple[str | None, Sequence[OriginDelays], int | None]],
) -> dict[str, DelayHistogram]:
    """The delays by origin, of at most `LISTED_ORIGINS` and the others together.

    Args:
        observed: for each input its name if there are several, what map tasks observed, and the event time
            that the source had reached before the batch: its watermark plus the lag. None: it is not known.

    >>> delays = reported_delays([(None, [OriginDelays("a", 5_000_000, [0, 250], [2, 1])], 5_000_000)])
    >>> delays["a"].rows, delays["a"].quantile(0.6), delays["a"].highest
    (3, 0, 139...)
    """
    found: dict[str, DelayHistogram] = {}
    for name, several, front in observed:
        for origin in several if front is not None else ():
            label = str(origin.origin)[:_LONGEST_NAME]
            label = label if name is None else f"{name}: {label}"
            histogram = found.setdefault(label, DelayHistogram({}))
            for number, rows in zip(origin.bins, origin.rows, strict=True):
                behind = 0 if number == 0 else math.floor(MILLISECOND * _GROWTH ** (number - 0.5))
                histogram.count(max(0, front - origin.peak + behind), rows)  # type: ignore[operator]
    return _largest(found)


_LONGEST_NAME: Final = 200


def _largest(found: Mapping[str, DelayHistogram]) -> dict[str, DelayHistogram]:
    if len(found) <= LISTED_ORIGINS:
        return dict(found)
    ordered = sorted(found, key=lambda name: (name == OTHERS, -found[name].rows, name))
    kept = {name: found[name] for name in ordered[:LISTED_ORIGINS]}
    others = DelayHistogram({})
    for name in ordered[LISTED_ORIGINS:]:
        others.add(found[name])
    return {**kept, OTHERS: others}
