"""Scripts for watermarks: coalescers, generators, trackers and the order of async results, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.progress.coalescer import Coalescer
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.ordering import OrderedResults, Ticket, UnorderedResults
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import DEFAULT_KEY, IDLE, BufferHeader, Origin, Watermark
from slackwater.testing.manual_clock import ManualClock, Moment, moment
from slackwater.testing.scripted_run import in_unit
from slackwater.testing.text_table import aligned

Subject = Coalescer | WatermarkGenerator | ProgressTracker | OrderedResults[Any] | UnorderedResults[Any]


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a script: what happens, to which input, with which value."""

    kind: str
    source: Origin | None = None
    value: Any = None
    key: str = DEFAULT_KEY

    def __str__(self) -> str:
        source = "" if self.source is None else f" {self.source}"
        return f"{self.kind}{source}"


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """One action, with the processing time and what was emitted after it."""

    action: Action
    now: int
    emitted: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ProgressRun:
    """The run of a script: its steps, and everything that was emitted.

    >>> import slackwater as sw
    >>> from slackwater.testing import TestProgress
    >>> run = TestProgress().watermark("a", 5).watermark("b", 3).run(sw.Coalescer(["a", "b"]))
    >>> run.emitted
    [Watermark(value=3, key='default')]
    """

    steps: tuple[ProgressStep, ...]

    @property
    def emitted(self) -> list[Any]:
        """Watermarks, IDLE and results of all steps, in order."""
        return [one for step in self.steps for one in step.emitted]

    def story(self, unit: str = "us") -> str:
        """Format the run as a table, with a line for each action.

        Args:
            unit: the unit of times: ``us``, ``ms``, ``s``, ``min`` or ``h``.

        >>> import slackwater as sw
        >>> from slackwater.testing import TestProgress
        >>> run = TestProgress().watermark("a", 5).idle("b").run(sw.Coalescer(["a", "b"]))
        >>> print(run.story())
        clock | action      | value | emitted
        0     | watermark a | 5     |
        0     | idle b      |       | watermark 5
        """
        lines = [
            (
                in_unit(step.now, unit),
                str(step.action),
                _value_text(step.action, unit),
                ", ".join(_emitted_text(one, unit) for one in step.emitted),
            )
            for step in self.steps
        ]
        return "\n".join(aligned([("clock", "action", "value", "emitted"), *lines]))


