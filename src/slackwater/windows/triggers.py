"""When a pane is emitted: the trigger algebra as plain values.

A trigger is a small tree of frozen dataclasses. How a tree is evaluated, for all keys and windows
at once, is in :mod:`slackwater.windows.engine.trigger_machine`; here is only what a trigger says, and
whether it can finish, because a finished trigger closes its window and loses what comes after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.time import DurationLike, check_int64, duration


@dataclass(frozen=True, slots=True)
class AfterWatermark:
    """Once when the window is complete; before that ``early``, after that ``late``, both repeated.

    >>> AfterWatermark(early=AfterCount(1000)).can_finish
    True
    >>> AfterWatermark(late=Repeatedly(AfterCount(1))).can_finish
    False
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for name, part in (("early", self.early), ("late", self.late)):
            if part is not None:
                _check_trigger(name, part)

    @property
    def can_finish(self) -> bool:
        """Whether it can fire for the last time: without ``late``, at the end of the window."""
        return self.late is None


@dataclass(frozen=True, slots=True)
class AfterCount:
    """When at least ``count`` elements came since the last firing.

    >>> AfterCount(0)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: count = 0: must be at least 1; write after_count(1) for every batch
    """

    count: int

    def __post_init__(self) -> None:
        if check_int64(self.count, "count") < 1:
            raise InvalidArgument(
                "count", self.count, "must be at least 1", fix="write after_count(1) for every batch"
            )

    @property
    def can_finish(self) -> bool:
        """Always: it fires once."""
        return True


@dataclass(frozen=True, slots=True)
class AfterProcessingTime:
    """When the clock is later than the first element of the pane plus ``delay`` microseconds.

    >>> AfterProcessingTime(5).delay
    5
    """

    delay: int

    def __post_init__(self) -> None:
        if check_int64(self.delay, "delay") < 0:
            raise InvalidArgument("delay", self.delay, "must not be negative", fix='write delay="5 seconds"')

    @property
    def can_finish(self) -> bool:
        """Always: it fires once."""
        return True


