"""The state of a windowed operator: a small index, and blobs in a key-value store.

The index lists the open windows, their blobs and the times at which they are due. It is one value, read and
written with every step. The blobs hold what grows with the number of keys; a step reads and writes only the
blobs of the windows that it touches. `docs/reference/window-state.md` describes the format.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

import polars as pl

from slackwater.errors import CorruptState
from slackwater.progress.saved_form import OlderForm, Saved, SavedForm
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.assigners import WindowBounds
from slackwater.windows.engine.blobs import BlobStore, decode, encode
from slackwater.windows.engine.frames import stack
from slackwater.windows.engine.key_hash import PART, can_divide, hash_check, with_part
from slackwater.windows.engine.operator_description import OperatorDescription
from slackwater.windows.operator_columns import missed_column

FAN_IN = 8
"""The number of blobs of one level that are compacted into one of the next."""


ROWS_WORTH_DIVIDING: Final = 8192
"""A frame with more rows is divided by key, if a few of its keys may be needed."""
ROWS_OF_A_PART: Final = 4096
"""The average number of rows in a part, at most."""


class Blob(Saved):
    """A blob that was appended, or compacted from others: its name, level and number of rows."""

    name: str
    level: int
    rows: int


class SliceEntry(Saved):
    """The partials of a slice: a whole window, or a range of event time that several windows share."""

    start: int
    end: int
    blobs: list[Blob]


class WindowEntry(Saved):
    """An open window in the index (for sessions, a group of them)."""

    start: int
    end: int
    rows: str | None = None
    """The blob with one window row per key; None while the window only waits for its end."""
    last_panes: str | None = None
    """The blob with the last pane of each key, if it may be retracted or compared with the next."""
    target: int | None = None
    """The earliest processing time at which the trigger must be evaluated."""
    hold: int | None = None
    """The earliest timestamp of an on-time pane that is still due; it holds the watermark."""
    due: int = 0
    """The next watermark at which it must be evaluated: its end, then its purge time."""
    fired: int = 0
    """The last step in which one of its rows fired."""
    earliest_start: int = 0
    """The earliest start in the group; only for sessions."""
    waiting: int | None = None
    """The end of the window if it still owes a pane (for sessions, the earliest such end in the group)."""
    retractable: int | None = None
    """The watermark that is held while panes may be retracted; see `retraction_hold`."""
    row_log: list[Blob] = []  # noqa: RUF012  # msgspec copies it
    """The rows of a group of sessions, which has no ``rows``; see `slackwater.windows.engine.row_log`."""
    pane_log: list[Blob] = []  # noqa: RUF012
    """The last panes of a group of sessions, which has no ``last_panes``."""


class KeyTimes(Saved):
    """When some keys of a window are due, and what they hold back; None where nothing is."""

    hold: int | None = None
    """The earliest timestamp of an on-time pane that is still due, or that of a pane to retract."""
    waiting: int | None = None
    """The end of the window if one of the keys still owes a pane."""
    target: int | None = None
    """The earliest processing time at which the trigger must be evaluated."""
    due: int | None = None
    """The next watermark at which one of them must be evaluated, before the window itself is due."""

    @classmethod
    def earliest(cls, several: Iterable[KeyTimes]) -> KeyTimes:
        """The earliest of each time."""
        columns = zip(*((one.hold, one.waiting, one.target, one.due) for one in several), strict=True)
        return cls(*(min((at for at in column if at is not None), default=None) for column in columns))


class KeyPart(Saved):
    """Some of the keys of a divided frame."""

    blob: str | None
    """Their rows; None if there are none."""
    rows: int
    times: KeyTimes


class Division(Saved):
    """A frame with many keys that is stored in several blobs, divided by the hash of the key."""

    name: str
    parts: list[KeyPart]

    @property
    def rows(self) -> int:
        """The number of rows in all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def blobs(self) -> list[str]:
        """The names of the blobs of all parts."""
        return [part.blob for part in self.parts if part.blob is not None]


class _IndexLayout1(Saved):
    """The saved form of the index in version 1; ``signature`` is the operator's description as text."""

    watermark: int | None
    clock: int
    forwarded: int
    dropped_late: int
    dropped_closed: int
    step: int
    next_blob: int
    signature: str
    empty: bytes | None
    kinds: dict[str, str]
    slices: list[SliceEntry]
    windows: list[WindowEntry]
    closed_until: int | None = None


