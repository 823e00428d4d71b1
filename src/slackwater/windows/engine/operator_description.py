"""The description of an operator in its saved state, so that a changed query can be compared with it.

State outlives the query that wrote it: a query is stopped, changed and started again. The description names
every setting that the state depends on, one by one, so that a change which the state can follow is
distinguished from one that it cannot, and an error names the setting.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Final

from slackwater.errors import CorruptState, IncompatibleState
from slackwater.progress.saved_form import Saved
from slackwater.time import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from slackwater.windows.accumulations.applied import RETURNS
from slackwater.windows.assigners import Calendar, Fixed, Global, Inherited, Sessions, Sliding, Window
from slackwater.windows.spec.window_spec import WindowSpec
from slackwater.windows.triggers import describe

UNRECORDED: Final = -1
"""The allowed lateness in a description that was made from a state of version 1, which did not record it."""

_DURATIONS: Final = ("size", "every", "offset", "gap", "ttl")
_UNITS: Final = (
    (DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "µs"),
)  # fmt: skip
_WINDOWS: Final = {kind.__name__: kind for kind in (Global, Fixed, Sliding, Sessions, Calendar, Inherited)}
_SIGNATURE: Final = re.compile(
    r"(?P<window>\w+\([^()]*\)) (?P<trigger>.+) "
    r"(?P<mode>discarding|accumulating|accumulating_and_retracting) "
    r"(?P<timestamp>end_of_window|earliest|latest) "
    r"updated=(?P<updated>True|False) signed=(?P<signed>True|False) keys=(?P<key>\(.*?\)) "
    r"(?P<accumulations>\S+=\w+\(.*)"
)
_ACCUMULATION: Final = re.compile(r"(?P<name>\S+)=(?P<signature>\w+\(.*?\))(?= \S+=\w+\(|$)")


class OperatorDescription(Saved):
    """The settings of a windowed operator; None for those that a state of version 1 did not record."""

    window: str
    key: list[str]
    mode: str
    retractions: bool
    """Whether the input contains retractions."""
    timestamp: str
    trigger: str
    only_updated: bool
    allowed_lateness: int | None
    accumulations: dict[str, str]
    """The signature of each accumulation by its name."""
    on_time: str | None = None
    closing: str | None = None
    drop_late: str | None = None
    idle: str | None = None
    watermark_key: str | None = None
    ttl: int | None = None
    """That of a global window, which may change; it is not part of ``window``."""

    @classmethod
    def of(cls, spec: WindowSpec) -> OperatorDescription:
        """The description of an operator.

        >>> from slackwater.windows import count, fixed
        >>> spec = WindowSpec(window=fixed("10 seconds"), accumulations={"n": count()}, event_time="ts")
        >>> description = OperatorDescription.of(spec)
        >>> description.window, description.mode, description.accumulations
        ('fixed(size=10 s)', 'accumulating', {'n': 'count()'})
        """
        return cls(
            window=window_text(Global() if spec.ttl is not None else spec.window),
            key=list(spec.key),
            mode=spec.mode,
            retractions=spec.takes_retractions,
            timestamp=spec.timestamp,
            trigger=describe(spec.trigger),
            only_updated=spec.only_updated,
            allowed_lateness=spec.allowed_lateness,
            accumulations={name: each.signature for name, each in spec.accumulations.items()},
            on_time=spec.on_time,
            closing=spec.closing,
            drop_late=spec.drop_late,
            idle=spec.idle,
            watermark_key=spec.watermark_key,
            ttl=spec.ttl,
        )

    @classmethod
    def from_signature(cls, signature: str) -> OperatorDescription:
        """The description that a state of version 1 contains as one line of text.

        >>> text = "Fixed(size=10, offset=0) never() discarding end_of_window updated=False signed=False "
        >>> text += "keys=('auction',) n=count() total=sum(price)"
        >>> description = OperatorDescription.from_signature(text)
        >>> description.window, description.key, description.accumulations
        ('fixed(size=10 µs)', ['auction'], {'n': 'count()', 'total': 'sum(price)'})
        """
        found = _SIGNATURE.fullmatch(signature)
        if found is None:
            raise CorruptState("window state", f"its signature {signature!r} cannot be read")
        return cls(
            window=window_text(_window(found["window"])),
            key=list(ast.literal_eval(found["key"])),
            mode=found["mode"],
            retractions=found["signed"] == "True",
            timestamp=found["timestamp"],
            trigger=found["trigger"],
            only_updated=found["updated"] == "True",
            allowed_lateness=UNRECORDED,
            accumulations={
                each["name"]: each["signature"] for each in _ACCUMULATION.finditer(found["accumulations"])
            },
        )

    @property
    def partials(self) -> dict[str, str]:
        """The part of each accumulation's signature that its partials depend on."""
        return {name: each.partition(RETURNS)[0] for name, each in self.accumulations.items()}

    @property
    def _results(self) -> dict[str, str]:
        """The types of results that panes contain; earlier releases did not record them."""
        parted = {name: each.partition(RETURNS) for name, each in self.accumulations.items()}
        return {name: results for name, (_, separator, results) in parted.items() if separator}

    @property
    def window_text(self) -> str:
        """The window with all its settings."""
        return self.window if self.ttl is None else window_text(Global(self.ttl))

    @property
    def has_sessions(self) -> bool:
        """Whether the windows are sessions."""
        return self.window.startswith("sessions(")

    def check_change(self, new: OperatorDescription) -> None:
        """Raise `IncompatibleState` if the state of this operator cannot become that of ``new``."""
        if differences := list(self._refused(new)):
            raise IncompatibleState("windowed operator", differences)

    def _refused(self, new: OperatorDescription) -> Iterator[tuple[str, object, object]]:
        if self.window != new.window:
            yield "window", self.window, new.window
        if self.key != new.key:
            yield "key", _names(self.key), _names(new.key)
        if self.mode != new.mode:
            yield "mode", repr(self.mode), repr(new.mode)
        if self.timestamp != new.timestamp:
            yield "timestamp", repr(self.timestamp), repr(new.timestamp)
        if self.watermark_key not in (None, new.watermark_key):
            yield "watermark key", repr(self.watermark_key), repr(new.watermark_key)
        # Sessions that may split keep their elements, with the columns that the accumulations read.
        splits = self.has_sessions and self.retractions and self.mode != "discarding"
        applies = any(signature.startswith("applied(") for signature in self.accumulations.values())
        if applies and self.partials != new.partials:  # null would stand for rows that are lost
            yield "the function over rows", _listed(self.partials), _listed(new.partials)
        elif self.mode == "accumulating_and_retracting" or (self.only_updated and new.only_updated):
            for name, results in self._results.items():  # a retraction has the columns of the earlier pane
                if new._results.get(name) != results:
                    yield "the schema of the function", results, new._results.get(name)
        if splits and self.partials != new.partials:
            name = "the list of accumulations over retracting sessions"
            yield name, _listed(self.partials), _listed(new.partials)
        if self.retractions != new.retractions:
            texts = {False: "without retractions", True: "with retractions"}
            yield "the input", texts[self.retractions], texts[new.retractions]