@dataclass(frozen=True, slots=True)
class Repeatedly:
    """Its trigger, started again whenever it has finished.

    >>> Repeatedly(AfterCount(2)).can_finish
    False
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        _check_trigger("trigger", self.trigger)

    @property
    def can_finish(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True, init=False)
class AfterEach:
    """One trigger after the other; finished with the last.

    >>> AfterEach(AfterCount(2), AfterCount(3)).triggers
    (AfterCount(count=2), AfterCount(count=3))
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        _set_triggers(self, triggers)

    @property
    def can_finish(self) -> bool:
        """If every one of them can."""
        return all(part.can_finish for part in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AfterAny:
    """As soon as one of them is ready; finished with its first firing.

    >>> AfterAny(AfterCount(2), AfterWatermark()).can_finish
    True
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        _set_triggers(self, triggers)

    @property
    def can_finish(self) -> bool:
        """If one of them can be ready at all."""
        return any(can_fire(part) for part in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AfterAll:
    """When all of them are ready at once; finished with its first firing.

    >>> AfterAll(AfterCount(2), Never()).can_finish
    False
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        _set_triggers(self, triggers)

    @property
    def can_finish(self) -> bool:
        """If all of them can be ready at all."""
        return all(can_fire(part) for part in self.triggers)


@dataclass(frozen=True, slots=True)
class OrFinally:
    """``main``, until ``until`` fires; ``until`` sees all elements, whatever ``main`` does.

    >>> OrFinally(Repeatedly(AfterCount(2)), AfterCount(5)).can_finish
    True
    """

    main: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        _check_trigger("main", self.main)
        _check_trigger("until", self.until)

    @property
    def can_finish(self) -> bool:
        """If ``main`` can finish or ``until`` can fire."""
        return self.main.can_finish or can_fire(self.until)


@dataclass(frozen=True, slots=True)
class Never:
    """Not at all: what came is emitted when the window is purged.

    >>> Never().can_finish
    False
    """

    @property
    def can_finish(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class Always:
    """Whenever it is asked: with every batch, and when the window completes.

    >>> Always().can_finish
    False
    """

    @property
    def can_finish(self) -> bool:
        """Never."""
        return False


Trigger = (
    AfterWatermark
    | AfterCount
    | AfterProcessingTime
    | Repeatedly
    | AfterEach
    | AfterAny
    | AfterAll
    | OrFinally
    | Never
    | Always
)
"""Any trigger configuration."""
_NAMES: Final[dict[type, str]] = {
    AfterWatermark: "after_watermark",
    AfterCount: "after_count",
    AfterProcessingTime: "after_processing_time",
    Repeatedly: "repeatedly",
    AfterEach: "after_each",
    AfterAny: "after_any",
    AfterAll: "after_all",
    OrFinally: "or_finally",
    Never: "never",
    Always: "always",
}


def _check_trigger(name: str, value: object) -> None:
    if type(value) not in _NAMES:
        raise InvalidArgument(
            name, value, "is not a trigger", fix="use after_watermark(), after_count(n), every(…), …"
        )


def _set_triggers(trigger: AfterEach | AfterAny | AfterAll, parts: tuple[Trigger, ...]) -> None:
    if not parts:
        raise InvalidArgument("triggers", parts, "is empty", fix="give at least one trigger")
    for part in parts:
        _check_trigger("triggers", part)
    object.__setattr__(trigger, "triggers", parts)


DEFAULT_TRIGGER: Final = AfterWatermark(late=Repeatedly(AfterCount(1)))
"""On time, then with every batch that brings late elements."""


def can_fire(trigger: Trigger) -> bool:
    """Whether the trigger can be ready at all.

    >>> can_fire(AfterAll(AfterCount(1), Never())), can_fire(AfterAny(AfterCount(1), Never()))
    (False, True)
    """
    match trigger:
        case Never():
            return False
        case Repeatedly(part):
            return can_fire(part)
        case AfterEach(triggers=parts):
            return can_fire(parts[0])
        case AfterAny(triggers=parts):
            return any(can_fire(part) for part in parts)
        case AfterAll(triggers=parts):
            return all(can_fire(part) for part in parts)
        case OrFinally(main, until):
            return can_fire(main) or can_fire(until)
        case _:
            return True


def waits_for_end(trigger: Trigger) -> bool:
    """Whether the trigger neither fires nor has anything to remember before the window is complete.

    >>> waits_for_end(AfterWatermark()), waits_for_end(AfterWatermark(early=AfterCount(10)))
    (True, False)
    """
    match trigger:
        case AfterWatermark(early, _):
            return early is None
        case Never():
            return True
        case Repeatedly(part):
            return waits_for_end(part)
        case AfterEach(triggers=parts):
            return waits_for_end(parts[0])
        case _:
            return False


def describe(trigger: Trigger) -> str:
    """The trigger as it is written with the lower-case functions; for messages.

    >>> describe(AfterWatermark(early=AfterCount(1000)))
    'after_watermark(early=after_count(1000))'
    >>> describe(OrFinally(Repeatedly(AfterProcessingTime(5)), Never()))
    'or_finally(repeatedly(after_processing_time(5 µs)), never())'
    """
    inner: list[str] = []
    match trigger:
        case AfterWatermark(early, late):
            inner = [f"{name}={describe(part)}" for name, part in (("early", early), ("late", late)) if part]
        case AfterCount(count):
            inner = [str(count)]
        case AfterProcessingTime(delay):
            inner = [f"{delay} µs"]
        case Repeatedly(part):
            inner = [describe(part)]
        case OrFinally(main, until):
            inner = [describe(main), describe(until)]
        case AfterEach(triggers=parts) | AfterAny(triggers=parts) | AfterAll(triggers=parts):
            inner = [describe(part) for part in parts]
        case Never() | Always():
            pass
    return f"{_NAMES[type(trigger)]}({', '.join(inner)})"


# ---- the lower-case functions


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AfterWatermark:
    """On time; before that ``early``, after that ``late``.

    >>> after_watermark(late=every(count=1)) == DEFAULT_TRIGGER
    True
    """
    return AfterWatermark(early, late)


def after_count(count: int) -> AfterCount:
    """When ``count`` elements came since the last firing.

    >>> after_count(2)
    AfterCount(count=2)
    """
    return AfterCount(count)


def after_processing_time(delay: DurationLike) -> AfterProcessingTime:
    """When the first element of the pane is longer than ``delay`` ago.

    >>> after_processing_time("5 seconds")
    AfterProcessingTime(delay=5000000)
    """
    return AfterProcessingTime(duration(delay, name="delay"))


def every(*, count: int | None = None, duration: DurationLike | None = None) -> Repeatedly:
    """Again and again: every so many elements, or every so long after the first of them.

    >>> every(count=1000)
    Repeatedly(trigger=AfterCount(count=1000))
    >>> every(duration="5 seconds")
    Repeatedly(trigger=AfterProcessingTime(delay=5000000))
    """
    if count is not None and duration is None:
        return Repeatedly(AfterCount(count))
    if duration is not None and count is None:
        return Repeatedly(after_processing_time(duration))
    raise InvalidArgument(
        "every", {"count": count, "duration": duration}, "takes one of the two", fix="write every(count=1000)"
    )


def repeatedly(trigger: Trigger) -> Repeatedly:
    """The trigger, started again whenever it has finished.

    >>> repeatedly(after_count(2)) == every(count=2)
    True
    """
    return Repeatedly(trigger)


def after_each(*triggers: Trigger) -> AfterEach:
    """One trigger after the other.

    >>> len(after_each(after_count(2), after_watermark()).triggers)
    2
    """
    return AfterEach(*triggers)


def after_any(*triggers: Trigger) -> AfterAny:
    """As soon as one of them is ready.

    >>> len(after_any(after_count(2), after_watermark()).triggers)
    2
    """
    return AfterAny(*triggers)


def after_all(*triggers: Trigger) -> AfterAll:
    """When all of them are ready at once.

    >>> len(after_all(after_count(2), after_watermark()).triggers)
    2
    """
    return AfterAll(*triggers)


def or_finally(main: Trigger, until: Trigger) -> OrFinally:
    """``main``, until ``until`` fires.

    >>> or_finally(every(count=2), after_count(5)).until
    AfterCount(count=5)
    """
    return OrFinally(main, until)


def never() -> Never:
    """Not before the purge.

    >>> never()
    Never()
    """
    return Never()


def always() -> Always:
    """Whenever it is asked.

    >>> always()
    Always()
    """
    return Always()
