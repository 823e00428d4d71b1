"""The histogram of delays against the quantile sketches of Apache DataSketches.

python -m benchmarks.delay_sketches

A day of one origin: 24 hours of 60 batches with 500 rows, most of them not late, some by seconds, one in a
thousand by minutes or hours. Each batch is summarized, batches are combined to hours and hours to the day, as
the telemetry does. What the views need is compared with the exact answer: the lag for a share of the rows,
and how many rows are later than a lag. Sketches that draw random numbers are made several times; the largest
error counts. "Order" says whether another order of combining gives the same answers, and "replay" whether the
same order does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import datasketches
import msgspec
import numpy as np

from slackwater.progress.delays import DelayHistogram

HOURS, BATCHES, ROWS = 24, 60, 500
SHARES: Final = (0.95, 0.99, 0.999, 0.9999)
REPEATS: Final = 5
Delays = Any
"""An array of microseconds."""


@dataclass(frozen=True)
class Kind:
    """A way to summarize delays."""

    name: str
    of: Callable[[Delays], Any]
    empty: Callable[[], Any]
    add: Callable[[Any, Any], None]
    quantile: Callable[[Any, float], float]
    share_within: Callable[[Any, int], float]
    stored: Callable[[Any], bytes]

    def day(self, batches: Sequence[Sequence[Delays]]) -> Any:
        """The summary of all batches, combined hour by hour."""
        whole = self.empty()
        for hour in batches:
            part = self.empty()
            for batch in hour:
                self.add(part, self.of(batch))
            self.add(whole, part)
        return whole


def _sketch(name: str, empty: Callable[[], Any], *, is_digest: bool = False) -> Kind:
    def of(delays: Delays) -> Any:
        made = empty()
        made.update(delays.astype(np.float32 if "REQ" in name else np.float64))
        return made

    # A t-digest interpolates; the others count the values that do not exceed the given one.
    inclusive = () if is_digest else (True,)
    return Kind(
        name, of, empty, lambda into, other: into.merge(other),
        lambda made, share: made.get_quantile(share, *inclusive),
        lambda made, delay: made.get_rank(float(delay), *inclusive),
        lambda made: made.serialize(),
    )  # fmt: skip


KINDS: Final = (
    Kind(
        "histogram", lambda delays: DelayHistogram.of(delays.tolist()), lambda: DelayHistogram({}),
        lambda into, other: into.add(other), lambda made, share: made.quantile(share),
        lambda made, delay: made.share_within(delay), msgspec.json.encode,
    ),
    _sketch("KLL, k = 200", lambda: datasketches.kll_doubles_sketch(200)),
    _sketch("KLL, k = 800", lambda: datasketches.kll_doubles_sketch(800)),
    _sketch("REQ, k = 12", lambda: datasketches.req_floats_sketch(k=12, is_hra=True)),
    _sketch("t-digest, k = 100", lambda: datasketches.tdigest_double(100), is_digest=True),
)  # fmt: skip


def main() -> int:
    """Print the table; the exit code is 1 if the histogram breaks what is promised for it."""
    batches = _delays()
    exact = np.sort(batches.ravel())
    lags = [int(exact[int(np.ceil(share * exact.size)) - 1]) for share in SHARES]
    late = [int(exact.size - np.searchsorted(exact, lag, side="right")) for lag in lags]
    sys.stdout.write(f"{exact.size} rows, {late} of them later than {[lag / 1e6 for lag in lags]} s\n")
    sys.stdout.write(
        "| summary | bytes | lag for 95, 99, 99.9, 99.99 % | late rows | order | replay | CPU |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    verdict = 0
    for kind in KINDS:
        began = time.process_time()
        days = [kind.day(batches) for _ in range(REPEATS)]
        seconds = (time.process_time() - began) / REPEATS
        reversed_day = kind.day([hour[::-1] for hour in batches[::-1]])
        answers = [_answers(kind, day, lags, exact.size) for day in days]
        of_lag = [max(abs(found[index] / lag - 1) for found, _ in answers) for index, lag in enumerate(lags)]
        of_late = [
            max(abs(found[index] - rows) / rows for _, found in answers) for index, rows in enumerate(late)
        ]
        size = max(len(kind.stored(day)) for day in days)
        replay = all(answer == answers[0] for answer in answers)
        order = _answers(kind, reversed_day, lags, exact.size) == answers[0]
        cells = (
            kind.name, str(size), _percents(of_lag), _percents(of_late), "same" if order else "differs",
            "same" if replay else "differs", f"{seconds * 1e3:.0f} ms",
        )  # fmt: skip
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
        if kind.name == "histogram" and (max(of_lag) > 0.1 or not order or not replay or size > 4_000):
            verdict = 1
    return verdict


def _answers(kind: Kind, day: Any, lags: Sequence[int], rows: int) -> tuple[list[float], list[int]]:
    found = [kind.quantile(day, share) for share in SHARES]
    return found, [rows - round(rows * kind.share_within(day, lag)) for lag in lags]


def _delays() -> Delays:
    random = np.random.default_rng(16)
    kind = random.random((HOURS, BATCHES, ROWS))
    seconds, hours = random.lognormal(15, 1.2, kind.shape), random.lognormal(20, 1.0, kind.shape)
    return np.where(kind < 0.9, 0, np.where(kind < 0.999, seconds, hours)).astype(np.int64)


def _percents(errors: Sequence[float]) -> str:
    return ", ".join(f"{100 * error:.1f} %" for error in errors)


if __name__ == "__main__":
    sys.exit(main())