@dataclass(frozen=True, slots=True)
class TestProgress:
    """A script of watermarks, events and results; every method returns a new, longer script.

    Each subject understands some of the actions:

    | subject | actions |
    |---|---|
    | `Coalescer` | ``watermark``, ``event``, ``idle``, ``done`` |
    | `WatermarkGenerator` | ``observe``, ``tick``, ``add``, ``remove`` |
    | `ProgressTracker` | ``buffer``, ``idle``, ``done`` |
    | `OrderedResults`, `UnorderedResults` | ``item``, ``result``, ``watermark`` |

    >>> import slackwater as sw
    >>> from slackwater.testing import TestProgress
    >>> script = TestProgress().observe("p0", 20).tick(at=10)
    >>> script.run(sw.WatermarkGenerator(sw.Lag(3), partitions=["p0", "p1"], idle_after=10, now=0)).emitted
    [Watermark(value=17, key='default'), IDLE]
    >>> script = TestProgress().item("a").item("b").watermark(9).result("b").result("a")
    >>> script.run(sw.OrderedResults(9)).emitted
    ['a', 'b', Watermark(value=9, key='default')]
    """

    __test__: ClassVar[bool] = False  # pytest would collect it by its name

    actions: tuple[tuple[Action, int | None], ...] = ()

    def watermark(
        self,
        source: Moment,
        to: Moment | None = None,
        *,
        key: str = DEFAULT_KEY,
        at: Moment | None = None,
    ) -> TestProgress:
        """Send a watermark on an input; to an async stage, which has one input, send it without a name.

        Args:
            source: the input, or the watermark if ``to`` is omitted.
            to: the watermark.
            key: the watermark key.
            at: the processing time; unchanged by default.
        """
        if to is None:
            return self._then(Action("watermark", None, moment(source, name="to"), key), at)
        return self._then(Action("watermark", cast(Origin, source), moment(to, name="to"), key), at)

    def event(self, source: Origin, *, at: Moment | None = None) -> TestProgress:
        """Send data on an input: an idle input becomes active.

        Args:
            source: the input or channel that sends data.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("event", source), at)

    def idle(self, source: Origin, *, at: Moment | None = None) -> TestProgress:
        """Send IDLE on an input.

        Args:
            source: the input, channel or origin that becomes idle.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("idle", source), at)

    def done(self, source: Origin, *, at: Moment | None = None) -> TestProgress:
        """End an input.

        Args:
            source: the input, channel or origin that ends.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("done", source), at)

    def observe(self, partition: Origin, event_time: Moment, *, at: Moment | None = None) -> TestProgress:
        """Let a generator observe an event of a partition.

        Args:
            partition: the partition of the event.
            event_time: the event time.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("observe", partition, moment(event_time, name="event_time")), at)

    def tick(self, *, at: Moment | None = None) -> TestProgress:
        """Let a generator see the time without an event.

        Args:
            at: the processing time; unchanged by default.
        """
        return self._then(Action("tick"), at)

    def add(self, partition: Origin, *, at: Moment | None = None) -> TestProgress:
        """Add a partition to a generator.

        Args:
            partition: the partition.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("add", partition), at)

    def remove(self, partition: Origin, *, at: Moment | None = None) -> TestProgress:
        """Remove a partition from a generator.

        Args:
            partition: the partition.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("remove", partition), at)

    def buffer(self, header: BufferHeader, *, at: Moment | None = None) -> TestProgress:
        """Let a tracker observe a buffer.

        Args:
            header: the header of the buffer.
            at: the processing time; unchanged by default.
        """
        return self._then(Action("buffer", header.origin, header), at)

    def item(self, name: str) -> TestProgress:
        """Submit an item to an async stage.

        Args:
            name: the name of the item, which `result` refers to.
        """
        return self._then(Action("item", name), None)

    def result(self, name: str, value: Any = ...) -> TestProgress:
        """Complete an item of an async stage.

        Args:
            name: the item.
            value: its result, by default its name; None filters the item.
        """
        return self._then(Action("result", name, name if value is ... else value), None)

    def run(self, subject: Subject, *, restart: bool = False) -> ProgressRun:
        """Apply the script to a subject.

        Args:
            subject: a new coalescer, generator, tracker, or order of results. The run changes it.
            restart: save and load the state between any two steps. The order of results has no saved state.

        Returns:
            The steps with what was emitted.

        Raises:
            InvalidArgument: the subject does not understand an action, or an item does not exist.

        >>> import slackwater as sw
        >>> from slackwater.testing import TestProgress
        >>> TestProgress().tick().run(sw.Coalescer(["a"]))
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: action = 'tick': is not an action of a Coalescer; available: \
watermark, event, idle, done
        """
        clock = ManualClock()
        driver = _driver(subject)
        steps = []
        for action, at in self.actions:
            if at is not None:
                clock.set(at)
            steps.append(ProgressStep(action, clock(), tuple(driver.perform(action, clock()))))
            if restart:
                driver.restart()
        return ProgressRun(tuple(steps))

    def _then(self, action: Action, at: Moment | None) -> TestProgress:
        known = None if at is None else moment(at, name="at")
        return replace(self, actions=(*self.actions, (action, known)))


