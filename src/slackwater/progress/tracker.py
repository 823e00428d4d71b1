"""How far several origins are, whose buffers come out of order, in pieces, or twice: S1 to S8."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slackwater.errors import AfterDone, InvalidArgument, UnknownSource
from slackwater.progress.explanation import Explanation, Reason
from slackwater.progress.frontier import Frontier, SavedFrontier, Status
from slackwater.progress.saved import Saved, SavedForm
from slackwater.progress.sequences import Marks, SavedSequences, Sequences
from slackwater.progress.values import (
    DEFAULT_KEY,
    NO_WATERMARKS,
    BufferHeader,
    Emission,
    Origin,
    check_origin,
)
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, check_int64, check_now


class Observed(NamedTuple):
    """What one buffer led to: whether it was there before, and what is emitted because of it.

    >>> ProgressTracker().observe(BufferHeader("a", 1, watermarks={"default": 5})).emitted
    (Watermark(value=5, key='default'),)
    """

    duplicate: bool
    emitted: tuple[Emission, ...]


class ObservedAll(NamedTuple):
    """What several buffers led to: which of them were there before, and what is emitted because of all.

    >>> ProgressTracker().observe_all([BufferHeader("a", 1), BufferHeader("a", 1)]).duplicates
    [False, True]
    """

    duplicates: list[bool]
    emitted: tuple[Emission, ...]


_SEEN_BEFORE, _NEW = True, False
_DUPLICATE = Observed(_SEEN_BEFORE, ())
_NOTHING = Observed(_NEW, ())


class _SavedOrigin(Saved):
    name: Origin
    sequences: SavedSequences


class _SavedTracker(Saved):
    declared: bool
    origins: list[_SavedOrigin]
    frontier: SavedFrontier


_FORM = SavedForm("progress tracker", "T", 1, _SavedTracker)


class ProgressTracker:
    """The global watermark over origins that number their buffers.

    An origin's local watermark counts only what lies before its first gap; the global one is the
    minimum over the origins that are neither idle nor done. Give ``origins`` where they are known:
    one that has not spoken then holds the watermark back. Without, they are learned as they
    appear, and what was emitted never goes back.

    >>> tracker = ProgressTracker(["a", "b"])
    >>> _ = tracker.observe(BufferHeader("a", sequence=1, watermarks={"default": 10}))
    >>> print(tracker.why())
    watermark unknown: held back by origin 'b' (never spoke)
    >>> tracker.observe(BufferHeader("b", sequence=1, watermarks={"default": 7})).emitted
    (Watermark(value=7, key='default'),)
    >>> _ = tracker.observe(BufferHeader("b", sequence=3, watermarks={"default": 30}))
    >>> print(tracker.why().gap)
    gap at sequence 2 (chunks missing: all)
    """

    __slots__ = ("_declared", "_frontier", "_sequences", "_slots")

    def __init__(self, origins: Iterable[Origin] | None = None, *, now: int | None = None) -> None:
        self._declared = origins is not None
        self._frontier = Frontier()
        self._slots: dict[Origin, int] = {}
        self._sequences: list[Sequences] = []
        if origins is not None:
            if isinstance(origins, str):
                raise InvalidArgument("origins", origins, "is a single text", fix=f"write [{origins!r}]")
            now = check_now(now)
            for origin in origins:
                if origin in self._slots:
                    raise InvalidArgument("origins", origin, "stands twice", fix="name every origin once")
                self._learn(origin, now, Status.ACTIVE)

    # ---- steps

    def observe(self, header: BufferHeader, *, now: int | None = None) -> Observed:
        """A buffer has come. A duplicate has no effect but to be counted (S5)."""
        grown = self._take(header, now)
        if grown is None:
            return _DUPLICATE
        if not grown:
            return _NOTHING
        emitted = self._frontier.emit(grown)
        return Observed(_NEW, emitted) if emitted else _NOTHING

    def observe_all(self, headers: Iterable[BufferHeader], *, now: int | None = None) -> ObservedAll:
        """Buffers have come together: all of their origins are heard before anything is emitted.

        So a fast origin does not move the watermark past one that is first heard of, or wakes up, in
        the same moment. What came before a buffer that is refused has been taken.

        >>> tracker = ProgressTracker()
        >>> fast, slow = (BufferHeader(*said) for said in [("a", 1), ("b", 1)])
        >>> marked = [fast._replace(watermarks={"default": 90}), slow._replace(watermarks={"default": 7})]
        >>> tracker.observe_all([*marked, slow])
        ObservedAll(duplicates=[False, False, True], emitted=(Watermark(value=7, key='default'),))
        """
        duplicates: list[bool] = []
        keys: dict[str, None] = {}
        for header in headers:
            grown = self._take(header, now)
            duplicates.append(grown is None)
            if grown:
                keys.update(dict.fromkeys(grown))
        return ObservedAll(duplicates, self._frontier.emit(keys))

    def add(self, origin: Origin, *, now: int | None = None) -> None:
        """One more origin is declared; it holds the watermark back until it speaks.

        >>> tracker = ProgressTracker(["a"])
        >>> tracker.add("b")
        >>> tracker.origins
        ('a', 'b')
        """
        if origin in self._slots:
            raise InvalidArgument("origin", origin, "is there already", fix="add every origin once")
        self._learn(origin, check_now(now), Status.ACTIVE)

    def idle(self, origin: Origin, *, now: int | None = None) -> tuple[Emission, ...]:
        """The origin has nothing to send for now; any new buffer wakes it (S7)."""
        now = check_now(now)
        slot = self._slots.get(origin)
        if slot is None:
            self._learn(self._admit(origin), now, Status.IDLE)
        else:
            self._live(slot, origin, "IDLE")
            self._frontier.set_idle(slot, now)
        return self._frontier.emit_all()

    def done(self, origin: Origin, *, now: int | None = None) -> tuple[Emission, ...]:
        """The origin has ended. Duplicates may still come, new buffers not."""
        now = check_now(now)
        slot = self._slots.get(origin)
        if slot is None:
            self._learn(self._admit(origin), now, Status.DONE)
        else:
            self._live(slot, origin, "DONE")
            self._frontier.set_done(slot, now)
        return self._frontier.emit_all()

    # ---- questions

    def current(self, key: str = DEFAULT_KEY) -> int | None:
        """The global watermark: what was emitted last for a key, None before the first."""
        return self._frontier.emitted(key)

    def local(self, origin: Origin, key: str = DEFAULT_KEY) -> int | None:
        """The watermark of one origin: the highest over its complete prefix (S3)."""
        return self._frontier.value(self._known(origin), key)

    def complete(self, origin: Origin) -> int:
        """The end of the origin's longest complete prefix of sequences."""
        return self._sequences[self._known(origin)].complete

    @property
    def duplicates(self) -> int:
        """How many buffers had been there before."""
        return sum(sequences.duplicates for sequences in self._sequences)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origins declared or learned, in that order."""
        return tuple(self._slots)

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys heard of so far."""
        return tuple(self._frontier.keys)

    def why(self, key: str = DEFAULT_KEY) -> Explanation:
        """Which origin holds the watermark of ``key`` back, since when, and why."""
        if not self._slots:
            return Explanation(key, None, Reason.NEVER_SPOKE)
        holder = self._frontier.holder(key)
        if holder.slot is None:
            return Explanation(key, self.current(key), holder.reason, since=holder.since)
        sequences = self._sequences[holder.slot]
        gap = sequences.gap()
        return Explanation(
            key=key,
            watermark=self.current(key),
            reason=holder.reason if gap is None else Reason.GAP,
            held_by=f"origin {sequences.origin!r}",
            since=holder.since if gap is None else sequences.gap_since,
            holder_watermark=self._frontier.value(holder.slot, key),
            gap=gap,
            others=holder.others,
        )

    # ---- saved form

    def save(self) -> bytes:
        """The whole state: per origin its prefix and what is out of order, never the history (S8)."""
        origins = [_SavedOrigin(sequences.origin, sequences.save()) for sequences in self._sequences]
        return _FORM.seal(_SavedTracker(self._declared, origins, self._frontier.save()))

    @classmethod
    def load(cls, data: bytes) -> ProgressTracker:
        """A tracker that goes on exactly where `save` left off.

        >>> tracker = ProgressTracker(["a"])
        >>> _ = tracker.observe(BufferHeader("a", sequence=1, watermarks={"default": 10}))
        >>> ProgressTracker.load(tracker.save()).current()
        10
        """
        saved = _FORM.unseal(data)
        tracker = cls()
        tracker._declared = saved.declared
        with _FORM.restoring():
            tracker._frontier = Frontier.load(saved.frontier, _FORM.what)
        for slot, origin in enumerate(saved.origins):
            tracker._slots[origin.name] = slot
            tracker._sequences.append(Sequences.load(origin.name, origin.sequences, _FORM.what))
        fits = len(tracker._slots) == len(tracker._sequences) == tracker._frontier.slots
        _FORM.check(fits, "its origins do not fit together")
        return tracker

    # ---- the rules

    def _take(self, header: BufferHeader, now: int | None) -> Marks | None:
        """Take a buffer in: the watermarks by which its origin has risen, or None for a duplicate."""
        origin, sequence, chunk, last, marks = header
        if now is not None and now.__class__ is not int:
            now = check_now(now)
        slot = self._slots.get(origin)
        if slot is None:
            return self._take_of_new_origin(header, now)
        sequences = self._sequences[slot]
        if sequence.__class__ is not int or chunk.__class__ is not int:
            sequence, chunk = check_int64(sequence, "sequence"), check_int64(chunk, "chunk")
        in_order = sequence == sequences.complete + 1 and chunk == 1 and last and not sequences.out_of_order
        if not in_order and sequences.is_duplicate(sequence, chunk, last):
            sequences.duplicates += 1
            return None
        status = self._frontier.status(slot)
        if status is Status.DONE:
            raise AfterDone(f"origin {origin!r}", f"a new buffer (sequence {sequence}, chunk {chunk})")
        marks = self._checked(marks)
        if status is Status.IDLE:
            self._frontier.wake(slot, now)
        grown = sequences.accept(sequence, chunk, last, marks, now)
        if not grown:
            return NO_WATERMARKS
        for key, value in grown.items():
            self._frontier.raise_to(slot, key, value, now)
        return grown

    def _take_of_new_origin(self, header: BufferHeader, now: int | None) -> Marks | None:
        origin = self._admit(header.origin)
        # Everything that can be wrong with the buffer is found before the origin is learned.
        sequence, chunk = check_int64(header.sequence, "sequence"), check_int64(header.chunk, "chunk")
        Sequences(origin).is_duplicate(sequence, chunk, header.last_chunk)
        self._checked(header.watermarks)
        self._learn(origin, now, Status.ACTIVE)
        return self._take(header, now)

    def _admit(self, origin: Origin) -> Origin:
        if self._declared:
            raise UnknownSource(
                f"origin {origin!r}", self._slots, fix="declare it, or leave out origins to learn them"
            )
        return origin

    def _learn(self, origin: Origin, now: int | None, status: Status) -> None:
        origin = check_origin(origin)
        self._slots[origin] = self._frontier.add(now, status)
        self._sequences.append(Sequences(origin))

    def _known(self, origin: Origin) -> int:
        slot = self._slots.get(origin)
        if slot is None:
            raise UnknownSource(f"origin {origin!r}", self._slots, fix="ask for one that has spoken")
        return slot

    def _live(self, slot: int, origin: Origin, received: str) -> None:
        if self._frontier.status(slot) is Status.DONE:
            raise AfterDone(f"origin {origin!r}", received)

    def _checked(self, marks: Marks) -> Marks:
        """The same watermarks, every key and value found to be usable."""
        plain = True
        for key, value in marks.items():
            self._frontier.check_key(key)
            plain = plain and value.__class__ is int and BEGINNING_OF_TIME <= value <= END_OF_TIME
        if plain:
            return marks
        return {key: check_int64(value, f"watermark of key {key!r}") for key, value in marks.items()}
