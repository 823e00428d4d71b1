"""The watermark of a source whose producers number their buffers and send watermarks themselves.

The rules are those of `slackwater.progress.tracker`. A micro-batch contains buffers of many origins, so all
of them are applied before the watermark advances. A buffer whose header announces its number of rows may be
divided between several batches; it is applied when its last rows have arrived. Idleness is measured as for
other sources: a slow batch or a restart makes no origin idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import field

from slackwater.errors import SequenceConflict
from slackwater.monitoring.origins import OriginState
from slackwater.progress.discovery import Discover
from slackwater.progress.explanation import Explanation, Gap, Reason
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import DEFAULT_KEY, BufferHeader, Origin
from slackwater.spark.runtime.partial_chunks import PartialChunk, combined
from slackwater.spark.runtime.source_progress import origin_states, processing_pause
from slackwater.spark.wire.buffers import Number, OriginChunk, Run
from slackwater.spark.wire.numbered_chunks import Repeats


@dataclass(frozen=True, slots=True)
class NumberedRules:
    """How the watermark of numbered buffers is made.

    ``origins`` are the declared ones; `Discover` or None discovers them, with or without a wait.

    >>> NumberedRules(origins=("a",)).key
    'default'
    """

    idle_after: int | None = None
    origins: tuple[Origin, ...] | Discover | None = None
    key: str = DEFAULT_KEY

    @property
    def declared(self) -> tuple[Origin, ...] | None:
        """The declared origins; None if they are discovered."""
        return None if isinstance(self.origins, Discover) else self.origins


class _SavedNumbered(Saved):
    tracker: bytes
    last_heard: list[tuple[Origin, int]]
    partial: list[PartialChunk] = field(default_factory=list)
    discovery: tuple[int, int] | None = None
    """When the discovery of origins began and when it ends; None if it is over."""
    recent: list[tuple[Origin, int, int, int, int]] = field(default_factory=list)
    """Origin, sequence, chunk and content of the last chunks of each origin."""


NUMBERED_FORM: Final = SavedForm("progress of numbered buffers", "H", 2, _SavedNumbered, readable=(1,))


_Content = tuple[int, int]
"""The number of rows of a chunk, and the sum of their event times."""
_Recent = dict[tuple[int, int], _Content]
_REMEMBERED: Final = 2
"""How many chunks of an origin's last batch are remembered: a source divides those at the end of a batch."""


