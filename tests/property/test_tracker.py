"""ProgressTracker == model recomputed from all buffers seen, for any order, duplicates and restarts."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import ProgressError
from slackwater.progress.numbering import Rechunker
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import BufferHeader, Emission, Origin, Watermark
from tests.model.tracking import Rejected, TrackerModel

ORIGINS: tuple[Origin, ...] = ("a", "b", 7)


@st.composite
def buffers(draw: st.DrawFn) -> BufferHeader:
    """Small numbers, so that completions, duplicates, gaps and conflicts are frequent."""
    watermarks = draw(
        st.dictionaries(st.sampled_from(["default", "order_time"]), st.integers(-9, 9), max_size=2)
    )
    return BufferHeader(
        draw(st.sampled_from(ORIGINS)),
        draw(st.integers(0, 5)),
        draw(st.integers(0, 3)),
        draw(st.booleans()),
        watermarks,
    )


WORDS = st.tuples(st.sampled_from(["idle", "idle", "done"]), st.sampled_from(ORIGINS))
STEPS = st.lists(st.one_of(buffers(), buffers(), buffers(), WORDS), max_size=25)


@given(st.sampled_from([None, ("a",), ("a", "b"), ORIGINS]), STEPS, st.data())
def test_tracker_equals_the_model(
    declared: tuple[Origin, ...] | None, steps: list[BufferHeader | tuple[str, Origin]], data: st.DataObject
) -> None:
    model, tracker = TrackerModel(declared), ProgressTracker(declared, now=0)
    emitted: list[set[Emission]] = []
    duplicates = 0
    for now, step in enumerate(steps, 1):
        before = tracker.save()
        try:
            if isinstance(step, BufferHeader):
                duplicate = model.observe(step)
                observed = tracker.observe(step, now=now)
                assert observed.duplicate == duplicate
                duplicates += duplicate
                if not duplicate:
                    emitted.append(set(observed.emitted))
            else:
                word, origin = step
                (model.idle if word == "idle" else model.done)(origin)
                emitted.append(set((tracker.idle if word == "idle" else tracker.done)(origin, now=now)))
        except Rejected:
            _must_refuse(tracker, step)
            assert tracker.save() == before, "a refused step has left a trace"
        if data.draw(st.booleans(), label="save and load here"):
            tracker = ProgressTracker.load(tracker.save())
    assert emitted == model.emitted()
    assert tracker.duplicates == duplicates
    assert set(tracker.origins) == set(model.numbers)
    for origin in tracker.origins:
        assert tracker.complete(origin) == model.complete(origin)
        for key in ("default", "order_time"):
            assert tracker.local(origin, key) == model.local(origin, key)


@given(st.lists(buffers(), max_size=25))
def test_observe_all_gives_the_same_result_as_single_calls(headers: list[BufferHeader]) -> None:
    """With declared origins that are never idle, the order of the buffers does not matter."""
    one_by_one, together = ProgressTracker(ORIGINS), ProgressTracker(ORIGINS)
    taken: list[BufferHeader] = []
    duplicates: list[bool] = []
    for header in headers:
        try:
            duplicates.append(one_by_one.observe(header).duplicate)
        except ProgressError:
            continue
        taken.append(header)
    observed = together.observe_all(taken)
    assert observed.duplicates == duplicates
    assert together.save() == one_by_one.save()


def test_an_idle_origin_becomes_active_before_the_watermark_advances() -> None:
    tracker = ProgressTracker(["a", "b"])
    for origin in ("a", "b"):
        tracker.observe(BufferHeader(origin, 1, watermarks={"default": 5}))
    tracker.idle("b")
    both = [BufferHeader(origin, 2, watermarks={"default": at}) for origin, at in (("a", 90), ("b", 8))]
    assert tracker.observe_all(both).emitted == (Watermark(8),)


def _must_refuse(tracker: ProgressTracker, step: BufferHeader | tuple[str, Origin]) -> None:
    if isinstance(step, BufferHeader):
        with pytest.raises(ProgressError, match=re.escape(repr(step.origin))):
            tracker.observe(step)
    else:
        with pytest.raises(ProgressError, match=re.escape(repr(step[1]))):
            (tracker.idle if step[0] == "idle" else tracker.done)(step[1])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_order_and_duplicates_do_not_change_the_result(chunks: list[int], order: random.Random) -> None:
    whole = [
        BufferHeader("a", sequence, chunk, chunk == last, {"default": 10 * sequence + chunk})
        for sequence, last in enumerate(chunks, 1)
        for chunk in range(1, last + 1)
    ]
    twice = whole + order.sample(whole, order.randint(0, len(whole)))
    order.shuffle(twice)
    tracker = ProgressTracker(["a"])
    for header in twice:
        tracker.observe(header)
    assert tracker.complete("a") == len(chunks)
    assert tracker.current() == whole[-1].watermarks["default"]
    assert tracker.duplicates == len(twice) - len(whole)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_a_rechunked_origin_completes_like_its_input(chunks: list[int], order: random.Random) -> None:
    """S9 from downstream: however a stateless stage splits chunks, every sequence completes once."""
    incoming = [
        BufferHeader("a", sequence, chunk, chunk == last, {"default": 10 * sequence + chunk})
        for sequence, last in enumerate(chunks, 1)
        for chunk in range(1, last + 1)
    ]
    order.shuffle(incoming)
    incoming += order.sample(incoming, order.randint(0, len(incoming)))
    upstream, downstream = ProgressTracker(["a"]), ProgressTracker(["a"])
    rechunker = Rechunker("a")
    for header in incoming:
        upstream.observe(header)
        for made in rechunker.rechunk(header, order.randint(1, 3)):
            downstream.observe(made)
        rechunker = Rechunker.load(rechunker.save())
        assert downstream.complete("a") == upstream.complete("a")
        assert downstream.current() == upstream.current()
    assert downstream.duplicates == 0
