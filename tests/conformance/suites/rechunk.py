"""Renumbering of chunks by stateless stages (S9)."""

from __future__ import annotations

from slackwater.progress.numbering import Rechunker
from slackwater.progress.values import BufferHeader
from tests.conformance.framework import Case, Fields, Step, ends_in_error, equal, run_steps

FIELDS = Fields({"steps"}, {"output"})
STEPS = (Fields({"sequence", "chunk", "last", "buffers"}),)
_OUTPUT = Fields({"sequence", "chunk", "last"})


def run(case: Case) -> None:
    saved = Rechunker("origin").save()
    output: list[dict[str, object]] = []

    def perform(step: Step) -> None:
        nonlocal saved
        rechunker = Rechunker.load(saved)
        header = BufferHeader("origin", step["sequence"], step["chunk"], step["last"])
        made = rechunker.rechunk(header, step["buffers"])
        output.extend(
            {"sequence": each.sequence, "chunk": each.chunk, "last": each.last_chunk} for each in made
        )
        saved = rechunker.save()

    run_steps(case["steps"], perform)
    if "output" in case or not ends_in_error(case):
        for expected in case["output"]:
            _OUTPUT.check(expected, "output")
        equal("output", case["output"], output)
