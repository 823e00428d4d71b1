"""Progress of origins whose buffers arrive out of order, in chunks or twice.

Implements the rules S1 to S8 of docs/spec/progress.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from slackwater.errors import AfterDone, InvalidArgument, UnknownSource
from slackwater.progress.combined_watermark import (
    CombinedWatermark,
    InputState,
    SavedCombinedWatermark,
    Status,
    saved_inputs,
)
from slackwater.progress.explanation import Explanation, OriginProgress, Reason
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.sequences import SavedSequences, Sequences
from slackwater.progress.values import (
    DEFAULT_KEY,
    NO_WATERMARKS,
    BufferHeader,
    Emission,
    Origin,
    Watermarks,
    check_origin,
)
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, check_int64, check_now


class Observed(NamedTuple):
    """The result of one buffer: whether it was a duplicate, and the emissions that followed.

    >>> import slackwater as sw
    >>> sw.ProgressTracker().observe(sw.BufferHeader("a", 1, watermarks={"default": 5})).emitted
    (Watermark(value=5, key='default'),)
    """

    duplicate: bool
    emitted: tuple[Emission, ...]


class ObservedAll(NamedTuple):
    """The result of several buffers: which of them were duplicates, and the emissions after all of them.

    >>> import slackwater as sw
    >>> sw.ProgressTracker().observe_all([sw.BufferHeader("a", 1), sw.BufferHeader("a", 1)]).duplicates
    [False, True]
    """

    duplicates: list[bool]
    emitted: tuple[Emission, ...]


_NEW = False
_DUPLICATE = Observed(duplicate=True, emitted=())
_NOTHING = Observed(_NEW, emitted=())


class _SavedOrigin(Saved):
    name: Origin
    sequences: SavedSequences


class _SavedTracker(Saved):
    declared: bool
    origins: list[_SavedOrigin]
    combined: SavedCombinedWatermark


_FORM = SavedForm("progress tracker", "T", 1, _SavedTracker)


class ProgressTracker:
    """The global watermark over origins that number their buffers.

    The local watermark of an origin covers only the buffers before its first gap. The global watermark is the
    minimum over the origins that are neither idle nor done.

    Args:
        origins: The origins, if they are known: one that has sent nothing holds the watermark back. None: the
            tracker learns origins as they appear, and the emitted watermark still never goes back.
        now: The current time. Optional here and in all methods; only `why` uses it, to report since when.

    Raises:
        InvalidArgument: An origin is listed twice, or is neither a string nor an integer.

    >>> import slackwater as sw
    >>> tracker = sw.ProgressTracker(["a", "b"])
    >>> _ = tracker.observe(sw.BufferHeader("a", sequence=1, watermarks={"default": 10}))
    >>> print(tracker.why())
    watermark unknown: held back by origin 'b' (never spoke)
    >>> tracker.observe(sw.BufferHeader("b", sequence=1, watermarks={"default": 7})).emitted
    (Watermark(value=7, key='default'),)
    >>> _ = tracker.observe(sw.BufferHeader("b", sequence=3, watermarks={"default": 30}))
    >>> print(tracker.why().gap)
    gap at sequence 2 (chunks missing: all)
    """

    __slots__ = ("_combined", "_declared", "_sequences", "_slots")

    def __init__(self, origins: Iterable[Origin] | None = None, *, now: int | None = None) -> None:
        self._declared = origins is not None
        self._combined = CombinedWatermark()
        self._slots: dict[Origin, int] = {}
        self._sequences: list[Sequences] = []
        if origins is not None:
            if isinstance(origins, str):
                raise InvalidArgument(
                    "origins", origins, "is a string, not a list", fix=f"write [{origins!r}]"
                )
            now = check_now(now)
            for origin in origins:
                if origin in self._slots:
                    raise InvalidArgument("origins", origin, "is listed twice", fix="list every origin once")
                self._learn(origin, now, Status.ACTIVE)

    # ---- steps

    def observe(self, header: BufferHeader, *, now: int | None = None) -> Observed:
        """Process a buffer. A duplicate is counted and has no other effect (S5).

        Args:
            header: The header of the buffer.
            now: The current time, for `why`.

        Returns:
            Whether the buffer was a duplicate, and the emissions that are due.

        Raises:
            UnknownSource: The origin was not declared.
            SequenceConflict: The numbers are invalid or contradict earlier buffers (S6).
            AfterDone: The origin has ended.
        """
        grown = self._record(header, now)
        if grown is None:
            return _DUPLICATE
        if not grown:
            return _NOTHING
        emitted = self._combined.emit(grown)
        return Observed(_NEW, emitted) if emitted else _NOTHING

    def observe_all(
        self, headers: Iterable[BufferHeader], *, now: int | None = None, emit: bool = True
    ) -> ObservedAll:
        """Process several buffers and emit once, after all of them.

        A fast origin thus does not advance the watermark past an origin that first appears, or becomes
        active again, in the same batch. If a buffer is rejected, the buffers before it have been processed.

        Args:
            headers: The headers of the buffers.
            now: The current time, for `why`.
            emit: False to emit nothing yet, for example while origins are being discovered; `emit` emits
                later what was held back.

        Returns:
            Which buffers were duplicates, and the emissions that are due.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker()
        >>> fast = sw.BufferHeader("a", sequence=1, watermarks={"default": 90})
        >>> slow = sw.BufferHeader("b", sequence=1, watermarks={"default": 7})
        >>> tracker.observe_all([fast, slow, slow])
        ObservedAll(duplicates=[False, False, True], emitted=(Watermark(value=7, key='default'),))
        """
        duplicates: list[bool] = []
        keys: dict[str, None] = {}
        for header in headers:
            grown = self._record(header, now)
            duplicates.append(grown is None)
            if grown:
                keys.update(dict.fromkeys(grown))
        return ObservedAll(duplicates, self._combined.emit(keys) if emit else ())

    def emit(self) -> tuple[Emission, ...]:
        """Emit what was held back by ``observe_all(…, emit=False)``.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker()
        >>> _ = tracker.observe_all([sw.BufferHeader("a", 1, watermarks={"default": 90})], emit=False)
        >>> _ = tracker.observe_all([sw.BufferHeader("b", 1, watermarks={"default": 7})], emit=False)
        >>> tracker.emit()
        (Watermark(value=7, key='default'),)
        """
        return self._combined.emit_all()

    def is_duplicate(self, header: BufferHeader) -> bool:
        """Return whether a buffer was observed before, without any effect on the state.

        Args:
            header: The header of the buffer.

        Raises:
            UnknownSource: The origin was not declared.
            SequenceConflict: The numbers are invalid or contradict earlier buffers (S6).

        >>> import slackwater as sw
        >>> sw.ProgressTracker().is_duplicate(sw.BufferHeader("a", 1))
        False
        """
        origin, sequence, chunk, last, _ = header
        slot = self._slots.get(origin)
        sequences = Sequences(check_origin(self._admit(origin))) if slot is None else self._sequences[slot]
        return sequences.is_duplicate(check_int64(sequence, "sequence"), check_int64(chunk, "chunk"), last)

    def hear(self, origin: Origin, *, now: int | None = None) -> None:
        """Record that an origin is active without a complete buffer: it is learned or no longer idle (S7).

        Args:
            origin: The origin.
            now: The current time, for `why`.

        Raises:
            UnknownSource: The origin was not declared.
            AfterDone: The origin has ended.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker()
        >>> tracker.hear("a")
        >>> tracker.why().held_by
        "origin 'a'"
        """
        now = check_now(now)
        slot = self._slots.get(origin)
        if slot is None:
            self._learn(self._admit(origin), now, Status.ACTIVE)
        elif self._combined.status(slot) is Status.DONE:
            raise AfterDone(f"origin {origin!r}", "a part of a new buffer")
        else:
            self._combined.wake(slot, now)

    def add(self, origin: Origin, *, now: int | None = None) -> None:
        """Declare one more origin; it holds the watermark back until it sends a watermark.

        Args:
            origin: The name or number of the origin.
            now: The current time, for `why`.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker(["a"])
        >>> tracker.add("b")
        >>> tracker.origins
        ('a', 'b')
        """
        if origin in self._slots:
            raise InvalidArgument("origin", origin, "exists already", fix="add every origin once")
        self._learn(origin, check_now(now), Status.ACTIVE)

    def declare(self, origins: Iterable[Origin] | None, *, now: int | None = None) -> tuple[Emission, ...]:
        """Apply another list of origins: add new ones, and remove those that are not listed.

        An origin that is removed no longer holds the watermark back. Nothing is remembered about it, so that
        it starts again with sequence 1 if it is listed later.

        Args:
            origins: The origins that exist from now on. None: learn them as they appear, and keep all.
            now: The current time.

        Returns:
            What the removed origins held back.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker(["a", "b"])
        >>> _ = tracker.observe(sw.BufferHeader("a", sequence=1, watermarks={"default": 10}))
        >>> tracker.declare(["a", "c"])
        ()
        >>> tracker.declare(["a"]), tracker.origins
        ((Watermark(value=10, key='default'),), ('a',))
        """
        now = check_now(now)
        self._declared = origins is not None
        if origins is None:
            return ()
        listed = dict.fromkeys(origins)
        for origin in listed:
            if origin not in self._slots:
                self._learn(origin, now, Status.ACTIVE)
        removed = {slot for origin, slot in self._slots.items() if origin not in listed}
        if not removed:
            return ()
        self._combined, new = self._combined.without(removed, now)
        self._sequences = [each for slot, each in enumerate(self._sequences) if slot not in removed]
        self._slots = {origin: new[slot] for origin, slot in self._slots.items() if slot not in removed}
        return self._combined.emit_all()

    def idle(self, origin: Origin, *, now: int | None = None) -> tuple[Emission, ...]:
        """Process IDLE of an origin; any new buffer makes it active again (S7).

        Args:
            origin: The origin.
            now: The current time, for `why`.
        """
        return self._leave(origin, Status.IDLE, now)

    def done(self, origin: Origin, *, now: int | None = None) -> tuple[Emission, ...]:
        """Process DONE of an origin. Duplicates may still arrive, new buffers may not (S5, S6).

        Args:
            origin: The origin.
            now: The current time, for `why`.
        """
        return self._leave(origin, Status.DONE, now)

    # ---- queries

    def current(self, key: str = DEFAULT_KEY) -> int | None:
        """Return the global watermark of a key: the last one emitted, None before the first.

        Args:
            key: The watermark key.
        """
        return self._combined.emitted(key)

    def local(self, origin: Origin, key: str = DEFAULT_KEY) -> int | None:
        """Return the local watermark of an origin: the maximum over its complete prefix (S3).

        Args:
            origin: The origin.
            key: The watermark key.
        """
        return self._combined.value(self._slot(origin), key)

    def complete(self, origin: Origin) -> int:
        """Return the last sequence of the origin's longest complete prefix.

        Args:
            origin: The origin.
        """
        return self._sequences[self._slot(origin)].complete

    @property
    def duplicates(self) -> int:
        """Number of duplicate buffers."""
        return sum(sequences.duplicates for sequences in self._sequences)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origins, in the order in which they were declared or learned."""
        return tuple(self._slots)

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys seen so far."""
        return tuple(self._combined.keys)

    def origin_progress(self, key: str = DEFAULT_KEY) -> list[OriginProgress]:
        """The progress of every origin for a key, in the order in which they were declared or learned.

        Args:
            key: The watermark key.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker()
        >>> _ = tracker.observe(sw.BufferHeader("a", sequence=2, watermarks={"default": 10}))
        >>> [str(origin.gap) for origin in tracker.origin_progress()]
        ['gap at sequence 1 (chunks missing: all)']
        """
        combined = self._combined
        return [
            OriginProgress(
                name,
                combined.value(slot, key),
                combined.status_name(slot),
                gap=self._sequences[slot].gap(),
            )
            for name, slot in self._slots.items()
        ]

    def why(self, key: str = DEFAULT_KEY) -> Explanation:
        """Explain which origin holds the watermark of ``key`` back, since when, and why.

        Args:
            key: The watermark key.
        """
        if not self._slots:
            return Explanation(key, None, Reason.NEVER_SPOKE)
        holder = self._combined.holder(key)
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
            holder_watermark=self._combined.value(holder.slot, key),
            gap=gap,
            others=holder.others,
        )

    # ---- saved form

    def save(self) -> bytes:
        """Serialize the state: the complete prefix of each origin and what is out of order (S8)."""
        origins = [_SavedOrigin(sequences.origin, sequences.save()) for sequences in self._sequences]
        return _FORM.encode(_SavedTracker(self._declared, origins, self._combined.save()))

    @classmethod
    def load(cls, data: bytes) -> ProgressTracker:
        """Restore a tracker from the bytes of `save`.

        Args:
            data: The saved state.

        >>> import slackwater as sw
        >>> tracker = sw.ProgressTracker(["a"])
        >>> _ = tracker.observe(sw.BufferHeader("a", sequence=1, watermarks={"default": 10}))
        >>> sw.ProgressTracker.load(tracker.save()).current()
        10
        """
        saved = _FORM.decode(data)
        tracker = cls()
        tracker._declared = saved.declared
        with _FORM.restoring():
            tracker._combined = CombinedWatermark.load(saved.combined, _FORM.what)
        for slot, origin in enumerate(saved.origins):
            tracker._slots[origin.name] = slot
            tracker._sequences.append(Sequences.load(origin.name, origin.sequences, _FORM.what))
        consistent = len(tracker._slots) == len(tracker._sequences) == tracker._combined.slots
        _FORM.check(consistent, "its origins are inconsistent")
        return tracker

    # ---- implementation

    def _record(self, header: BufferHeader, now: int | None) -> Watermarks | None:
        """Record a buffer; return the watermarks that its origin reached, None for a duplicate."""
        origin, sequence, chunk, last, watermarks = header
        if now is not None and now.__class__ is not int:
            now = check_now(now)
        slot = self._slots.get(origin)
        if slot is None:
            return self._record_new_origin(header, now)
        sequences = self._sequences[slot]
        if sequence.__class__ is not int or chunk.__class__ is not int:
            sequence, chunk = check_int64(sequence, "sequence"), check_int64(chunk, "chunk")
        in_order = sequence == sequences.complete + 1 and chunk == 1 and last and not sequences.out_of_order
        if not in_order and sequences.is_duplicate(sequence, chunk, last):
            sequences.duplicates += 1
            return None
        status = self._combined.status(slot)
        if status is Status.DONE:
            raise AfterDone(f"origin {origin!r}", f"a new buffer (sequence {sequence}, chunk {chunk})")
        watermarks = self._checked(watermarks)
        if status is Status.IDLE:
            self._combined.wake(slot, now)
        grown = sequences.accept(sequence, chunk, last, watermarks, now)
        if not grown:
            return NO_WATERMARKS
        for key, value in grown.items():
            self._combined.raise_to(slot, key, value, now)
        return grown

    def _record_new_origin(self, header: BufferHeader, now: int | None) -> Watermarks | None:
        origin = self._admit(header.origin)
        # All checks come first, so that a rejected buffer does not add its origin.
        sequence, chunk = check_int64(header.sequence, "sequence"), check_int64(header.chunk, "chunk")
        Sequences(origin).is_duplicate(sequence, chunk, header.last_chunk)
        self._checked(header.watermarks)
        self._learn(origin, now, Status.ACTIVE)
        return self._record(header, now)

    def _admit(self, origin: Origin) -> Origin:
        """Return an origin that may be learned; raise if origins were declared."""
        if self._declared:
            raise UnknownSource(
                f"origin {origin!r}", self._slots, fix="declare it, or omit origins to learn them"
            )
        return origin

    def _learn(self, origin: Origin, now: int | None, status: Status) -> None:
        origin = check_origin(origin)
        self._slots[origin] = self._combined.add(now, status)
        self._sequences.append(Sequences(origin))

    def _slot(self, origin: Origin) -> int:
        slot = self._slots.get(origin)
        if slot is None:
            raise UnknownSource(f"origin {origin!r}", self._slots, fix="use one of the known origins")
        return slot

    def _leave(
        self, origin: Origin, status: Literal[Status.IDLE, Status.DONE], now: int | None
    ) -> tuple[Emission, ...]:
        """Exclude an origin from the minimum, also one that is new, and emit what it held back."""
        now = check_now(now)
        slot = self._slots.get(origin)
        if slot is None:
            self._learn(self._admit(origin), now, status)
        elif self._combined.status(slot) is Status.DONE:
            raise AfterDone(f"origin {origin!r}", status.name)
        elif status is Status.IDLE:
            self._combined.set_idle(slot, now)
        else:
            self._combined.set_done(slot, now)
        return self._combined.emit_all()

    def _checked(self, watermarks: Watermarks) -> Watermarks:
        """Validate the keys and values of watermarks."""
        plain = True
        for key, value in watermarks.items():
            self._combined.check_key(key)
            plain = plain and value.__class__ is int and BEGINNING_OF_TIME <= value <= END_OF_TIME
        if plain:
            return watermarks
        return {key: check_int64(value, f"watermark of key {key!r}") for key, value in watermarks.items()}


def origins_in(data: bytes) -> list[InputState]:
    """The origins in the saved state of a tracker.

    >>> tracker = ProgressTracker(["a"], now=0)
    >>> origins_in(tracker.save())
    [InputState(name='a', status='active', watermarks={})]
    """
    saved = _FORM.decode(data)
    return saved_inputs(saved.combined, {slot: str(each.name) for slot, each in enumerate(saved.origins)})
