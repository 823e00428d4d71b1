"""Several event times in one source: a watermark for each, one of which drives the operator.

Each key follows the rules of a source with that event time alone; keys never influence each other. Only
idleness is common to them: an origin that sends rows is not idle for any key, whichever times its rows have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from slackwater.monitoring.origins import OriginState
from slackwater.monitoring.query_state import PolicyLag
from slackwater.progress.explanation import Explanation
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation


@dataclass(frozen=True, slots=True)
class TimesRules:
    """The rules of several watermark keys, and the key that drives the operator.

    >>> from slackwater.progress.watermark_policies import lag
    >>> TimesRules((SourceRules(lag("1 second"), key="order"),), key="order").names
    ('order',)
    """

    times: tuple[SourceRules, ...]
    key: str

    @property
    def names(self) -> tuple[str, ...]:
        """All keys."""
        return tuple(rules.key for rules in self.times)

    @property
    def max_ahead(self) -> int | None:
        """The limit, which is the same for every key."""
        return self.times[0].max_ahead


class _SavedTimes(Saved):
    keys: dict[str, bytes]


TIMES_FORM = SavedForm("progress of several event times", "K", 1, _SavedTimes)


class TimesProgress:
    """The watermarks of one source.

    >>> from slackwater.progress.watermark_policies import Lag
    >>> from slackwater.spark.wire.buffers import Peak
    >>> keys = SourceRules(Lag(0), key="order"), SourceRules(Lag(5), key="shipped")
    >>> progress = TimesProgress(TimesRules(keys, key="shipped"), now=0)
    >>> seen = [Observation("a", [Peak(20, 1)], "order"), Observation("a", [Peak(90, 1)], "shipped")]
    >>> progress.advance(seen, now=1), progress.watermark, progress.watermarks
    (0, 85, {'order': 20, 'shipped': 85})
    """

    def __init__(self, rules: TimesRules, now: int, saved: bytes | None = None) -> None:
        self._rules = rules
        known = {} if saved is None else TIMES_FORM.decode(saved).keys
        self._parts = {
            one.key: SourceProgress.load(one, known[one.key], now)
            if one.key in known
            else SourceProgress(one, now)
            for one in rules.times
        }

    @property
    def watermark(self) -> int | None:
        """The current watermark of the driving key; None before the first."""
        return self._parts[self._rules.key].watermark

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The current watermark of every key."""
        return {key: part.watermark for key, part in self._parts.items()}

    @property
    def idle(self) -> bool:
        """Whether every origin is idle."""
        return self._parts[self._rules.key].idle

    def advance(self, observations: Sequence[Observation], now: int, *, restarted: bool = False) -> int:
        """Apply a batch; return the number of event times that were too far in the future to count."""
        origins = sorted({seen.origin for seen in observations}, key=str)
        ahead = 0
        for key, part in self._parts.items():
            mine = [seen for seen in observations if seen.key == key]
            observed = {seen.origin for seen in mine}
            mine += [Observation(origin, [], key) for origin in origins if origin not in observed]
            ahead += part.advance(mine, now, restarted=restarted)
        return ahead

    @property
    def lags(self) -> tuple[PolicyLag, ...]:
        """The lags of the policies, that of the driving key first."""
        keys = sorted(self._parts, key=lambda key: key != self._rules.key)
        return tuple(lag for key in keys for lag in self._parts[key].lags)

    def set_back(self, by: int) -> None:
        """Follow a clock that was set back."""
        for part in self._parts.values():
            part.set_back(by)

    def why(self, key: str | None = None) -> Explanation:
        """Which origin holds the watermark of a key back, since when, and why."""
        return self._parts[self._rules.key if key is None else key].why()

    def origins(self) -> list[OriginState]:
        """The progress of every origin, by key."""
        by_name: dict[str, OriginState] = {}
        for part in self._parts.values():
            for origin in part.origins():
                known = by_name.get(origin.name, origin)
                by_name[origin.name] = replace(known, watermarks={**known.watermarks, **origin.watermarks})
        return list(by_name.values())

    def save(self) -> bytes:
        """The saved state."""
        return TIMES_FORM.encode(_SavedTimes({key: part.save() for key, part in self._parts.items()}))
