"""The reference model of triggers: one small state machine per node of the trigger, key and window.

Written from the specification alone, without regard to speed: each node computes whether it is ready, how a
firing changes it, and how the states of merging sessions are combined. The operator evaluates the same
triggers on columns; the property tests show that both agree.

Every node counts every element, also a node that is not current, because a merge of sessions may make it
current again. This has no other effect: a firing clears the counts of all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater import windows as configuration


@dataclass(frozen=True)
class Moment:
    """When a trigger is evaluated: whether the window is complete, the processing time and the watermark."""

    complete: bool
    clock: int
    watermark: int


class Node:
    """A trigger of one key and window."""

    def __init__(self, *children: Node) -> None:
        self.children = children

    def add(self, count: int, now: int, since: int) -> None:
        """Add elements; ``since`` is the watermark at their arrival, at least the start of the window."""
        for child in self.children:
            child.add(count, now, since)

    def ready(self, moment: Moment) -> bool:
        """Whether the trigger is ready."""
        raise NotImplementedError

    def fire(self, moment: Moment) -> bool:
        """Fire because of this node; returns whether the node is finished."""
        raise NotImplementedError

    def forget(self) -> None:
        """Clear counts and first arrivals after a firing."""
        for child in self.children:
            child.forget()

    def reset(self) -> None:
        """Reset all state."""
        for child in self.children:
            child.reset()

    def merge(self, sources: Sequence[Node], moment: Moment) -> bool:
        """Become, from a fresh node, that of the session made of these open ones.

        The answer is whether an after_watermark that had fired in one of them rewinds.
        """
        rewinds = [
            child.merge([source.children[position] for source in sources], moment)
            for position, child in enumerate(self.children)
        ]
        return any(rewinds)

    def targets(self) -> list[int]:
        """The processing times for which this trigger waits."""
        return [target for child in self.children for target in child.targets()]

    def multiples(self) -> list[int]:
        """The watermarks for which this trigger waits."""
        return [multiple for child in self.children for multiple in child.multiples()]


class Count(Node):
    """after_count(n): elements since the last firing."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.wanted = count
        self.seen = 0

    def add(self, count: int, now: int, since: int) -> None:
        self.seen += count

    def ready(self, moment: Moment) -> bool:
        return self.seen >= self.wanted

    def fire(self, moment: Moment) -> bool:
        self.forget()
        return True

    def forget(self) -> None:
        self.seen = 0

    def reset(self) -> None:
        self.seen = 0

    def merge(self, sources: Sequence[Node], moment: Moment) -> bool:
        self.seen = sum(source.seen for source in sources if isinstance(source, Count))
        return False


class ProcessingTime(Node):
    """after_processing_time(d): strictly later than the first element of the pane + d."""

    def __init__(self, delay: int) -> None:
        super().__init__()
        self.delay = delay
        self.target: int | None = None

    def add(self, count: int, now: int, since: int) -> None:
        if self.target is None:
            self.target = now + self.delay

    def ready(self, moment: Moment) -> bool:
        return self.target is not None and moment.clock > self.target

    def fire(self, moment: Moment) -> bool:
        self.forget()
        return True

    def forget(self) -> None:
        self.target = None

    def reset(self) -> None:
        self.target = None

    def merge(self, sources: Sequence[Node], moment: Moment) -> bool:
        self.target = min((target for source in sources for target in source.targets()), default=None)
        return False

    def targets(self) -> list[int]:
        return [] if self.target is None else [self.target]