class IndexLayout(Saved):
    """The saved form of the index."""

    watermark: int | None
    clock: int
    forwarded: int
    dropped_late: int
    dropped_closed: int
    step: int
    next_blob: int
    description: OperatorDescription
    empty: bytes | None
    kinds: dict[str, str]
    slices: list[SliceEntry]
    windows: list[WindowEntry]
    closed_until: int | None
    """The watermark that the operator reached by closing its windows when all inputs became idle."""
    purged_until: int
    missed: list[str]
    divisions: list[Division] = []  # noqa: RUF012
    key_hash: int = 0
    """The hash by which frames are divided; see `hash_check`."""


def _upgraded(old: _IndexLayout1) -> IndexLayout:
    description = OperatorDescription.from_signature(old.signature)
    for entry in old.windows:  # version 1 did not record which windows owe a pane
        if entry.end < END_OF_TIME and (entry.rows is None or entry.hold is not None):
            entry.waiting = entry.end
    if description.has_sessions:  # version 1 had a single blob, whose size it did not record
        for entry in old.windows:
            entry.row_log = [Blob(name, 0, 0) for name in (entry.rows,) if name is not None]
            entry.pane_log = [Blob(name, 0, 0) for name in (entry.last_panes,) if name is not None]
            entry.rows = entry.last_panes = None
    return IndexLayout(
        watermark=old.watermark,
        clock=old.clock,
        forwarded=old.forwarded,
        dropped_late=old.dropped_late,
        dropped_closed=old.dropped_closed,
        step=old.step,
        next_blob=old.next_blob,
        description=description,
        empty=old.empty,
        kinds=old.kinds,
        slices=old.slices,
        windows=old.windows,
        closed_until=old.closed_until,
        purged_until=BEGINNING_OF_TIME,
        missed=[],
    )


INDEX_FORM = SavedForm(
    "window state",
    "W",
    3,
    IndexLayout,
    readable=(2,),
    older=(OlderForm(1, _IndexLayout1, _upgraded),),
)

_STALE = 64
"""How many outdated entries an agenda holds before it is rebuilt."""

Member = TypeVar("Member", bound=Hashable)


