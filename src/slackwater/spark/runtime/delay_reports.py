"""The delays of a source's rows: observed by map tasks, and reported by one bucket.

A map task does not know the watermark, and the bucket, which does, gets partials instead of rows. So a task
sends how far rows are behind the latest row of their origin in the task, in fine bins. The bucket converts
that to delays behind the event time that the source had reached before the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slackwater.progress.delays import HIGHEST_BIN, DelayHistogram, bound_of
from slackwater.progress.values import Origin
from slackwater.spark.wire.buffers import Observation, OriginDelays
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from slackwater.time import BEGINNING_OF_TIME, MILLISECOND

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
        peak = int(rows[TIME].to_numpy().max())
        return [OriginDelays(origin, peak, *_weighted(*binned(rows[TIME], peak), stride))]
    return _by_origin(rows, stride)


def _by_origin(rows: pl.DataFrame, stride: int) -> list[OriginDelays]:
    """The delays of the origins with most rows, and of the others together."""
    origins, times = rows[ORIGIN], rows[TIME].to_numpy()
    # by a hash of 64 bits, which is much faster than a comparison of names, and keeps no memory of them
    codes = origins.hash().to_numpy()
    _, firsts, places, sizes = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    ranked = np.lexsort((firsts, -sizes))  # those with most rows first; of several, the one that came first
    numbers_of = np.empty(len(ranked), np.int64)
    numbers_of[ranked] = np.minimum(np.arange(len(ranked)), LISTED_ORIGINS)
    numbers = numbers_of[places]
    peaks = np.full(min(len(ranked), LISTED_ORIGINS + 1), BEGINNING_OF_TIME)
    np.maximum.at(peaks, numbers, times)
    bins = _bins_of(peaks[numbers] - times)
    width = int(bins.max()) + 1
    cells, counts = np.unique(numbers * width + bins, return_counts=True)
    starts = np.searchsorted(cells, np.arange(len(peaks) + 1) * width)
    names = [*origins.gather(firsts[ranked[:LISTED_ORIGINS]]).to_list(), OTHERS][: len(peaks)]
    found = []
    for each, (name, peak, bounds) in enumerate(zip(names, peaks.tolist(), pairwise(starts), strict=True)):
        part = slice(*bounds)
        mine = (cells[part] - each * width).tolist(), counts[part].tolist()
        found.append(OriginDelays(name, peak, *_weighted(*mine, stride)))
    return found


def _weighted(bins: list[int], counts: list[int], stride: int) -> tuple[list[int], list[int]]:
    """The bins with their numbers of rows, each of which stands for ``stride`` rows."""
    return bins, [count * stride for count in counts]


def binned(times: pl.Series, peak: int) -> tuple[list[int], list[int]]:
    """How far event times are behind the latest of them: the bins, and the number of rows in each.

    >>> binned(pl.Series([0, 4_000_000, 5_000_000]), 5_000_000)
    ([0, 349, 431], [1, 1, 1])
    """
    bins, counts = np.unique(_bins_of(peak - times.to_numpy()), return_counts=True)
    return bins.tolist(), counts.tolist()


def _bins_of(behind: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bins of times in microseconds."""
    milliseconds = np.maximum(behind / MILLISECOND, 1.0)
    return np.ceil(np.log(milliseconds) / _LOG_GROWTH).astype(np.int64)


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
    labels: dict[str, int] = {}
    parts = [
        (labels.setdefault(_label(name, origin.origin), len(labels)), front - origin.peak, origin)
        for name, several, front in observed
        if front is not None
        for origin in several
    ]
    if not parts:
        return {}
    sizes = [len(origin.bins) for _, _, origin in parts]
    bins = np.array([number for _, _, origin in parts for number in origin.bins], np.int64)
    rows = np.array([number for _, _, origin in parts for number in origin.rows], np.int64)
    middles = np.where(bins == 0, 0, np.floor(MILLISECOND * _GROWTH ** (bins - 0.5))).astype(np.int64)
    delays = np.maximum(np.repeat([shift for _, shift, _ in parts], sizes) + middles, 0)
    histograms = _histograms(np.repeat([number for number, _, _ in parts], sizes), delays, rows)
    return _largest(dict(zip(labels, histograms, strict=True)))


def _histograms(
    numbers: NDArray[np.int64], delays: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[DelayHistogram]:
    """Histograms of many delays at once: that of each number, of which all from 0 on occur.

    >>> one, two = _histograms(*map(np.array, ([0, 1, 0], [0, 7_000, 2_000_000], [5, 1, 2])))
    >>> one == DelayHistogram.of([0] * 5 + [2_000_000] * 2), two == DelayHistogram.of([7_000])
    (True, True)
    """
    count, width = int(numbers.max()) + 1, HIGHEST_BIN + 1
    cells = numbers * width + np.searchsorted(_BOUNDS, delays)
    totals = np.bincount(cells, rows, count * width).astype(np.int64).reshape(count, width)
    highest = np.zeros(count, np.int64)
    np.maximum.at(highest, numbers, delays)
    return [
        DelayHistogram({bin_: int(total[bin_]) for bin_ in np.flatnonzero(total).tolist()}, most)
        for total, most in zip(totals, highest.tolist(), strict=True)
    ]


def _label(name: str | None, origin: Origin) -> str:
    """The name of an origin in a report, with that of its input if there are several."""
    label = str(origin)[:_LONGEST_NAME]
    return label if name is None else f"{name}: {label}"


_BOUNDS: Final = np.array([MILLISECOND, *(bound_of(number) for number in range(1, HIGHEST_BIN))])
"""The largest delay of each bin of a histogram except for the last, which has no bound."""
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