class EventTime(Node):
    """after_event_time(d): the watermark reaches a multiple of d after the first element of the pane."""

    def __init__(self, interval: int) -> None:
        super().__init__()
        self.interval = interval
        self.since: int | None = None

    def add(self, count: int, now: int, since: int) -> None:
        if self.since is None:
            self.since = since

    def ready(self, moment: Moment) -> bool:
        return any(multiple <= moment.watermark for multiple in self.multiples())

    def fire(self, moment: Moment) -> bool:
        self.forget()
        return True

    def forget(self) -> None:
        self.since = None

    def reset(self) -> None:
        self.since = None

    def merge(self, sources: Sequence[Node], moment: Moment) -> bool:
        known = [one.since for one in sources if isinstance(one, EventTime) and one.since is not None]
        self.since = min(known, default=None)
        return False

    def multiples(self) -> list[int]:
        return [] if self.since is None else [(self.since // self.interval + 1) * self.interval]


class Watermark(Node):
    """after_watermark(early, late): early panes, one at the end, late panes."""

    def __init__(self, early: Node | None, late: Node | None) -> None:
        super().__init__(*(child for child in (early, late) if child is not None))
        self.early = early
        self.late = late
        self.past_end = False

    def ready(self, moment: Moment) -> bool:
        if not self.past_end:
            return moment.complete or (self.early is not None and self.early.ready(moment))
        return self.late is not None and self.late.ready(moment)

    def fire(self, moment: Moment) -> bool:
        self.past_end = self.past_end or moment.complete
        for child in self.children:
            child.reset()
        return self.past_end and self.late is None

    def reset(self) -> None:
        super().reset()
        self.past_end = False

    def merge(self, sources: Sequence[Node], moment: Moment) -> bool:
        inner = super().merge(sources, moment)
        fired = [source.past_end for source in sources if isinstance(source, Watermark)]
        self.past_end = moment.complete and bool(fired) and all(fired)
        if not self.past_end and self.late is not None:
            self.late.reset()
        return inner or (any(fired) and not self.past_end)

    def targets(self) -> list[int]:
        active = self.late if self.past_end else self.early
        return [] if active is None else active.targets()

    def multiples(self) -> list[int]:
        active = self.late if self.past_end else self.early
        return [] if active is None else active.multiples()


class Repeatedly(Node):
    """repeatedly(t): t, reset when it finishes."""

    def ready(self, moment: Moment) -> bool:
        return self.children[0].ready(moment)

    def fire(self, moment: Moment) -> bool:
        if self.children[0].fire(moment):
            self.children[0].reset()
        return False


class Each(Node):
    """after_each(a, b, …): one after the other."""

    def __init__(self, *children: Node) -> None:
        super().__init__(*children)
        self.position = 0

    def ready(self, moment: Moment) -> bool:
        return self.children[self.position].ready(moment)

    def fire(self, moment: Moment) -> bool:
        finished = self.children[self.position].fire(moment)
        for number, child in enumerate(self.children):
            if finished or number != self.position:
                child.forget()
        if finished and self.position == len(self.children) - 1:
            return True
        self.position += finished
        return False

    def reset(self) -> None:
        super().reset()
        self.position = 0

    def merge(self, sources: Sequence[Node], moment: Moment) -> bool:
        """The furthest trigger of any session, but at most the first one whose after_watermark rewinds."""
        furthest = max((source.position for source in sources if isinstance(source, Each)), default=0)
        rewinds = [
            child.merge([source.children[number] for source in sources], moment)
            for number, child in enumerate(self.children)
        ]
        self.position = next((number for number in range(furthest) if rewinds[number]), furthest)
        for later in self.children[self.position + 1 :]:
            later.reset()
        return any(rewinds)

    def targets(self) -> list[int]:
        return self.children[self.position].targets()

    def multiples(self) -> list[int]:
        return self.children[self.position].multiples()


class Any(Node):
    """after_any: one is ready; finishes on its first firing."""

    def ready(self, moment: Moment) -> bool:
        return any(child.ready(moment) for child in self.children)

    def fire(self, moment: Moment) -> bool:
        for child in self.children:
            if child.ready(moment):
                child.fire(moment)
        self.forget()
        return True


class All(Node):
    """after_all: all are ready; finishes on its first firing."""

    def ready(self, moment: Moment) -> bool:
        return all(child.ready(moment) for child in self.children)

    def fire(self, moment: Moment) -> bool:
        for child in self.children:
            child.fire(moment)
        self.forget()
        return True


class OrFinally(Node):
    """or_finally(main, until): until counts all elements, independently of main, and finishes both."""

    def ready(self, moment: Moment) -> bool:
        return any(child.ready(moment) for child in self.children)

    def fire(self, moment: Moment) -> bool:
        main, until = self.children
        if until.ready(moment):
            until.fire(moment)
        elif not main.fire(moment):
            return False
        self.forget()
        return True


class Never(Node):
    """never: nothing before the purge."""

    def ready(self, moment: Moment) -> bool:
        return False


class Always(Node):
    """always: ready whenever it is evaluated."""

    def ready(self, moment: Moment) -> bool:
        return True

    def fire(self, moment: Moment) -> bool:
        return False


def build(trigger: configuration.Trigger) -> Node:
    """The state machine of a trigger."""
    match trigger:
        case configuration.AfterWatermark(early=early, late=late):
            return Watermark(None if early is None else build(early), None if late is None else build(late))
        case configuration.AfterCount(count=count):
            return Count(count)
        case configuration.AfterProcessingTime(delay=delay):
            return ProcessingTime(delay)
        case configuration.AfterEventTime(interval=interval):
            return EventTime(interval)
        case configuration.Repeatedly(trigger=repeated):
            return Repeatedly(build(repeated))
        case configuration.AfterEach(triggers=triggers):
            return Each(*map(build, triggers))
        case configuration.AfterAny(triggers=triggers):
            return Any(*map(build, triggers))
        case configuration.AfterAll(triggers=triggers):
            return All(*map(build, triggers))
        case configuration.OrFinally(main=main, until=until):
            return OrFinally(build(main), build(until))
        case configuration.Never():
            return Never()
        case configuration.Always():
            return Always()
    raise TypeError(f"no such trigger: {trigger!r}")
