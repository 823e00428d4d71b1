"""Async stages (A1-A3): the ordering of submitted and completed items, without an event loop."""

from __future__ import annotations

from slackwater.progress.ordering import OrderedResults, Ticket, UnorderedResults
from slackwater.progress.values import DEFAULT_KEY, Watermark
from tests.conformance.framework import Case, Difference, Fields, Step, ends_in_error, equal, run_steps

FIELDS = Fields({"mode", "steps"}, {"capacity", "output"})
STEPS = (
    Fields({"submit"}, {"refused"}),
    Fields({"complete"}),
    Fields({"watermark"}, {"key"}),
)
_WATERMARK = Fields({"watermark"}, {"key"})


def run(case: Case) -> None:
    modes = {"ordered": OrderedResults[str], "unordered": UnorderedResults[str]}
    if case["mode"] not in modes:
        raise Difference(f"mode {case['mode']!r} is not one of {sorted(modes)}")
    stage = modes[case["mode"]](case.get("capacity"))
    tickets: dict[str, Ticket] = {}
    output: list[str | Watermark] = []

    def perform(step: Step) -> None:
        if "submit" in step:
            ticket = stage.submit()
            equal("refused", step.get("refused", False), ticket is None)
            if ticket is not None:
                tickets[step["submit"]] = ticket
        elif "complete" in step:
            name = step["complete"]
            output.extend(stage.complete(tickets.get(name, Ticket(-1)), name))
        else:
            output.extend(stage.watermark(Watermark(step["watermark"], step.get("key", DEFAULT_KEY))))

    run_steps(case["steps"], perform)
    if "output" in case or not ends_in_error(case):
        equal("output", [_parsed(entry) for entry in case["output"]], output)


def _parsed(entry: object) -> object:
    if not isinstance(entry, dict):
        return entry
    _WATERMARK.check(entry, "output")
    return Watermark(entry["watermark"], entry.get("key", DEFAULT_KEY))