class _Driver:
    """Applies actions to a subject; subclasses list the actions that it understands."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject

    @property
    def actions(self) -> dict[str, Callable[[Action, int], Any]]:
        raise NotImplementedError

    def perform(self, action: Action, now: int) -> Any:
        known = self.actions.get(action.kind)
        if known is None:
            raise InvalidArgument(
                "action",
                action.kind,
                f"is not an action of a {type(self.subject).__name__}",
                fix=available(action.kind, self.actions),
            )
        return known(action, now) or ()

    def restart(self) -> None:
        self.subject = self.subject.load(self.subject.save())


class _CoalescerDriver(_Driver):
    @property
    def actions(self) -> dict[str, Callable[[Action, int], Any]]:
        return {
            "watermark": lambda action, now: self.subject.watermark(
                self._ordinal(action), Watermark(action.value, action.key), now=now
            ),
            "event": lambda action, now: self.subject.event(self._ordinal(action), now=now),
            "idle": lambda action, now: self.subject.idle(self._ordinal(action), now=now),
            "done": lambda action, now: self.subject.done(self._ordinal(action), now=now),
        }

    def _ordinal(self, action: Action) -> Origin | None:
        """The index of an input, which a script may name; the coalescer rejects an unknown one."""
        names: tuple[str, ...] = self.subject.names
        return names.index(action.source) if action.source in names else action.source


class _GeneratorDriver(_Driver):
    @property
    def actions(self) -> dict[str, Callable[[Action, int], Any]]:
        return {
            "observe": lambda action, now: self.subject.observe(action.source, action.value, now=now),
            "tick": lambda action, now: self.subject.tick(now=now),
            "add": lambda action, now: self.subject.add(action.source, now=now),
            "remove": lambda action, now: self.subject.remove(action.source, now=now),
        }


class _TrackerDriver(_Driver):
    @property
    def actions(self) -> dict[str, Callable[[Action, int], Any]]:
        return {
            "buffer": lambda action, now: self.subject.observe(action.value, now=now).emitted,
            "idle": lambda action, now: self.subject.idle(action.source, now=now),
            "done": lambda action, now: self.subject.done(action.source, now=now),
        }


class _ResultsDriver(_Driver):
    def __init__(self, subject: OrderedResults[Any] | UnorderedResults[Any]) -> None:
        super().__init__(subject)
        self._tickets: dict[Origin | None, Ticket] = {}

    @property
    def actions(self) -> dict[str, Callable[[Action, int], Any]]:
        return {
            "item": lambda action, _: self._submit(action),
            "result": lambda action, _: self.subject.complete(self._ticket(action), action.value),
            "watermark": lambda action, _: self.subject.watermark(Watermark(action.value, action.key)),
        }

    def restart(self) -> None:
        """Nothing to do: results that are on their way are computed again after a restart."""

    def _submit(self, action: Action) -> None:
        ticket = self.subject.submit()
        if ticket is None:
            raise InvalidArgument(
                "item", action.source, "exceeds the capacity", fix="complete another item first"
            )
        self._tickets[action.source] = ticket

    def _ticket(self, action: Action) -> Ticket:
        if action.source not in self._tickets:
            raise InvalidArgument("result", action.source, "is not a submitted item", fix="call item() first")
        return self._tickets.pop(action.source)


def _driver(subject: Subject) -> _Driver:
    match subject:
        case Coalescer():
            return _CoalescerDriver(subject)
        case WatermarkGenerator():
            return _GeneratorDriver(subject)
        case ProgressTracker():
            return _TrackerDriver(subject)
        case OrderedResults() | UnorderedResults():
            return _ResultsDriver(subject)
    raise InvalidArgument(
        "subject", subject, "cannot run a script", fix="pass a Coalescer, a WatermarkGenerator, …"
    )


def _value_text(action: Action, unit: str) -> str:
    match action.value:
        case None:
            return ""
        case BufferHeader():
            return f"sequence {action.value.sequence}, chunk {action.value.chunk}"
        case int() if action.kind != "result":
            return in_unit(action.value, unit)
        case _:
            return str(action.value)


def _emitted_text(emitted: Any, unit: str) -> str:
    if isinstance(emitted, Watermark):
        of_key = "" if emitted.key == DEFAULT_KEY else f" {emitted.key}"
        return f"watermark{of_key} {in_unit(emitted.value, unit)}"
    return "idle" if emitted is IDLE else str(emitted)
