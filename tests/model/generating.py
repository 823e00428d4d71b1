"""Reference model of a watermark generator: recomputed from the whole history at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slackwater.progress.delays import DelayHistogram
from slackwater.progress.values import IDLE, Emission, Watermark
from slackwater.progress.watermark_policies import (
    Clock,
    Constant,
    FixedDelay,
    Lag,
    LagThenClock,
    Learned,
    WatermarkPolicy,
)


@dataclass(frozen=True)
class Happened:
    """One step: an event (partition and timestamp), a tick, an addition or a removal."""

    now: int
    kind: str
    partition: str | None = None
    timestamp: int | None = None


@dataclass
class GeneratorModel:
    """All steps so far; every result is derived from them."""

    policy: WatermarkPolicy
    idle_after: int | None
    frame: int
    frame_offset: int
    max_ahead: int | None
    discovers: bool
    discover: int | None
    steps: list[Happened] = field(default_factory=list)
    outputs: list[list[Emission]] = field(default_factory=list)

    def present(self, upto: int) -> list[str]:
        """The partitions that exist after ``upto`` steps."""
        there: list[str] = []
        for step in self.steps[:upto]:
            if step.kind == "add" and step.partition is not None:
                there.append(step.partition)
            if step.kind == "remove" and step.partition is not None:
                there.remove(step.partition)
        return there

    def since(self, partition: str, upto: int) -> int:
        """The step that added the partition most recently."""
        return max(
            number
            for number, step in enumerate(self.steps[:upto])
            if step.kind == "add" and step.partition == partition
        )

    def is_idle(self, partition: str, upto: int) -> bool:
        """Whether an evaluation since its last event found it silent for the timeout."""
        if self.idle_after is None:
            return False
        heard = max(
            number
            for number, step in enumerate(self.steps[:upto])
            if step.partition == partition and step.kind in {"add", "event"}
        )
        return any(
            step.kind != "add" and step.now - self.steps[heard].now >= self.idle_after
            for step in self.steps[heard:upto]
        )

    def watermark(self, partition: str, upto: int) -> int | None:
        """The partition's own watermark."""
        if isinstance(self.policy, LagThenClock):
            return self._by_events_and_clock(self.policy, partition, upto)
        values: list[int] = []
        for number in range(self.since(partition, upto), upto):
            step = self.steps[number]
            if step.kind == "add":
                continue
            if isinstance(self.policy, Lag | Learned):
                if step.kind == "event" and step.partition == partition and not self.is_ahead(step):
                    assert step.timestamp is not None
                    values.append(step.timestamp - self.lag(number + 1))
            elif not self.is_idle(partition, number + 1):
                limit = step.timestamp if step.kind == "event" else None
                values.append(self.clock_value(step.now, limit))
        return max(values, default=None)

    def _by_events_and_clock(self, policy: LagThenClock, partition: str, upto: int) -> int | None:
        """The highest event minus the lag, plus the time since then in which the partition was active."""
        value: int | None = None
        anchor: tuple[int, int] | None = None
        for number in range(self.since(partition, upto) + 1, upto):
            step = self.steps[number]
            if step.kind == "event" and step.partition == partition:
                assert step.timestamp is not None
                if self.is_idle(partition, number) and value is not None:
                    anchor = value, step.now
                reached = step.timestamp - policy.lag
                if not self.is_ahead(step):
                    value = reached if value is None else max(value, reached)
                    if anchor is None or reached > anchor[0]:
                        anchor = reached, step.now
            if step.kind == "tick" and anchor is not None and not self.is_idle(partition, number + 1):
                assert value is not None
                value = max(value, anchor[0] + max(0, step.now - anchor[1]))
        return value

    def lag(self, upto: int) -> int:
        """The lag after ``upto`` steps: fixed, or the quantile of the delays of all events so far."""
        if not isinstance(self.policy, Learned):
            assert isinstance(self.policy, Lag)
            return self.policy.lag
        delays: list[int] = []
        for number, step in enumerate(self.steps[:upto]):
            if step.kind == "event" and step.partition is not None and not self.is_ahead(step):
                assert step.timestamp is not None
                reached = [
                    before.timestamp
                    for before in self.steps[self.since(step.partition, number) : number]
                    if before.kind == "event" and before.partition == step.partition
                    if before.timestamp is not None and not self.is_ahead(before)
                ]
                delays += [max(0, max(reached) - step.timestamp)] if reached else []
        limit = self.policy.initial if self.policy.at_most is None else self.policy.at_most
        lag, needed = self.policy.initial, round(10 / (1 - self.policy.coverage))
        if len(delays) < needed:
            lag = max([lag, *delays])
        else:
            delay = sorted(delays)[math.ceil(self.policy.coverage * len(delays)) - 1]
            lag = DelayHistogram.of([delay, max(delays)]).quantile(0.5)
        return lag if self.policy.at_most is None else min(lag, limit)

    def clock_value(self, now: int, limit: int | None) -> int:
        match self.policy:
            case FixedDelay():
                return now - self.policy.lag
            case Clock():
                value = now - self.policy.lag
            case Constant():
                value = self.policy.value
            case _:
                raise AssertionError(self.policy)
        return value if limit is None else min(value, limit)

    def is_ahead(self, step: Happened) -> bool:
        return (
            self.max_ahead is not None
            and step.timestamp is not None
            and step.timestamp > step.now + self.max_ahead
        )

    def ahead(self) -> int:
        return sum(1 for step in self.steps if self.is_ahead(step))

    def perform(self, step: Happened) -> list[Emission]:
        """The expected emissions of the step."""
        self.steps.append(step)
        output: list[Emission] = [] if step.kind == "add" else self._evaluate()
        self.outputs.append(output)
        return output

    def _evaluate(self) -> list[Emission]:
        upto = len(self.steps)
        evaluated = [step.now for step in self.steps if step.kind != "add"]
        if self.discover is not None and max(evaluated) < self.discover:
            return []
        active = [partition for partition in self.present(upto) if not self.is_idle(partition, upto)]
        value: int | None
        if active:
            own = [self.watermark(partition, upto) for partition in active]
            value = None if None in own else min(each for each in own if each is not None)
        else:
            value = self._top()
        output: list[Emission] = []
        if value is not None and self.frame:
            floored = (value - self.frame_offset) // self.frame * self.frame + self.frame_offset
            before = [each.value for past in self.outputs for each in past if isinstance(each, Watermark)]
            if floored > max(before, default=floored - 1):
                output.append(Watermark(floored))
        heard = not self.discovers or any(step.kind == "add" for step in self.steps)
        if not active and heard and not self._idle_still_said():
            output.append(IDLE)
        return output

    def _top(self) -> int | None:
        """The highest watermark that any partition, also a removed one, ever had."""
        tops = [
            value
            for upto in range(1, len(self.steps) + 1)
            for partition in self.present(upto)
            if (value := self.watermark(partition, upto)) is not None
        ]
        return max(tops, default=None)

    def _idle_still_said(self) -> bool:
        for number in range(len(self.outputs) - 1, -1, -1):
            upto = number + 1
            if any(not self.is_idle(partition, upto) for partition in self.present(upto)):
                return False
            if IDLE in self.outputs[number]:
                return True
        return False