class NumberedProgress:
    """The watermark of one source of numbered buffers.

    >>> progress = NumberedProgress(NumberedRules(), now=0)
    >>> first, third = (OriginChunk("a", sequence, 1, True, 10 * sequence, 0) for sequence in (1, 3))
    >>> progress.advance([first, third], now=1).chunks
    set()
    >>> progress.watermark, str(progress.why().gap)
    (10, 'gap at sequence 2 (chunks missing: all)')
    >>> progress.advance([first, OriginChunk("a", 2, 1, True, None, 0)], now=2).chunks
    {('a', 1, 1, True)}
    >>> progress.watermark
    30
    """

    def __init__(self, rules: NumberedRules, now: int, saved: bytes | None = None) -> None:
        self._rules = rules
        self._now = now
        self._partial: dict[Number, PartialChunk] = {}
        self._recent: dict[Origin, _Recent] = {}
        waits = isinstance(rules.origins, Discover)
        self._discovery = (now, now + rules.origins.wait) if isinstance(rules.origins, Discover) else None
        if saved is None:
            self._tracker = ProgressTracker(rules.declared, now=now)
            self._last_heard = dict.fromkeys(self._tracker.origins, now)
        else:
            state = NUMBERED_FORM.decode(saved)
            self._tracker = ProgressTracker.load(state.tracker)
            self._last_heard = dict(state.last_heard)
            self._partial = {chunk.number: chunk for chunk in state.partial}
            for origin, sequence, number, rows, times in state.recent:
                self._recent.setdefault(origin, {})[sequence, number] = rows, times
            self._discovery = state.discovery if waits else None
            self._tracker.declare(rules.declared, now=now)
            known = self._tracker.origins
            self._last_heard = {origin: self._last_heard.get(origin, now) for origin in known}
            self._recent = {origin: each for origin, each in self._recent.items() if origin in known}
            self._partial = {number: each for number, each in self._partial.items() if each.origin in known}

    @property
    def watermark(self) -> int | None:
        """The current watermark; None before the first."""
        return self._tracker.current()

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The current watermark by its key."""
        return {self._rules.key: self.watermark}

    @property
    def idle(self) -> bool:
        """Whether every origin is idle; an origin that has never sent anything is waited for."""
        why = self._tracker.why()
        return why.held_by is None and why.reason is Reason.IDLE

    @property
    def duplicates(self) -> int:
        """The number of repeated buffers."""
        return self._tracker.duplicates

    def advance(self, chunks: Sequence[OriginChunk], now: int, *, restarted: bool = False) -> Repeats:
        """Apply a batch; return which of its buffers and rows had arrived before.

        Several tasks may have rows of one buffer: within a batch they count as one.
        """
        pause = processing_pause(self._now, now, self._rules.idle_after, restarted=restarted)
        self._last_heard = {origin: at + pause for origin, at in self._last_heard.items()}
        if self._discovery is not None:
            begin, end = self._discovery[0], self._discovery[1] + pause
            self._discovery = (begin, end) if now < end else None
        arrived, earlier = self._arrived(chunks, now)
        content = _content(chunks)
        numbers = list(arrived)
        headers = [BufferHeader(*number, _marks(arrived[number])) for number in numbers]
        duplicates = self._tracker.observe_all(headers, now=now, emit=False).duplicates
        repeated: set[Number] = set()
        new: dict[Origin, _Recent] = {}
        for number, duplicate in zip(numbers, duplicates, strict=True):
            origin, sequence, chunk, _ = number
            if duplicate:
                repeated.add(number)
                if number in content:
                    self._check_copy(number, content[number])
            else:
                self._last_heard[origin] = now
                if number in content:
                    new.setdefault(origin, {})[sequence, chunk] = content[number]
        for origin, recent in new.items():
            self._recent[origin] = {key: recent[key] for key in sorted(recent)[-_REMEMBERED:]}
        if self._discovery is None:
            self._tracker.emit()
        if self._rules.idle_after is not None and self._discovery is None:
            for origin, at in self._last_heard.items():
                if at + self._rules.idle_after <= now:
                    self._tracker.idle(origin, now=now)
        self._now = now
        return Repeats(repeated, earlier)

    def set_back(self, by: int) -> None:
        """Follow a clock that was set back: what happened before it keeps its age."""
        self._last_heard = {origin: at - by for origin, at in self._last_heard.items()}
        if self._discovery is not None:
            self._discovery = self._discovery[0] - by, self._discovery[1] - by
        self._now -= by

    def _check_copy(self, number: Number, content: _Content) -> None:
        """Raise if a chunk of the origin's last batch arrives again with other rows, and not as a copy."""
        origin, sequence, chunk, _ = number
        known = self._recent.get(origin, {}).get((sequence, chunk))
        if known is not None and not _is_copy(known, content):
            reason = (
                f"its rows are not a copy of those in an earlier micro-batch (now {content[0]}, before "
                f"{known[0]}): the source divides buffers between batches; give the number of rows of a "
                "buffer with headers(rows=…)"
            )
            raise SequenceConflict(origin, sequence, chunk, reason)

    def _arrived(
        self, parts: Sequence[OriginChunk], now: int
    ) -> tuple[dict[Number, int | None], dict[Number, tuple[Run, ...]]]:
        """The watermarks of the complete or repeated chunks, and the rows of the others that arrived before.

        In a fixed order, so that few chunks are out of order and a conflict always names the same chunk.
        """
        arrived: dict[Number, int | None] = {}
        announced: dict[Number, list[OriginChunk]] = {}
        counted = {part.number for part in parts if part.announced is not None} | self._partial.keys()
        for part in parts:
            number, watermark = part.number, part.watermark
            if number in counted:
                announced.setdefault(number, []).append(part)
                continue
            known_watermark = arrived.setdefault(number, watermark)
            if watermark is not None and (known_watermark is None or watermark > known_watermark):
                arrived[number] = watermark
        earlier: dict[Number, tuple[Run, ...]] = {}
        for number, mine in sorted(announced.items(), key=_order):
            if self._tracker.is_duplicate(BufferHeader(*number)):
                arrived[number] = None
                continue
            known = self._partial.get(number)
            rows_before = -1 if known is None else known.arrived
            if known is not None:
                earlier[number] = tuple(known.numbered)
            chunk = combined(known, mine)
            if chunk.is_complete:
                self._partial.pop(number, None)
                arrived[number] = chunk.watermark
            elif chunk.arrived > rows_before:
                self._partial[number] = chunk
                self._tracker.hear(chunk.origin, now=now)
                self._last_heard[chunk.origin] = now
        return dict(sorted(arrived.items(), key=_order)), earlier

    def why(self, key: str | None = None) -> Explanation:
        """Which origin holds the watermark back, since when, and why."""
        key = self._rules.key if key is None else key
        if self._discovery is not None:
            return Explanation(key, None, Reason.DISCOVERY, since=self._discovery[0])
        why = self._tracker.why(key)
        waiting = [chunk for chunk in self._partial.values() if why.held_by == f"origin {chunk.origin!r}"]
        if why.gap is not None or not waiting:
            return why
        first = min(waiting, key=lambda chunk: (chunk.sequence, chunk.chunk))
        return replace(why, reason=Reason.GAP, gap=Gap(first.sequence, ((first.chunk, first.chunk),)))

    def origins(self) -> list[OriginState]:
        """The progress of every origin."""
        heard = self._last_heard
        known = (one._replace(heard=heard.get(one.name)) for one in self._tracker.origin_progress())
        return origin_states(known, self._rules.key, self._now)

    def save(self) -> bytes:
        """The saved state."""
        partial = list(self._partial.values())
        last_heard = list(self._last_heard.items())
        return NUMBERED_FORM.encode(
            _SavedNumbered(
                self._tracker.save(),
                last_heard,
                partial,
                self._discovery,
                [
                    (origin, *number, *content)
                    for origin, recent in self._recent.items()
                    for number, content in recent.items()
                ],
            )
        )


def _content(parts: Sequence[OriginChunk]) -> dict[Number, _Content]:
    """The rows of each chunk in a batch that does not announce their number; several tasks may have some."""
    content: dict[Number, _Content] = {}
    for part in parts:
        if part.announced is not None:
            continue
        rows, times = content.get(part.number, (0, 0))
        content[part.number] = rows + part.rows, times + part.times
    return content


def _is_copy(known: _Content, content: _Content) -> bool:
    """Whether the rows may be the same; a batch may contain several copies of a chunk.

    >>> _is_copy((3, 40), (6, 80)), _is_copy((3, 40), (3, 41)), _is_copy((3, 40), (2, 30))
    (True, False, False)
    """
    (fewer, times), (more, sum_of_times) = sorted((known, content))
    if not fewer:
        return not more
    copies, rest = divmod(more, fewer)
    return not rest and copies * times == sum_of_times


def _order(item: tuple[Number, object]) -> tuple[str, int, int, bool]:
    origin, sequence, chunk, last = item[0]
    return str(origin), sequence, chunk, last


def _marks(watermark: int | None) -> dict[str, int]:
    return {} if watermark is None else {DEFAULT_KEY: watermark}
