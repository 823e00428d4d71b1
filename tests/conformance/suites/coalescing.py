"""Coalescing (C1-C10): each case runs a `Coalescer`, in one go and saved between steps."""

from __future__ import annotations

from slackwater.progress.coalescer import Coalescer
from slackwater.progress.values import DEFAULT_KEY, Emission, Watermark
from tests.conformance.emissions import check_emissions
from tests.conformance.framework import Case, Fields, Step, flag, run_steps

FIELDS = Fields({"inputs", "steps"})
STEPS = (
    Fields({"input", "watermark"}, {"key", "emit"}),
    Fields({"input", "idle"}, {"emit"}),
    Fields({"input", "event"}, {"emit"}),
    Fields({"input", "done"}, {"emit"}),
)


def _perform(coalescer: Coalescer, step: Step) -> tuple[Emission, ...]:
    ordinal = step["input"]
    if "watermark" in step:
        return coalescer.watermark(ordinal, Watermark(step["watermark"], step.get("key", DEFAULT_KEY)))
    if flag(step, "idle"):
        return coalescer.idle(ordinal)
    if flag(step, "event"):
        return coalescer.event(ordinal)
    flag(step, "done")
    return coalescer.done(ordinal)


def _in_one_go(case: Case) -> None:
    coalescer = Coalescer(case["inputs"])
    run_steps(case["steps"], lambda step: check_emissions(step.get("emit", []), _perform(coalescer, step)))


def _saved_between_steps(case: Case) -> None:
    saved = Coalescer(case["inputs"]).save()

    def perform(step: Step) -> None:
        nonlocal saved
        coalescer = Coalescer.load(saved)
        check_emissions(step.get("emit", []), _perform(coalescer, step))
        saved = coalescer.save()

    run_steps(case["steps"], perform)


SUBJECTS = {"": _in_one_go, "saved": _saved_between_steps}
