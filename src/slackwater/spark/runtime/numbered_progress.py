"""The watermark of a source whose producers number their buffers and send watermarks themselves.

The rules are those of `slackwater.progress.tracker`. A micro-batch contains buffers of many origins, so all
of them are applied before the watermark advances. Idleness is measured as for other sources: a slow batch or
a restart makes no origin idle.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from slackwater.progress.explanation import Explanation, Reason
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import DEFAULT_KEY, BufferHeader, Origin
from slackwater.spark.runtime.source_progress import processing_pause
from slackwater.spark.wire.buffers import Chunk, Number


@dataclass(frozen=True, slots=True)
class NumberedRules:
    """How the watermark of numbered buffers is made. ``origins`` are the declared ones; None discovers them.

    >>> NumberedRules(origins=("a",)).key
    'default'
    """

    idle_after: int | None = None
    origins: tuple[Origin, ...] | None = None
    key: str = DEFAULT_KEY


class _SavedNumbered(Saved):
    tracker: bytes
    last_heard: list[tuple[Origin, int]]


_FORM: Final = SavedForm("progress of numbered buffers", "H", 1, _SavedNumbered)


class NumberedProgress:
    """The watermark of one source of numbered buffers.

    >>> progress = NumberedProgress(NumberedRules(), now=0)
    >>> first, third = (Chunk("a", sequence, 1, True, 10 * sequence, 0) for sequence in (1, 3))
    >>> progress.advance([first, third], now=1)
    set()
    >>> progress.watermark, str(progress.why().gap)
    (10, 'gap at sequence 2 (chunks missing: all)')
    >>> progress.advance([first, Chunk("a", 2, 1, True, None, 0)], now=2)
    {('a', 1, 1, True)}
    >>> progress.watermark
    30
    """

    def __init__(self, rules: NumberedRules, now: int, saved: bytes | None = None) -> None:
        self._rules = rules
        self._now = now
        if saved is None:
            self._tracker = ProgressTracker(rules.origins, now=now)
            self._last_heard = dict.fromkeys(self._tracker.origins, now)
        else:
            state = _FORM.decode(saved)
            self._tracker = ProgressTracker.load(state.tracker)
            self._last_heard = dict(state.last_heard)
            for origin in rules.origins or ():
                if origin not in self._last_heard:
                    self._tracker.add(origin, now=now)
                    self._last_heard[origin] = now

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

    def advance(self, chunks: Sequence[Chunk], now: int, *, restarted: bool = False) -> Set[Number]:
        """Apply a batch; return the numbers of its buffers that had arrived before.

        Several tasks may have rows of one buffer: within a batch they count as one.
        """
        watermarks: dict[Number, int | None] = {}
        for chunk in chunks:
            known = watermarks.get(chunk.number)
            marks = [mark for mark in (known, chunk.watermark) if mark is not None]
            watermarks[chunk.number] = max(marks, default=None)
        pause = processing_pause(self._now, now, self._rules.idle_after, restarted=restarted)
        self._last_heard = {origin: at + pause for origin, at in self._last_heard.items()}
        # Sorted, so that few buffers are out of order and a conflict is always raised for the same buffer.
        numbers = sorted(watermarks, key=lambda number: (str(number[0]), *number[1:]))
        headers = [BufferHeader(*number, _marks(watermarks[number])) for number in numbers]
        duplicates = self._tracker.observe_all(headers, now=now).duplicates
        repeated: set[Number] = set()
        for number, duplicate in zip(numbers, duplicates, strict=True):
            if duplicate:
                repeated.add(number)
            else:
                self._last_heard[number[0]] = now
        if self._rules.idle_after is not None:
            for origin, at in self._last_heard.items():
                if at + self._rules.idle_after <= now:
                    self._tracker.idle(origin, now=now)
        self._now = now
        return repeated

    def why(self, key: str | None = None) -> Explanation:
        """Which origin holds the watermark back, since when, and why."""
        return self._tracker.why(self._rules.key if key is None else key)

    def save(self) -> bytes:
        """The saved state."""
        return _FORM.encode(_SavedNumbered(self._tracker.save(), list(self._last_heard.items())))


def _marks(watermark: int | None) -> dict[str, int]:
    return {} if watermark is None else {DEFAULT_KEY: watermark}
