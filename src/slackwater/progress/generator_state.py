"""The saved state of a watermark generator, and what can be read from it without its configuration."""

from __future__ import annotations

from typing import Final

from msgspec import field

from slackwater.progress.combined_watermark import InputState, SavedCombinedWatermark, saved_inputs
from slackwater.progress.learned_lag import SavedLearner
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import Origin


class SavedPartition(Saved):
    """One partition: its slot, and when it last sent something."""

    name: Origin
    slot: int
    heard: int


class SavedGenerator(Saved):
    """The state of a generator.

    Version 2 added ``discovery`` and ``anchors``, version 3 ``learner``, version 4 ``pending``.
    """

    partitions: list[SavedPartition]
    combined: SavedCombinedWatermark
    now: int
    ahead: int
    has_emitted: bool
    discovery: list[int] = field(default_factory=list)
    """The start and the end of the discovery of partitions; empty if there is none or it is over."""
    anchors: list[tuple[int, int, int]] = field(default_factory=list)
    """For a policy that follows events and the clock: slot, watermark by events, and when it was reached."""
    learner: SavedLearner | None = None
    """For a policy that learns its lag."""
    pending: list[tuple[int, int, bool]] = field(default_factory=list)
    """For a policy that follows events one tick later: slot, watermark by events, and whether it is due."""


FORM: Final = SavedForm("watermark generator", "G", 4, SavedGenerator, readable=(1, 2, 3))


def partitions_in(data: bytes) -> list[InputState]:
    """The partitions in the saved state of a generator, whatever its configuration.

    >>> from slackwater.progress.generator import WatermarkGenerator
    >>> from slackwater.progress.watermark_policies import Lag
    >>> generator = WatermarkGenerator(Lag(3), partitions=["a"], now=0)
    >>> _ = generator.observe("a", 10, now=1)
    >>> partitions_in(generator.save())
    [InputState(name='a', status='active', watermarks={'default': 7})]
    """
    saved = FORM.decode(data)
    return saved_inputs(saved.combined, {each.slot: str(each.name) for each in saved.partitions})
