"""Triggers: when a pane of a window is emitted.

A trigger is a small tree of frozen dataclasses. `slackwater.windows.engine.compiled_trigger` evaluates it for
all keys and windows at once; this module only describes triggers, and whether they can finish. A finished
trigger closes its window, which then drops later elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.time import DurationLike, check_int64, duration


@dataclass(frozen=True, slots=True)
class AfterWatermark:
    """Fires once when the window is complete; before that ``early``, after that ``late``, both repeatedly.

    >>> AfterWatermark(early=AfterCount(1000)).can_finish
    True
    >>> AfterWatermark(late=Repeatedly(AfterCount(1))).can_finish
    False
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for name, inner in (("early", self.early), ("late", self.late)):
            if inner is not None:
                _check_trigger(name, inner)

    @property
    def can_finish(self) -> bool:
        """Whether it can finish: without ``late``, it does so at the end of the window."""
        return self.late is None


@dataclass(frozen=True, slots=True)
class AfterCount:
    """Fires when at least ``count`` elements have arrived since the last firing.

    >>> AfterCount(0)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: count = 0: must be at least 1; use after_count(1) for every batch
    """

    count: int

    def __post_init__(self) -> None:
        if check_int64(self.count, "count") < 1:
            raise InvalidArgument(
                "count", self.count, "must be at least 1", fix="use after_count(1) for every batch"
            )

    @property
    def can_finish(self) -> bool:
        """True: it fires only once."""
        return True


@dataclass(frozen=True, slots=True)
class AfterProcessingTime:
    """Fires when the first element of the pane arrived more than ``delay`` microseconds ago.

    >>> AfterProcessingTime(5).delay
    5
    """

    delay: int

    def __post_init__(self) -> None:
        if check_int64(self.delay, "delay") < 0:
            raise InvalidArgument(
                "delay", self.delay, "must not be negative", fix='use a delay such as "5 seconds"'
            )

    @property
    def can_finish(self) -> bool:
        """True: it fires only once."""
        return True


@dataclass(frozen=True, slots=True)
class AfterEventTime:
    """Fires when the watermark reaches the next multiple of ``interval`` microseconds since 1970.

    Only multiples after the start of the window count, and after the watermark at which the first element of
    the pane arrived.

    >>> AfterEventTime(60_000_000).interval
    60000000
    """

    interval: int

    def __post_init__(self) -> None:
        if check_int64(self.interval, "interval") < 1:
            raise InvalidArgument(
                "interval",
                self.interval,
                "must be greater than zero",
                fix='use "1 minute"',
            )

    @property
    def can_finish(self) -> bool:
        """True: it fires only once."""
        return True


