"""Several inputs into one: rules C1 to C10.

The watermark of an operator is the minimum over its inputs; an idle input is left out until it
speaks again, an ended one for good. An operator with several input edges, each of several
channels, coalesces twice (`OperatorCoalescer`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from slackwater.errors import AfterDone, InvalidArgument, UnknownSource, WatermarkRegression
from slackwater.progress.explanation import Explanation
from slackwater.progress.frontier import Frontier, SavedFrontier, Status
from slackwater.progress.saved import Saved, SavedForm
from slackwater.progress.values import DEFAULT_KEY, Emission, Watermark, is_text
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, check_int64, check_now


class _SavedCoalescer(Saved):
    names: list[str] | None
    frontier: SavedFrontier


_FORM = SavedForm("coalescer", "C", 1, _SavedCoalescer)


class Coalescer:
    """The minimum over inputs, per watermark key, emitted when it rises.

    Each call says what one input sent and returns what follows from it: risen watermarks, then
    IDLE. A call that raises has changed nothing. ``now`` is optional everywhere and only serves
    `why`, which can then say since when.

    >>> coalescer = Coalescer(["orders", "clicks"])
    >>> coalescer.watermark(0, Watermark(10))
    ()
    >>> coalescer.watermark(1, Watermark(12))
    (Watermark(value=10, key='default'),)
    >>> coalescer.idle(0)
    (Watermark(value=12, key='default'),)
    >>> coalescer.why().held_by
    "input 'clicks'"
    """

    __slots__ = ("_frontier", "_names")

    def __init__(self, inputs: int | Sequence[str], *, now: int | None = None) -> None:
        self._names: tuple[str, ...] | None = None
        if isinstance(inputs, Sequence):
            self._names = _checked_names(inputs)
            count = len(self._names)
        else:
            count = check_int64(inputs, "inputs")
        if count < 1:
            raise InvalidArgument(
                "inputs", inputs, "there must be at least one", fix="give a count or the names"
            )
        self._frontier = Frontier(count, check_now(now))

    def watermark(
        self, ordinal: int, watermark: Watermark, *, now: int | None = None
    ) -> tuple[Emission, ...]:
        """The input has sent a watermark. It must lie above its last one of that key (C1).

        At equality it is an error too: a watermark that has not moved says nothing.
        """
        value, key = watermark
        if value.__class__ is not int or not BEGINNING_OF_TIME <= value <= END_OF_TIME:
            value = check_int64(value, "watermark")
        now = check_now(now)
        frontier = self._frontier
        status = self._status(ordinal)
        if status is Status.DONE:
            raise AfterDone(self._name(ordinal), f"watermark {value} of key {key!r}")
        previous = frontier.value(ordinal, key)
        if previous is not None and value <= previous:
            raise WatermarkRegression(self._name(ordinal), key, previous, value)
        if previous is None:
            frontier.check_key(key)
        if status is Status.IDLE:
            frontier.wake(ordinal, now)
        frontier.raise_to(ordinal, key, value, now)
        return frontier.emit((key,))

    def event(self, ordinal: int, *, now: int | None = None) -> tuple[Emission, ...]:
        """The input has sent data. An idle input becomes active; nothing is emitted by that (C5)."""
        if self._live(ordinal, "an event") is Status.IDLE:
            self._frontier.wake(ordinal, check_now(now))
        return ()

    def idle(self, ordinal: int, *, now: int | None = None) -> tuple[Emission, ...]:
        """The input has nothing to say for now: it no longer holds anything back (C4, C6)."""
        self._live(ordinal, "IDLE")
        self._frontier.set_idle(ordinal, check_now(now))
        return self._frontier.emit_all()

    def done(self, ordinal: int, *, now: int | None = None) -> tuple[Emission, ...]:
        """The input has ended (C7)."""
        self._live(ordinal, "DONE")
        self._frontier.set_done(ordinal, check_now(now))
        return self._frontier.emit_all()

    def current(self, key: str = DEFAULT_KEY) -> int | None:
        """The last watermark emitted for a key, None before the first."""
        return self._frontier.emitted(key)

    @property
    def inputs(self) -> int:
        """How many inputs there are."""
        return self._frontier.slots

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys heard of so far."""
        return tuple(self._frontier.keys)

    @property
    def all_done(self) -> bool:
        """Whether every input has ended."""
        return self._frontier.active == 0 and self._frontier.idle == 0

    @property
    def all_idle(self) -> bool:
        """Whether no input is active, but some may speak again."""
        return self._frontier.active == 0 and self._frontier.idle > 0

    def why(self, key: str = DEFAULT_KEY) -> Explanation:
        """Which input holds the watermark of ``key`` back, since when, and why."""
        holder = self._frontier.holder(key)
        return Explanation(
            key=key,
            watermark=self._frontier.emitted(key),
            reason=holder.reason,
            held_by=None if holder.slot is None else self._name(holder.slot),
            since=holder.since,
            holder_watermark=None if holder.slot is None else self._frontier.value(holder.slot, key),
            others=holder.others,
        )

    def save(self) -> bytes:
        """The whole state, for a state store; its size depends on inputs and keys, not on history."""
        names = None if self._names is None else list(self._names)
        return _FORM.seal(_SavedCoalescer(names, self._frontier.save()))

    @classmethod
    def load(cls, data: bytes) -> Coalescer:
        """A coalescer that goes on exactly where `save` left off.

        >>> Coalescer.load(Coalescer(2).save()).current() is None
        True
        """
        saved = _FORM.unseal(data)
        count = len(saved.frontier.status)
        _FORM.check(saved.names is None or len(saved.names) == count, "its inputs do not fit together")
        with _FORM.restoring():
            coalescer = cls(count if saved.names is None else saved.names)
            coalescer._frontier = Frontier.load(saved.frontier, _FORM.what)
        return coalescer

    def _name(self, ordinal: int) -> str:
        return f"input {ordinal}" if self._names is None else f"input {self._names[ordinal]!r}"

    def _live(self, ordinal: int, received: str) -> Status:
        status = self._status(ordinal)
        if status is Status.DONE:
            raise AfterDone(self._name(ordinal), received)
        return status

    def _status(self, ordinal: int) -> Status:
        if ordinal.__class__ is not int or not 0 <= ordinal < self._frontier.slots:
            known = range(self._frontier.slots) if self._names is None else self._names
            raise UnknownSource(f"input {ordinal!r}", known, fix="declare it when the coalescer is made")
        return self._frontier.status(ordinal)


