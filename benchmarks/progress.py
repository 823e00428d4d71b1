"""Benchmark of the progress package: nanoseconds per buffer, and the size of saved state.

The baseline is the obvious implementation: it keeps the last watermark of every input and computes the
minimum over all of them in every step. Both must emit the same watermarks before anything is timed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.report import Report, timed
from slackwater.progress.coalescer import Coalescer
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import BufferHeader, Watermark

BUFFERS = (10_000, 100_000, 1_000_000)
ORIGINS = (1, 10, 100, 1_000)
DEPTHS = (0, 10, 1_000, 100_000)
AIM = 300_000
FLAT = 1.5
"""Maximum ratio of the cost per buffer between the longest and the shortest history, with cold caches."""


def headers(buffers: int, origins: int) -> list[BufferHeader]:
    """Headers in order, origins in turn, each with a watermark."""
    return [
        BufferHeader(number % origins, number // origins + 1, watermarks={"default": number})
        for number in range(buffers)
    ]


class ScanningBaseline:
    """The baseline: computes the minimum over all inputs in every step."""

    def __init__(self, inputs: int) -> None:
        self.last: list[int | None] = [None] * inputs
        self.emitted: int | None = None

    def watermark(self, ordinal: int, value: int) -> int | None:
        """Return the emitted watermark, if any."""
        self.last[ordinal] = value
        known = [each for each in self.last if each is not None]
        if len(known) < len(self.last):
            return None
        lowest = min(known)
        if self.emitted is not None and lowest <= self.emitted:
            return None
        self.emitted = lowest
        return lowest


def run(report: Report) -> None:
    """All sections."""
    _check_equality()
    _history(report)
    _against_scanning(report)
    _disorder(report)
    _saved_size(report)


def _check_equality() -> None:
    """Check that tracker, coalescer and baseline emit the same watermarks for a random order of origins."""
    rng = random.Random(7)
    for inputs in (1, 3, 50):
        baseline, coalescer, tracker = (
            ScanningBaseline(inputs),
            Coalescer(inputs),
            ProgressTracker(range(inputs)),
        )
        sequences = [0] * inputs
        for value in range(5_000):
            ordinal = rng.randrange(inputs)
            sequences[ordinal] += 1
            expected = baseline.watermark(ordinal, value)
            wanted = () if expected is None else (Watermark(expected),)
            assert coalescer.watermark(ordinal, Watermark(value)) == wanted
            header = BufferHeader(ordinal, sequences[ordinal], watermarks={"default": value})
            assert tracker.observe(header).emitted == wanted


def _track(stream: list[BufferHeader], origins: int) -> ProgressTracker:
    tracker = ProgressTracker(range(origins))
    observe = tracker.observe
    for header in stream:
        observe(header)
    return tracker


def _coalesce(steps: list[tuple[int, Watermark]], inputs: int) -> Coalescer:
    coalescer = Coalescer(inputs)
    watermark = coalescer.watermark
    for ordinal, value in steps:
        watermark(ordinal, value)
    return coalescer


def _history(report: Report) -> None:
    section = report.section(
        "Progress: nanoseconds per buffer, by history and number of origins",
        "Buffers of one chunk, in order, round-robin over the origins, with one watermark each.",
        ("origins", "buffers", "tracker ns", "buffers/s", "coalescer ns", "watermarks/s"),
    )
    costs: dict[tuple[int, int], float] = {}
    for origins in ORIGINS:
        for buffers in BUFFERS:
            stream = headers(buffers, origins)
            steps = [(number % origins, Watermark(number)) for number in range(buffers)]
            runs = 1 if buffers == max(BUFFERS) else 3
            tracking = timed(lambda s=stream, o=origins: _track(s, o), runs).undisturbed / buffers  # type: ignore[misc]  # bound now
            coalescing = timed(lambda s=steps, o=origins: _coalesce(s, o), runs).undisturbed / buffers  # type: ignore[misc]  # bound now
            costs[origins, buffers] = tracking
            section.row(
                origins,
                buffers,
                round(tracking * 1e9),
                round(1 / tracking),
                round(coalescing * 1e9),
                round(1 / coalescing),
            )
    slowest = max(costs.values())
    section.verdict(f"slowest tracker figure: {round(1 / slowest):,} buffers/s (aim: {AIM:,})")
    growth = max(costs[origins, max(BUFFERS)] / costs[origins, min(BUFFERS)] for origins in ORIGINS)
    section.verdict(
        f"100 times the history costs at most {growth:.2f} times as much per buffer (aim: below {FLAT})"
    )
    steps_up = [costs[more, BUFFERS[1]] / costs[fewer, BUFFERS[1]] for fewer, more in pairwise(ORIGINS)]
    section.verdict(
        f"10 times the origins costs at most {max(steps_up):.2f} times as much per buffer (aim: below {FLAT})"
    )
    report.show(section)


def _against_scanning(report: Report) -> None:
    section = report.section(
        "Progress: compared with scanning all inputs",
        "10,000 watermarks. The baseline computes the minimum over all inputs every time. Both emit the "
        "same.",
        ("inputs", "coalescer ns", "baseline ns", "ratio"),
    )
    for inputs in ORIGINS:
        steps = [(number % inputs, Watermark(number)) for number in range(10_000)]

        def scan(steps: list[tuple[int, Watermark]] = steps, inputs: int = inputs) -> None:
            baseline = ScanningBaseline(inputs)
            for ordinal, (value, _) in steps:
                baseline.watermark(ordinal, value)

        ours = timed(lambda s=steps, n=inputs: _coalesce(s, n)).undisturbed  # type: ignore[misc]  # bound now
        theirs = timed(scan).undisturbed
        section.row(inputs, round(ours / 10_000 * 1e9), round(theirs / 10_000 * 1e9), f"{theirs / ours:.1f}×")
    report.show(section)


def _shuffled(depth: int, buffers: int) -> Iterator[BufferHeader]:
    """Yield headers in which each block of ``depth`` buffers is shuffled."""
    rng = random.Random(depth)
    for start in range(1, buffers + 1, depth):
        block = list(range(start, min(start + depth, buffers + 1)))
        rng.shuffle(block)
        for sequence in block:
            yield BufferHeader(0, sequence, watermarks={"default": sequence})


def _disorder(report: Report) -> None:
    section = report.section(
        "Progress: shuffled, chunked and duplicated buffers",
        "100,000 buffers of one origin: shuffled within blocks, in four chunks per sequence, or each sent "
        "twice.",
        ("input", "tracker ns", "buffers/s"),
    )
    buffers = 100_000
    chunked = [
        BufferHeader(0, sequence, chunk, chunk == 4, {"default": sequence})
        for sequence in range(1, buffers // 4 + 1)
        for chunk in (1, 2, 3, 4)
    ]
    inputs: dict[str, list[BufferHeader]] = {
        f"shuffled in blocks of {depth:,}": list(_shuffled(depth, buffers)) for depth in (10, 1_000, 100_000)
    }
    inputs["four chunks per sequence"] = chunked
    inputs["every buffer twice"] = [header for header in headers(buffers // 2, 1) for _ in range(2)]
    for name, stream in inputs.items():
        tracker = _track(stream, 1)
        assert tracker.complete(0) == max(header.sequence for header in stream)
        assert tracker.current() == max(header.watermarks["default"] for header in stream)
        cost = timed(lambda s=stream: _track(s, 1)).undisturbed / len(stream)  # type: ignore[misc]  # bound now
        section.row(name, round(cost * 1e9), round(1 / cost))
    report.show(section)


def _saved_size(report: Report) -> None:
    section = report.section(
        "Progress: size of saved state",
        "One origin after 100,000 sequences, plus sequences after a gap: all of them, or only every "
        "second one.",
        (
            "sequences after the gap",
            "bytes, one gap",
            "bytes, one gap per sequence",
            "load µs, one gap per sequence",
        ),
    )
    for depth in DEPTHS:
        sizes = []
        for stride in (1, 2):
            tracker = _track(headers(100_000, 1), 1)
            for number in range(depth):
                tracker.observe(BufferHeader(0, 100_002 + stride * number, watermarks={"default": number}))
            saved = tracker.save()
            assert ProgressTracker.load(saved).save() == saved
            sizes.append(len(saved))
        loading = timed(lambda s=saved: ProgressTracker.load(s)).undisturbed  # type: ignore[misc]  # bound now
        section.row(depth, *sizes, round(loading * 1e6))
    section.verdict("the size depends on the number of gaps, not on the length of the history")
    report.show(section)
