"""A summary of the saved state of one bucket: its operator, the progress of its inputs and its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackwater.progress.coalescer import inputs_in
from slackwater.progress.combined_watermark import InputState
from slackwater.progress.generator_state import partitions_in
from slackwater.progress.tracker import origins_in
from slackwater.spark.runtime.bucket import FORM, Totals
from slackwater.spark.runtime.keyed_progress import TIMES_FORM
from slackwater.spark.runtime.numbered_progress import NUMBERED_FORM
from slackwater.windows.engine.state_summary import OperatorSummary, summarize


@dataclass(frozen=True)
class BucketSummary:
    """The state of one bucket."""

    operator: OperatorSummary
    clock: int
    """The time of its last micro-batch."""
    ended: bool
    totals: Totals
    inputs: list[list[InputState]]
    """The origins of each input."""


def summarize_bucket(saved: bytes, stored: Mapping[str, bytes]) -> BucketSummary:
    """The summary of a bucket.

    Args:
        saved: its small state.
        stored: the other values of the bucket in the state store, by name.
    """
    state = FORM.decode(saved)
    blobs = {**state.cached, **{name: stored[name] for name in state.stored}}
    return BucketSummary(
        operator=summarize(state.operator, blobs),
        clock=state.now,
        ended=state.ended,
        totals=state.totals,
        inputs=[_origins(part) for part in state.inputs.parts],
    )


def _origins(part: bytes) -> list[InputState]:
    """The origins of an input, by the tag of its saved progress."""
    match part[1:2]:
        case b"G":
            return partitions_in(part)
        case b"K":
            keys = [partitions_in(saved) for saved in TIMES_FORM.decode(part).keys.values()]
            return [origin for origins in keys for origin in origins]
        case b"H":
            return origins_in(NUMBERED_FORM.decode(part).tracker)
        case b"C":
            return inputs_in(part)
        case _:
            return []
