"""Sequences, chunks and origins (S1-S8, S10): each case runs a `ProgressTracker`."""

from __future__ import annotations

from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import DEFAULT_KEY, BufferHeader
from tests.conformance.framework import Case, Fields, Step, equal, flag, run_steps

_ASSERTED = {"complete", "local", "global", "duplicate"}

FIELDS = Fields({"steps"}, {"origins"})
STEPS = (
    Fields({"origin", "sequence", "chunk", "last"}, {"watermark", *_ASSERTED}),
    Fields({"origin", "idle"}, _ASSERTED),
    Fields({"origin", "done"}, _ASSERTED),
)


def _perform(tracker: ProgressTracker, step: Step) -> None:
    origin = step["origin"]
    duplicate = False
    if "sequence" in step:
        watermark = step.get("watermark")
        watermarks = {} if watermark is None else {DEFAULT_KEY: watermark}
        header = BufferHeader(origin, step["sequence"], step["chunk"], step["last"], watermarks)
        duplicate = tracker.observe(header).duplicate
    elif flag(step, "idle"):
        tracker.idle(origin)
    elif flag(step, "done"):
        tracker.done(origin)
    found = {
        "duplicate": duplicate,
        "complete": tracker.complete(origin),
        "local": tracker.local(origin),
        "global": tracker.current(),
    }
    for name in sorted(_ASSERTED & step.keys()):
        equal(name, step[name], found[name])


def _in_one_go(case: Case) -> None:
    tracker = ProgressTracker(case.get("origins"))
    run_steps(case["steps"], lambda step: _perform(tracker, step))


def _saved_between_steps(case: Case) -> None:
    saved = ProgressTracker(case.get("origins")).save()

    def perform(step: Step) -> None:
        nonlocal saved
        tracker = ProgressTracker.load(saved)
        _perform(tracker, step)
        saved = tracker.save()

    run_steps(case["steps"], perform)


SUBJECTS = {"": _in_one_go, "saved": _saved_between_steps}