def window_text(window: Window) -> str:
    """A window in the syntax of the lower-case functions, without settings that have their default.

    >>> window_text(Sliding(60_000_000, 10_000_000)), window_text(Calendar("days"))
    ('sliding(size=1 min, every=10 s)', "calendar(unit='days')")
    """
    given: list[str] = []
    for each in fields(window):
        value = getattr(window, each.name)
        if each.default is MISSING or value != each.default:
            text = _exact(value) if each.name in _DURATIONS and type(value) is int else repr(value)
            given.append(f"{each.name}={text}")
    name = "global_window" if isinstance(window, Global) else type(window).__name__.lower()
    return f"{name}({', '.join(given)})"


def _window(text: str) -> Window:
    """The window whose ``repr`` a state of version 1 contains."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _WINDOWS:
        raise CorruptState("window state", f"its window {text!r} is unknown")
    settings = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    return _WINDOWS[call.func.id](**settings)


def _exact(duration: int) -> str:
    """A duration in the largest unit that divides it, so that different durations have different texts."""
    size, unit = next((size, unit) for size, unit in _UNITS if duration % size == 0)
    return f"{duration // size} {unit}"


def _listed(accumulations: dict[str, str]) -> str:
    return ", ".join(f"{name}={signature}" for name, signature in accumulations.items())


def _names(columns: list[str]) -> str:
    return f"({', '.join(columns)})"