class EdgeEmission(NamedTuple):
    """What one input edge of an operator says; a join needs to know which edge it was.

    >>> OperatorCoalescer([1, 1]).watermark(0, 0, Watermark(5)).edge
    (EdgeEmission(edge=0, emission=Watermark(value=5, key='default')),)
    """

    edge: int
    emission: Emission


class OperatorEmissions(NamedTuple):
    """What follows from one item: first for the edge, then for the operator as a whole.

    >>> OperatorCoalescer([1]).watermark(0, 0, Watermark(5)).operator
    (Watermark(value=5, key='default'),)
    """

    edge: tuple[EdgeEmission, ...]
    operator: tuple[Emission, ...]


class OperatorCoalescer:
    """An operator with several input edges coalesces twice.

    The channels of one edge give the edge's watermark, delivered at once with the edge's ordinal;
    the edges give the operator's. An edge counts as active as soon as one of its channels is:
    progress is never invented for a channel that has started to speak again.

    >>> operator = OperatorCoalescer([1, 2])
    >>> operator.watermark(0, 0, Watermark(7))
    OperatorEmissions(edge=(EdgeEmission(edge=0, emission=Watermark(value=7, key='default')),), operator=())
    >>> operator.idle(1, 0).operator, operator.idle(1, 1).operator
    ((), (Watermark(value=7, key='default'),))
    """

    __slots__ = ("_channels", "_edges")

    def __init__(self, channels: Sequence[int | Sequence[str]], *, now: int | None = None) -> None:
        if not channels:
            raise InvalidArgument(
                "channels", channels, "there must be at least one edge", fix="give one count an edge"
            )
        self._channels = [Coalescer(count, now=now) for count in channels]
        self._edges = Coalescer([f"edge {ordinal}" for ordinal in range(len(channels))], now=now)

    def watermark(
        self, edge: int, channel: int, watermark: Watermark, *, now: int | None = None
    ) -> OperatorEmissions:
        """A channel of an edge has sent a watermark."""
        said = self._edge(edge).watermark(channel, watermark, now=now)
        self._edges.event(edge, now=now)
        return self._forward(edge, said, now)

    def event(self, edge: int, channel: int, *, now: int | None = None) -> OperatorEmissions:
        """A channel of an edge has sent data."""
        said = self._edge(edge).event(channel, now=now)
        self._edges.event(edge, now=now)
        return self._forward(edge, said, now)

    def idle(self, edge: int, channel: int, *, now: int | None = None) -> OperatorEmissions:
        """A channel of an edge has nothing to say for now."""
        return self._forward(edge, self._edge(edge).idle(channel, now=now), now)

    def done(self, edge: int, channel: int, *, now: int | None = None) -> OperatorEmissions:
        """A channel of an edge has ended; with its last channel the edge has."""
        coalescer = self._edge(edge)
        emissions = self._forward(edge, coalescer.done(channel, now=now), now)
        if not coalescer.all_done:
            return emissions
        return OperatorEmissions(emissions.edge, emissions.operator + self._edges.done(edge, now=now))

    def edge(self, ordinal: int) -> Coalescer:
        """The coalescer of one edge, to ask it for its watermark or `why`."""
        return self._edge(ordinal)

    def current(self, key: str = DEFAULT_KEY) -> int | None:
        """The operator's last watermark for a key."""
        return self._edges.current(key)

    def why(self, key: str = DEFAULT_KEY) -> Explanation:
        """Which edge holds the operator's watermark back; ask ``edge(n).why()`` for the channel."""
        return self._edges.why(key)

    def save(self) -> bytes:
        """The whole state of both levels."""
        return _OPERATOR_FORM.seal(
            _SavedOperator(self._edges.save(), [coalescer.save() for coalescer in self._channels])
        )

    @classmethod
    def load(cls, data: bytes) -> OperatorCoalescer:
        """Both levels, exactly where `save` left off.

        >>> OperatorCoalescer.load(OperatorCoalescer([2, 1]).save()).current() is None
        True
        """
        saved = _OPERATOR_FORM.unseal(data)
        _OPERATOR_FORM.check(bool(saved.channels), "it has no edges")
        operator = cls([1] * len(saved.channels))
        operator._edges = Coalescer.load(saved.edges)
        operator._channels = [Coalescer.load(channel) for channel in saved.channels]
        _OPERATOR_FORM.check(operator._edges.inputs == len(saved.channels), "its edges do not fit together")
        return operator

    def _edge(self, edge: int) -> Coalescer:
        if not 0 <= edge < len(self._channels):
            raise UnknownSource(
                f"edge {edge!r}", range(len(self._channels)), fix="declare it when the operator is made"
            )
        return self._channels[edge]

    def _forward(self, edge: int, said: tuple[Emission, ...], now: int | None) -> OperatorEmissions:
        operator: tuple[Emission, ...] = ()
        for emission in said:
            if isinstance(emission, Watermark):
                operator += self._edges.watermark(edge, emission, now=now)
            else:
                operator += self._edges.idle(edge, now=now)
        return OperatorEmissions(tuple(EdgeEmission(edge, emission) for emission in said), operator)


class _SavedOperator(Saved):
    edges: bytes
    channels: list[bytes]


_OPERATOR_FORM = SavedForm("operator coalescer", "O", 1, _SavedOperator)


def _checked_names(names: Sequence[object]) -> tuple[str, ...]:
    checked = tuple(name for name in names if is_text(name) and name)
    if isinstance(names, str) or len(checked) != len(names):
        raise InvalidArgument(
            "inputs", names, "is not a list of names", fix='write ["orders", "clicks"], or a count'
        )
    twice = [name for name, count in Counter(checked).items() if count > 1]
    if twice:
        raise InvalidArgument(
            "inputs", names, f"{twice[0]!r} stands twice", fix="give every input its own name"
        )
    return checked