class Agenda(Generic[Member]):
    """A priority queue of members by due time, in which the due time of a member can change.

    >>> agenda: Agenda[str] = Agenda()
    >>> for member, due in (("a", 5), ("b", 3), ("a", 1)):
    ...     agenda.set(member, due)
    >>> agenda.earliest(), agenda.take(3), agenda.earliest()
    (1, ['a', 'b'], None)
    """

    def __init__(self) -> None:
        self._due: dict[Member, int] = {}
        self._heap: list[tuple[int, Member]] = []

    def set(self, member: Member, due: int | None) -> None:
        """Set the due time of a member; None removes it."""
        if due is None:
            self._due.pop(member, None)
        elif self._due.get(member) != due:
            self._due[member] = due
            heapq.heappush(self._heap, (due, member))
            if len(self._heap) > 2 * len(self._due) + _STALE:  # more than half are outdated
                self._heap = [(at, each) for each, at in self._due.items()]
                heapq.heapify(self._heap)

    def earliest(self) -> int | None:
        """The earliest due time; None if there are no members."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, until: int) -> list[Member]:
        """Remove and return the members that are due at or before ``until``, earliest first."""
        taken: list[Member] = []
        while (earliest := self.earliest()) is not None and earliest <= until:
            member = heapq.heappop(self._heap)[1]
            del self._due[member]
            taken.append(member)
        return taken


class WindowState:
    """The state of a windowed operator between two steps; created and loaded by the operator.

    >>> from slackwater.windows import Count, Fixed, WindowedOperator
    >>> operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    >>> state, _ = operator.step(operator.initial_state(), pl.DataFrame({"ts": [3, 12]}))
    >>> state.open_windows, len(state.blobs)
    (2, 2)
    """

    def __init__(self, blobs: BlobStore, description: OperatorDescription) -> None:
        self.blobs = blobs
        self.description = description
        """The operator that the state belongs to."""
        self.watermark: int | None = None
        self.received: int | None = None
        """The last watermark received; lower than ``watermark`` after idle inputs closed all windows."""
        self.clock = BEGINNING_OF_TIME
        self.forwarded = BEGINNING_OF_TIME
        self.dropped_late = 0
        self.dropped_closed = 0
        self.step = 0
        self.slices: dict[WindowBounds, SliceEntry] = {}
        self.windows: dict[WindowBounds, WindowEntry] = {}
        self.empty: pl.DataFrame | None = None
        """A frame without rows that has the columns and types of partials; None before the first batch."""
        self.kinds: dict[str, str] = {}
        """The kind of values in each key and input column, which must be the same in all batches."""
        self.purged_until = BEGINNING_OF_TIME
        """Windows that end here or earlier were purged before the allowed lateness was raised."""
        self.missed: list[str] = []
        """The accumulations whose partials have a marker for missed elements (``on_change="null"``)."""
        self.restarted = False
        """Whether the trigger has changed since the last step; not saved, because a step follows a load."""
        self.divisions: dict[str, Division] = {}
        """The frames that are divided, by their name."""
        self.divided_again = False
        """Whether the hash of the keys has changed since the last step; not saved."""
        self.due_windows: Agenda[WindowBounds] = Agenda()
        self.targets: Agenda[WindowBounds] = Agenda()
        self.holds: Agenda[WindowBounds] = Agenda()
        self._next_blob = 0
        self._read: dict[str, pl.DataFrame] = {}
        self._written: set[str] = set()

    @property
    def open_windows(self) -> int:
        """The number of open windows (for sessions, of groups of them)."""
        return len(self.windows)

    @property
    def waiting(self) -> int | None:
        """The end of the earliest window that still owes a pane; None if the operator holds nothing."""
        ends = (entry.waiting for entry in self.windows.values() if entry.waiting is not None)
        return min(ends, default=None)

    @property
    def no_partials(self) -> pl.DataFrame:
        """A frame without rows that has the columns and types of partials."""
        if self.empty is None:
            raise CorruptState("window state", "its index has windows but not the types of their partials")
        return self.empty

    # ---- the index

    def note(self, entry: WindowEntry) -> None:
        """Add a window to the index, or update its due times.

        Args:
            entry: the window with its due times.
        """
        bounds = entry.start, entry.end
        self.windows[bounds] = entry
        self.due_windows.set(bounds, entry.due)
        self.targets.set(bounds, entry.target)
        holds = [at for at in (entry.hold, entry.retractable) if at is not None]
        self.holds.set(bounds, min(holds, default=None))

    def forget(self, bounds: WindowBounds) -> None:
        """Remove a window from the index, and its blobs.

        Args:
            bounds: the start and end of the window.
        """
        entry = self.windows.pop(bounds)
        for agenda in (self.due_windows, self.targets, self.holds):
            agenda.set(bounds, None)
        self.delete(entry.rows)
        self.delete(entry.last_panes)
        for blob in (*entry.row_log, *entry.pane_log):
            self.delete(blob.name)

    def forget_slice(self, bounds: WindowBounds) -> None:
        """Remove a slice from the index, and its blobs; does nothing if there is none.

        Args:
            bounds: the start and end of the slice.
        """
        entry = self.slices.pop(bounds, None)
        if entry is not None:
            for blob in entry.blobs:
                self.delete(blob.name)

    def nothing_missed(self) -> list[pl.Expr]:
        """The markers of missed elements for new partials, if older ones have them."""
        return [pl.lit(value=False).alias(missed_column(name)) for name in self.missed]

    # ---- blobs; they are written at the end of the step, so that short-lived ones are never encoded

    def read(self, name: str | None) -> pl.DataFrame:
        """The frame of a blob that is in the index, or of a division.

        Args:
            name: the name of the blob or division.
        """
        if name is None:
            raise CorruptState("window state", "its index has a window without the blob that it needs")
        if name in self.divisions:
            return stack(self.read(blob) for blob in self.divisions[name].blobs)
        frame = self._read.get(name)
        if frame is None:
            try:
                data = self.blobs[name]
            except KeyError:
                raise CorruptState(
                    "window state", f"blob {name!r} is in its index but not in the store"
                ) from None
            frame = self._read[name] = decode(data, f"window state (blob {name})")
        return frame

    def write(self, frame: pl.DataFrame, replaces: str | None = None, *, divides: bool = False) -> str | None:
        """Store a frame in a new blob that replaces another one; its name, or None if it is empty.

        Args:
            frame: the rows.
            replaces: the name of the blob that is deleted.
            divides: whether a frame with many rows is divided by key, so that a few can be read or changed.
        """
        self.delete(replaces)
        if frame.is_empty():
            return None
        name = str(self._next_blob)
        self._next_blob += 1
        if divides and frame.height > ROWS_WORTH_DIVIDING and can_divide(frame):
            count = 1 << (frame.height // ROWS_OF_A_PART).bit_length()
            self.divisions[name] = self._divided(name, frame, count)
            return name
        self._read[name] = frame
        self._written.add(name)
        return name

    def _divided(self, name: str, frame: pl.DataFrame, count: int) -> Division:
        """Write a frame in parts."""
        frames = with_part(frame, count).partition_by(PART, as_dict=True, include_key=False)
        found = (frames.get((number,), frame.clear()) for number in range(count))
        return Division(name, [KeyPart(self.write(part), part.height, KeyTimes()) for part in found])

    def is_new(self, name: str) -> bool:
        """Whether a blob was written in this step, so that it is not encoded yet.

        Args:
            name: the name of the blob.
        """
        return name in self._written

    def delete(self, name: str | None) -> None:
        """Delete a blob or a division; does nothing for None.

        Args:
            name: the name of the blob or division.
        """
        if name is None:
            return
        if name in self.divisions:
            for blob in self.divisions.pop(name).blobs:
                self.delete(blob)
            return
        self._read.pop(name, None)
        if name in self._written:
            self._written.discard(name)
        else:
            with suppress(KeyError):  # del instead of pop(), which would read the blob
                del self.blobs[name]

    def flush(self) -> None:
        """End a step: encode the blobs that were written, and release those that were read."""
        for name in sorted(self._written, key=int):
            self.blobs[name] = encode(self._read[name])
        self._written.clear()
        self._read.clear()

    def _divide_again(self) -> None:
        """Divide all frames by the present hash of their keys, after another one has divided them."""
        for division in list(self.divisions.values()):
            frame = self.read(division.name)
            for blob in division.blobs:
                self.delete(blob)
            self.divisions[division.name] = self._divided(division.name, frame, len(division.parts))
            self.flush()
        self.divided_again = True

    # ---- saving

    def save(self) -> bytes:
        """The index as bytes."""
        return INDEX_FORM.encode(
            IndexLayout(
                watermark=self.received,
                clock=self.clock,
                forwarded=self.forwarded,
                dropped_late=self.dropped_late,
                dropped_closed=self.dropped_closed,
                step=self.step,
                next_blob=self._next_blob,
                description=self.description,
                empty=None if self.empty is None else encode(self.empty),
                kinds=self.kinds,
                slices=list(self.slices.values()),
                windows=list(self.windows.values()),
                closed_until=None if self.watermark == self.received else self.watermark,
                purged_until=self.purged_until,
                missed=self.missed if self.windows else [],
                divisions=list(self.divisions.values()),
                key_hash=hash_check() if self.divisions else 0,
            )
        )

    @classmethod
    def load(cls, saved: bytes, blobs: BlobStore) -> WindowState:
        """Load the index that `save` returned, with the blobs that belong to it.

        Args:
            saved: the saved index.
            blobs: the store that has its blobs.
        """
        layout = INDEX_FORM.decode(saved)
        state = cls(blobs, layout.description)
        state.received, state.clock, state.forwarded = layout.watermark, layout.clock, layout.forwarded
        state.watermark = layout.watermark if layout.closed_until is None else layout.closed_until
        state.purged_until, state.missed = layout.purged_until, layout.missed
        state.dropped_late, state.dropped_closed = layout.dropped_late, layout.dropped_closed
        state.step, state._next_blob = layout.step, layout.next_blob
        state.kinds = layout.kinds
        state.empty = (
            None if layout.empty is None else decode(layout.empty, "window state (types of partials)")
        )
        state.divisions = {division.name: division for division in layout.divisions}
        if state.divisions and layout.key_hash != hash_check():
            state._divide_again()
        state.slices = {(entry.start, entry.end): entry for entry in layout.slices}
        for entry in layout.windows:
            state.note(entry)
        return state
