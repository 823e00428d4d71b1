"""The cut of a mark (M4): each case with its positions in the given and in the reverse order."""

from __future__ import annotations

from slackwater.streams.segments.cuts import check_cut, stream_cut
from tests.conformance.framework import Case, Fields, equal
from tests.conformance.streams import Named

FIELDS = Fields({"segments", "epochs", "positions", "cut"}, {"previous"})


def run(case: Case) -> None:
    named = Named(case)
    epochs = named.epochs(case["epochs"])
    positions = [named.position(position) for position in case["positions"]]
    previous = named.position(case["previous"]) if "previous" in case else None
    for ordered in (positions, positions[::-1]):
        cut = stream_cut(epochs, ordered, previous)
        equal("cut", case["cut"], named.named(cut))
        check_cut(epochs, cut)
