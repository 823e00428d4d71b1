"""Reference model of coalescing: recomputed from the whole history at every step.

The implementation maintains minima, blocked keys and idle inputs incrementally. The model derives them from
all steps so far, so that its code contains only the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slackwater.progress.values import IDLE, Emission, Watermark

Kind = Literal["watermark", "event", "idle", "done"]


@dataclass(frozen=True)
class Message:
    """One step: a message of an input. ``watermarks`` only with kind "watermark"."""

    source: int
    kind: Kind
    watermarks: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class World:
    """The active and idle inputs after some steps, and the watermarks of all inputs."""

    active: frozenset[int]
    idle: frozenset[int]
    last: dict[tuple[int, str], int]

    def due(self, key: str, observed: Sequence[int]) -> int | None:
        if not self.active:
            return max(observed, default=None)
        values = [self.last.get((source, key)) for source in self.active]
        return None if None in values else min(value for value in values if value is not None)


def world_after(declared: int, steps: Sequence[Message]) -> World:
    """Replay all steps; inputs beyond the declared ones exist from their first step on."""
    sources = set(range(declared)) | {step.source for step in steps}
    active: set[int] = set()
    idle: set[int] = set()
    last: dict[tuple[int, str], int] = {}
    for source in sources:
        sent = [step for step in steps if step.source == source]
        kinds = [step.kind for step in sent]
        if "done" not in kinds:
            (idle if kinds and kinds[-1] == "idle" else active).add(source)
        for step in sent:
            for key, value in step.watermarks:
                last[source, key] = max(value, last.get((source, key), value))
    return World(frozenset(active), frozenset(idle), last)


def emissions(declared: int, steps: Sequence[Message]) -> list[set[Emission]]:
    """The expected emissions of each step."""
    outputs: list[set[Emission]] = []
    for number in range(1, len(steps) + 1):
        history = steps[:number]
        world = world_after(declared, history)
        output: set[Emission] = set()
        for key in {key for step in history for key, _ in step.watermarks}:
            observed = [value for step in history for name, value in step.watermarks if name == key]
            value = world.due(key, observed)
            before = [
                each.value
                for past in outputs
                for each in past
                if isinstance(each, Watermark) and each.key == key
            ]
            if value is not None and value > max(before, default=value - 1):
                output.add(Watermark(value, key))
        if not world.active and world.idle and not _idle_still_said(declared, steps, outputs):
            output.add(IDLE)
        outputs.append(output)
    return outputs


def _idle_still_said(declared: int, steps: Sequence[Message], outputs: Sequence[set[Emission]]) -> bool:
    """Whether IDLE was emitted and no input has been active since."""
    for number in range(len(outputs) - 1, -1, -1):
        if world_after(declared, steps[: number + 1]).active:
            return False
        if IDLE in outputs[number]:
            return True
    return False