@dataclass(frozen=True, slots=True)
class Repeatedly:
    """Fires as its trigger does, and resets it when it has finished.

    >>> Repeatedly(AfterCount(2)).can_finish
    False
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        _check_trigger("trigger", self.trigger)

    @property
    def can_finish(self) -> bool:
        """False: it never finishes."""
        return False


@dataclass(frozen=True, slots=True, init=False)
class AfterEach:
    """Fires as each of its triggers in turn; finishes with the last one.

    >>> AfterEach(AfterCount(2), AfterCount(3)).triggers
    (AfterCount(count=2), AfterCount(count=3))
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        _set_triggers(self, triggers)

    @property
    def can_finish(self) -> bool:
        """Whether all of its triggers can finish."""
        return all(each.can_finish for each in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AfterAny:
    """Fires when any of its triggers is ready; finishes with the first firing.

    >>> AfterAny(AfterCount(2), AfterWatermark()).can_finish
    True
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        _set_triggers(self, triggers)

    @property
    def can_finish(self) -> bool:
        """Whether any of its triggers can fire."""
        return any(can_fire(each) for each in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AfterAll:
    """Fires when all of its triggers are ready at the same time; finishes with the first firing.

    >>> AfterAll(AfterCount(2), Never()).can_finish
    False
    """

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        _set_triggers(self, triggers)

    @property
    def can_finish(self) -> bool:
        """Whether all of its triggers can fire."""
        return all(can_fire(each) for each in self.triggers)


@dataclass(frozen=True, slots=True)
class OrFinally:
    """Fires as ``main`` does until ``until`` fires, which counts all elements independently of ``main``.

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
        """Whether ``main`` can finish or ``until`` can fire."""
        return self.main.can_finish or can_fire(self.until)


@dataclass(frozen=True, slots=True)
class Never:
    """Never fires; elements are emitted when the window is purged.

    >>> Never().can_finish
    False
    """

    @property
    def can_finish(self) -> bool:
        """False: it never finishes."""
        return False


@dataclass(frozen=True, slots=True)
class Always:
    """Fires whenever it is evaluated: with every batch, and when the window is complete.

    >>> Always().can_finish
    False
    """

    @property
    def can_finish(self) -> bool:
        """False: it never finishes."""
        return False


Trigger = (
    AfterWatermark
    | AfterCount
    | AfterProcessingTime
    | AfterEventTime
    | Repeatedly
    | AfterEach
    | AfterAny
    | AfterAll
    | OrFinally
    | Never
    | Always
)
"""Any trigger."""
_NAMES: Final[dict[type, str]] = {
    AfterWatermark: "after_watermark",
    AfterCount: "after_count",
    AfterProcessingTime: "after_processing_time",
    AfterEventTime: "after_event_time",
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


def _set_triggers(trigger: AfterEach | AfterAny | AfterAll, inner: tuple[Trigger, ...]) -> None:
    if not inner:
        raise InvalidArgument("triggers", inner, "is empty", fix="give at least one trigger")
    for each in inner:
        _check_trigger("triggers", each)
    object.__setattr__(trigger, "triggers", inner)


DEFAULT_TRIGGER: Final = AfterWatermark(late=Repeatedly(AfterCount(1)))
"""Fires on time, then with every batch that has late elements."""
CONTINUED_TRIGGER: Final = AfterWatermark(Repeatedly(AfterCount(1)), Repeatedly(AfterCount(1)))
"""Fires with every batch that has elements, and on time: for panes of a window that may not be complete."""


def can_fire(trigger: Trigger) -> bool:
    """Whether the trigger can fire at all.

    >>> can_fire(AfterAll(AfterCount(1), Never())), can_fire(AfterAny(AfterCount(1), Never()))
    (False, True)
    """
    match trigger:
        case Never():
            return False
        case Repeatedly(inner):
            return can_fire(inner)
        case AfterEach(triggers=several):
            return can_fire(several[0])
        case AfterAny(triggers=several):
            return any(can_fire(each) for each in several)
        case AfterAll(triggers=several):
            return all(can_fire(each) for each in several)
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
        case Repeatedly(inner):
            return waits_for_end(inner)
        case AfterEach(triggers=several):
            return waits_for_end(several[0])
        case _:
            return False


def fires_early(trigger: Trigger) -> bool:
    """Whether the trigger can fire before the window is complete.

    >>> fires_early(AfterWatermark(early=AfterCount(10))), fires_early(DEFAULT_TRIGGER), fires_early(Never())
    (True, False, False)
    """
    return can_fire(trigger) and not waits_for_end(trigger)


def inherited_trigger(*, early: bool) -> Trigger:
    """The trigger of an operator that inherits it: `fires_early` of the operators before decides.

    An operator over early panes emits one with every batch that brings some, whatever made the operators
    before it fire: waiting for 1,000 *panes* after 1,000 elements would delay every early result once more.

    >>> describe(inherited_trigger(early=True))
    'after_watermark(early=repeatedly(after_count(1)), late=repeatedly(after_count(1)))'
    >>> inherited_trigger(early=False) == DEFAULT_TRIGGER
    True
    """
    return CONTINUED_TRIGGER if early else DEFAULT_TRIGGER


def describe(trigger: Trigger) -> str:
    """The trigger in the syntax of the lower-case functions, for messages and signatures.

    >>> describe(AfterWatermark(early=AfterCount(1000)))
    'after_watermark(early=after_count(1000))'
    >>> describe(OrFinally(Repeatedly(AfterProcessingTime(5)), Never()))
    'or_finally(repeatedly(after_processing_time(5 µs)), never())'
    """
    arguments: list[str] = []
    match trigger:
        case AfterWatermark(early, late):
            arguments = [f"{name}={describe(one)}" for name, one in (("early", early), ("late", late)) if one]
        case AfterCount(count):
            arguments = [str(count)]
        case AfterProcessingTime(length) | AfterEventTime(length):
            arguments = [f"{length} µs"]
        case Repeatedly(inner):
            arguments = [describe(inner)]
        case OrFinally(main, until):
            arguments = [describe(main), describe(until)]
        case AfterEach(triggers=several) | AfterAny(triggers=several) | AfterAll(triggers=several):
            arguments = [describe(each) for each in several]
        case Never() | Always():
            pass
    return f"{_NAMES[type(trigger)]}({', '.join(arguments)})"


# ---- the lower-case functions


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AfterWatermark:
    """Fire when the window is complete, and optionally before and after that.

    Args:
        early: fires repeatedly before the window is complete.
        late: fires repeatedly after that, for late elements; without it the window is closed at its end.

    >>> import slackwater as sw
    >>> sw.after_watermark(late=sw.every(count=1)) == DEFAULT_TRIGGER
    True
    """
    return AfterWatermark(early, late)


def after_count(count: int) -> AfterCount:
    """Fire once ``count`` elements have arrived since the last firing.

    Args:
        count: the number of elements, at least 1.

    >>> import slackwater as sw
    >>> sw.after_count(2)
    AfterCount(count=2)
    """
    return AfterCount(count)


def after_processing_time(delay: DurationLike) -> AfterProcessingTime:
    """Fire when the first element of the pane arrived more than ``delay`` ago, in processing time.

    Args:
        delay: a duration, such as ``"5 seconds"``.

    >>> import slackwater as sw
    >>> sw.after_processing_time("5 seconds")
    AfterProcessingTime(delay=5000000)
    """
    return AfterProcessingTime(duration(delay, name="delay"))


def after_event_time(interval: DurationLike) -> AfterEventTime:
    """Fire when the watermark reaches the next multiple of ``interval``, counted from 1970.

    Args:
        interval: the event time between two multiples. Only those after the start of the window count, and
            after the watermark at which the first element of the pane arrived.

    >>> import slackwater as sw
    >>> sw.after_event_time("1 minute")
    AfterEventTime(interval=60000000)
    """
    return AfterEventTime(duration(interval, name="interval"))


def every(
    *,
    count: int | None = None,
    duration: DurationLike | None = None,
    event_time: DurationLike | None = None,
) -> Repeatedly:
    """Fire repeatedly, by the number of elements, by processing time or by event time.

    Args:
        count: fire whenever this many elements have arrived since the last firing.
        duration: fire whenever the first element since the last firing arrived longer ago than this.
        event_time: fire whenever the watermark reaches a multiple of this duration, if elements have arrived.

    Raises:
        InvalidArgument: several or none of them are given.

    >>> import slackwater as sw
    >>> sw.every(count=1000)
    Repeatedly(trigger=AfterCount(count=1000))
    >>> sw.every(duration="5 seconds")
    Repeatedly(trigger=AfterProcessingTime(delay=5000000))
    >>> sw.every(event_time="1 minute")
    Repeatedly(trigger=AfterEventTime(interval=60000000))
    """
    given: list[Trigger] = []
    if count is not None:
        given.append(AfterCount(count))
    if duration is not None:
        given.append(after_processing_time(duration))
    if event_time is not None:
        given.append(after_event_time(event_time))
    if len(given) != 1:
        raise InvalidArgument(
            "every",
            {"count": count, "duration": duration, "event_time": event_time},
            "needs exactly one of count, duration and event_time",
            fix="use every(count=1000), every(duration=…) or every(event_time=…)",
        )
    return Repeatedly(given[0])


def repeatedly(trigger: Trigger) -> Repeatedly:
    """Fire as the trigger does, and reset it when it has finished.

    Args:
        trigger: the trigger to repeat.

    >>> import slackwater as sw
    >>> sw.repeatedly(sw.after_count(2)) == sw.every(count=2)
    True
    """
    return Repeatedly(trigger)


def after_each(*triggers: Trigger) -> AfterEach:
    """Fire as each of the triggers in turn.

    Args:
        triggers: the triggers, in their order.

    >>> import slackwater as sw
    >>> len(sw.after_each(sw.after_count(2), sw.after_watermark()).triggers)
    2
    """
    return AfterEach(*triggers)


def after_any(*triggers: Trigger) -> AfterAny:
    """Fire once, when any of the triggers is ready.

    Args:
        triggers: one or more triggers.

    >>> import slackwater as sw
    >>> len(sw.after_any(sw.after_count(2), sw.after_watermark()).triggers)
    2
    """
    return AfterAny(*triggers)


def after_all(*triggers: Trigger) -> AfterAll:
    """Fire once, when all of the triggers are ready at the same time.

    Args:
        triggers: one or more triggers.

    >>> import slackwater as sw
    >>> len(sw.after_all(sw.after_count(2), sw.after_watermark()).triggers)
    2
    """
    return AfterAll(*triggers)


def or_finally(main: Trigger, until: Trigger) -> OrFinally:
    """Fire as ``main`` does, until ``until`` fires.

    Args:
        main: the trigger to follow.
        until: ends it; counts all elements, independently of ``main``.

    >>> import slackwater as sw
    >>> sw.or_finally(sw.every(count=2), sw.after_count(5)).until
    AfterCount(count=5)
    """
    return OrFinally(main, until)


def never() -> Never:
    """Do not fire before the window is purged.

    >>> import slackwater as sw
    >>> sw.never()
    Never()
    """
    return Never()


def always() -> Always:
    """Fire with every batch, and when the window is complete.

    >>> import slackwater as sw
    >>> sw.always()
    Always()
    """
    return Always()
