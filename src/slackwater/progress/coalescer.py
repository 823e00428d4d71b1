"""Coalescing: the watermark of several inputs (rules C1 to C10 of docs/spec/progress.md).

The watermark of an operator is the minimum over its inputs. An idle input is excluded until it sends
something again, an ended one permanently. An operator with several input edges, each with several channels,
coalesces twice (`OperatorCoalescer`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from slackwater.errors import AfterDone, InvalidArgument, UnknownSource, WatermarkRegression
from slackwater.progress.combined_watermark import (
    CombinedWatermark,
    InputState,
    SavedCombinedWatermark,
    Status,
    saved_inputs,
)
from slackwater.progress.explanation import Explanation
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.values import DEFAULT_KEY, Emission, Watermark, is_text
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, check_int64, check_now


class _SavedCoalescer(Saved):
    names: list[str] | None
    combined: SavedCombinedWatermark


_FORM = SavedForm("coalescer", "C", 1, _SavedCoalescer)


class Coalescer:
    """The minimum over several inputs for each watermark key, emitted when it rises.

    Each call passes on what one input sent and returns the resulting emissions: advanced watermarks, then
    IDLE. A call that raises changes no state.

    Args:
        inputs: The number of inputs, or their names.
        now: The current time. Optional here and in all methods; only `why` uses it, to report since when.

    Raises:
        InvalidArgument: There are no inputs, or the names are not unique strings.

    >>> import slackwater as sw
    >>> coalescer = sw.Coalescer(["orders", "clicks"])
    >>> coalescer.watermark(0, sw.Watermark(10))
    ()
    >>> coalescer.watermark(1, sw.Watermark(12))
    (Watermark(value=10, key='default'),)
    >>> coalescer.idle(0)
    (Watermark(value=12, key='default'),)
    >>> coalescer.why().held_by
    "input 'clicks'"
    """

    __slots__ = ("_combined", "_names")

    def __init__(self, inputs: int | Sequence[str], *, now: int | None = None) -> None:
        self._names: tuple[str, ...] | None = None
        if isinstance(inputs, Sequence):
            self._names = _checked_names(inputs)
            count = len(self._names)
        else:
            count = check_int64(inputs, "inputs")
        if count < 1:
            raise InvalidArgument(
                "inputs", inputs, "must be at least one", fix="pass a count or a list of names"
            )
        self._combined = CombinedWatermark(count, check_now(now))

    def watermark(
        self, ordinal: int, watermark: Watermark, *, now: int | None = None
    ) -> tuple[Emission, ...]:
        """Process a watermark of an input.

        Args:
            ordinal: The index of the input.
            watermark: Must be greater than the last one of this input and key (C1); an equal one is an
                error too.
            now: The current time, for `why`.

        Returns:
            The new minimum of the key, if it advanced (C2).

        Raises:
            WatermarkRegression: The watermark is not greater than the previous one.
            AfterDone: The input has ended.
            UnknownSource: There is no input ``ordinal``.
        """
        value, key = watermark
        if value.__class__ is not int or not BEGINNING_OF_TIME <= value <= END_OF_TIME:
            value = check_int64(value, "watermark")
        now = check_now(now)
        combined = self._combined
        status = self._status(ordinal)
        if status is Status.DONE:
            raise AfterDone(self._name(ordinal), f"watermark {value} of key {key!r}")
        previous = combined.value(ordinal, key)
        if previous is not None and value <= previous:
            raise WatermarkRegression(self._name(ordinal), key, previous, value)
        if previous is None:
            combined.check_key(key)
        if status is Status.IDLE:
            combined.wake(ordinal, now)
        combined.raise_to(ordinal, key, value, now)
        return combined.emit((key,))

    def event(self, ordinal: int, *, now: int | None = None) -> tuple[Emission, ...]:
        """Process data of an input: an idle input becomes active, which emits nothing by itself (C5).

        Args:
            ordinal: The index of the input, from 0.
            now: The current time, for `why`.
        """
        if self._check_not_done(ordinal, "an event") is Status.IDLE:
            self._combined.wake(ordinal, check_now(now))
        return ()

    def idle(self, ordinal: int, *, now: int | None = None) -> tuple[Emission, ...]:
        """Process IDLE of an input: it no longer holds the watermark back (C4, C6).

        Args:
            ordinal: The index of the input, from 0.
            now: The current time, for `why`.
        """
        self._check_not_done(ordinal, "IDLE")
        self._combined.set_idle(ordinal, check_now(now))
        return self._combined.emit_all()

    def done(self, ordinal: int, *, now: int | None = None) -> tuple[Emission, ...]:
        """Process DONE of an input (C7).

        Args:
            ordinal: The index of the input, from 0.
            now: The current time, for `why`.
        """
        self._check_not_done(ordinal, "DONE")
        self._combined.set_done(ordinal, check_now(now))
        return self._combined.emit_all()

    def current(self, key: str = DEFAULT_KEY) -> int | None:
        """Return the last watermark emitted for a key, None before the first.

        Args:
            key: The watermark key.
        """
        return self._combined.emitted(key)

    def received(self, ordinal: int, key: str = DEFAULT_KEY) -> int | None:
        """Return the last watermark that an input sent for a key, None if it has sent none.

        Args:
            ordinal: The index of the input, from 0.
            key: The watermark key.

        >>> import slackwater as sw
        >>> coalescer = sw.Coalescer(2)
        >>> _ = coalescer.watermark(0, sw.Watermark(10))
        >>> coalescer.received(0), coalescer.received(1)
        (10, None)
        """
        return self._combined.value(ordinal, key)

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return self._combined.slots

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs; empty if they have none."""
        return self._names or ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys seen so far."""
        return tuple(self._combined.keys)

    @property
    def all_done(self) -> bool:
        """Whether every input has ended."""
        return self._combined.active == 0 and self._combined.idle == 0

    @property
    def all_idle(self) -> bool:
        """Whether no input is active, but at least one can become active again."""
        return self._combined.active == 0 and self._combined.idle > 0

    def why(self, key: str = DEFAULT_KEY) -> Explanation:
        """Explain which input holds the watermark of ``key`` back, since when, and why.

        Args:
            key: The watermark key.
        """
        holder = self._combined.holder(key)
        return Explanation(
            key=key,
            watermark=self._combined.emitted(key),
            reason=holder.reason,
            held_by=None if holder.slot is None else self._name(holder.slot),
            since=holder.since,
            holder_watermark=None if holder.slot is None else self._combined.value(holder.slot, key),
            others=holder.others,
        )

    def save(self) -> bytes:
        """Serialize the state. The size depends on the number of inputs and keys, not on the history."""
        names = None if self._names is None else list(self._names)
        return _FORM.encode(_SavedCoalescer(names, self._combined.save()))

    @classmethod
    def load(cls, data: bytes) -> Coalescer:
        """Restore a coalescer from the bytes of `save`.

        Args:
            data: The saved state.

        >>> import slackwater as sw
        >>> sw.Coalescer.load(sw.Coalescer(2).save()).current() is None
        True
        """
        saved = _FORM.decode(data)
        count = len(saved.combined.status)
        _FORM.check(saved.names is None or len(saved.names) == count, "its inputs are inconsistent")
        with _FORM.restoring():
            coalescer = cls(count if saved.names is None else saved.names)
            coalescer._combined = CombinedWatermark.load(saved.combined, _FORM.what)
        return coalescer

    def _name(self, ordinal: int) -> str:
        return f"input {ordinal}" if self._names is None else f"input {self._names[ordinal]!r}"

    def _check_not_done(self, ordinal: int, received: str) -> Status:
        status = self._status(ordinal)
        if status is Status.DONE:
            raise AfterDone(self._name(ordinal), received)
        return status

    def _status(self, ordinal: int) -> Status:
        if ordinal.__class__ is not int or not 0 <= ordinal < self._combined.slots:
            known = range(self._combined.slots) if self._names is None else self._names
            raise UnknownSource(f"input {ordinal!r}", known, fix="declare it when you create the coalescer")
        return self._combined.status(ordinal)


class EdgeEmission(NamedTuple):
    """An emission of one input edge of an operator. A join needs to know which edge it was.

    >>> import slackwater as sw
    >>> sw.OperatorCoalescer([1, 1]).watermark(0, 0, sw.Watermark(5)).edge
    (EdgeEmission(edge=0, emission=Watermark(value=5, key='default')),)
    """

    edge: int
    emission: Emission


class OperatorEmissions(NamedTuple):
    """The emissions after one received item: first those of the edge, then those of the operator.

    >>> import slackwater as sw
    >>> sw.OperatorCoalescer([1]).watermark(0, 0, sw.Watermark(5)).operator
    (Watermark(value=5, key='default'),)
    """

    edge: tuple[EdgeEmission, ...]
    operator: tuple[Emission, ...]


class OperatorCoalescer:
    """The watermarks of an operator with several input edges, coalesced in two levels.

    The channels of an edge determine the edge watermark, which is emitted at once with the edge's index. The
    edges determine the operator watermark. An edge is active as soon as one of its channels is, so the
    operator watermark never passes a channel that became active again.

    Args:
        channels: For each edge, the number of its channels or their names.
        now: The current time. Optional here and in all methods; only `why` uses it.

    >>> import slackwater as sw
    >>> operator = sw.OperatorCoalescer([1, 2])
    >>> operator.watermark(0, 0, sw.Watermark(7))
    OperatorEmissions(edge=(EdgeEmission(edge=0, emission=Watermark(value=7, key='default')),), operator=())
    >>> operator.idle(1, 0).operator, operator.idle(1, 1).operator
    ((), (Watermark(value=7, key='default'),))
    """

    __slots__ = ("_channels", "_edges")

    def __init__(self, channels: Sequence[int | Sequence[str]], *, now: int | None = None) -> None:
        if not channels:
            raise InvalidArgument(
                "channels", channels, "must have at least one edge", fix="pass one count for each edge"
            )
        self._channels = [Coalescer(count, now=now) for count in channels]
        self._edges = Coalescer([f"edge {ordinal}" for ordinal in range(len(channels))], now=now)

    def watermark(
        self, edge: int, channel: int, watermark: Watermark, *, now: int | None = None
    ) -> OperatorEmissions:
        """Process a watermark of a channel.

        Args:
            edge: The index of the edge, from 0.
            channel: The index of the channel in its edge, from 0.
            watermark: The watermark that arrived.
            now: The current time, for `why`.
        """
        emitted = self._edge(edge).watermark(channel, watermark, now=now)
        self._edges.event(edge, now=now)
        return self._forward(edge, emitted, now)

    def event(self, edge: int, channel: int, *, now: int | None = None) -> OperatorEmissions:
        """Process data of a channel.

        Args:
            edge: The index of the edge, from 0.
            channel: The index of the channel in its edge, from 0.
            now: The current time, for `why`.
        """
        emitted = self._edge(edge).event(channel, now=now)
        self._edges.event(edge, now=now)
        return self._forward(edge, emitted, now)

    def idle(self, edge: int, channel: int, *, now: int | None = None) -> OperatorEmissions:
        """Process IDLE of a channel.

        Args:
            edge: The index of the edge, from 0.
            channel: The index of the channel in its edge, from 0.
            now: The current time, for `why`.
        """
        return self._forward(edge, self._edge(edge).idle(channel, now=now), now)

    def done(self, edge: int, channel: int, *, now: int | None = None) -> OperatorEmissions:
        """Process DONE of a channel. An edge ends with its last channel.

        Args:
            edge: The index of the edge, from 0.
            channel: The index of the channel in its edge, from 0.
            now: The current time, for `why`.
        """
        coalescer = self._edge(edge)
        emissions = self._forward(edge, coalescer.done(channel, now=now), now)
        if not coalescer.all_done:
            return emissions
        return OperatorEmissions(emissions.edge, emissions.operator + self._edges.done(edge, now=now))

    def edge(self, ordinal: int) -> Coalescer:
        """Return the coalescer of one edge, which has the edge's watermark and its own `why`.

        Args:
            ordinal: The index of the edge, from 0.
        """
        return self._edge(ordinal)

    def current(self, key: str = DEFAULT_KEY) -> int | None:
        """Return the last operator watermark for a key, None before the first.

        Args:
            key: The watermark key.
        """
        return self._edges.current(key)

    def why(self, key: str = DEFAULT_KEY) -> Explanation:
        """Explain which edge holds the operator watermark back; ``edge(n).why()`` names the channel.

        Args:
            key: The watermark key.
        """
        return self._edges.why(key)

    def save(self) -> bytes:
        """Serialize the state of both levels."""
        return _OPERATOR_FORM.encode(
            _SavedOperator(self._edges.save(), [coalescer.save() for coalescer in self._channels])
        )

    @classmethod
    def load(cls, data: bytes) -> OperatorCoalescer:
        """Restore an operator coalescer from the bytes of `save`.

        Args:
            data: The saved state.

        >>> import slackwater as sw
        >>> sw.OperatorCoalescer.load(sw.OperatorCoalescer([2, 1]).save()).current() is None
        True
        """
        saved = _OPERATOR_FORM.decode(data)
        _OPERATOR_FORM.check(bool(saved.channels), "it has no edges")
        operator = cls([1] * len(saved.channels))
        operator._edges = Coalescer.load(saved.edges)
        operator._channels = [Coalescer.load(channel) for channel in saved.channels]
        _OPERATOR_FORM.check(operator._edges.inputs == len(saved.channels), "its edges are inconsistent")
        return operator

    def _edge(self, edge: int) -> Coalescer:
        if not 0 <= edge < len(self._channels):
            raise UnknownSource(
                f"edge {edge!r}", range(len(self._channels)), fix="declare it when you create the coalescer"
            )
        return self._channels[edge]

    def _forward(self, edge: int, emitted: tuple[Emission, ...], now: int | None) -> OperatorEmissions:
        """Pass what an edge emitted to the coalescer of the edges."""
        operator: tuple[Emission, ...] = ()
        for emission in emitted:
            if isinstance(emission, Watermark):
                operator += self._edges.watermark(edge, emission, now=now)
            else:
                operator += self._edges.idle(edge, now=now)
        return OperatorEmissions(tuple(EdgeEmission(edge, emission) for emission in emitted), operator)


class _SavedOperator(Saved):
    edges: bytes
    channels: list[bytes]


_OPERATOR_FORM = SavedForm("operator coalescer", "O", 1, _SavedOperator)


def _checked_names(names: Sequence[object]) -> tuple[str, ...]:
    checked = tuple(name for name in names if is_text(name) and name)
    if isinstance(names, str) or len(checked) != len(names):
        raise InvalidArgument(
            "inputs", names, "is not a list of non-empty names", fix='write ["orders", "clicks"], or a count'
        )
    duplicates = [name for name, count in Counter(checked).items() if count > 1]
    if duplicates:
        raise InvalidArgument(
            "inputs", names, f"{duplicates[0]!r} is duplicated", fix="give every input a unique name"
        )
    return checked


def inputs_in(data: bytes) -> list[InputState]:
    """The inputs in the saved state of a coalescer.

    >>> inputs_in(Coalescer(["orders"]).save())
    [InputState(name='orders', status='active', watermarks={})]
    """
    saved = _FORM.decode(data)
    names = [f"input {number}" for number in range(len(saved.combined.status))]
    return saved_inputs(saved.combined, dict(enumerate(names if saved.names is None else saved.names)))
