"""How watermarks and IDLE are written in the cases, shared by the suites of the progress package."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.progress.values import DEFAULT_KEY, IDLE, Emission, Watermark
from tests.conformance.framework import BrokenCase, Difference, Fields, equal

_EMISSION = Fields({"watermark"}, {"key"})


def check_emissions(expected: object, got: Iterable[Emission]) -> None:
    """Compare a step's ``emit``: the order among keys is free, ``idle`` is last."""
    if not isinstance(expected, list):
        raise Difference(f"emit: expected a list, got {expected!r}")
    wanted = [_parsed(entry) for entry in expected]
    if IDLE in wanted[:-1]:
        raise BrokenCase(f"emit: idle is not last in {expected!r}, as the format asks")
    emitted = list(got)
    if IDLE in emitted[:-1]:
        raise Difference(f"emit: IDLE is not last in {emitted!r}")
    equal("emit", _sorted(wanted), _sorted(emitted))


def _parsed(entry: object) -> Emission:
    if entry == "idle":
        return IDLE
    _EMISSION.check(entry, "emit")
    assert isinstance(entry, dict)
    return Watermark(entry["watermark"], entry.get("key", DEFAULT_KEY))


def _sorted(emissions: list[Emission]) -> list[Emission]:
    return sorted(emissions, key=lambda each: (1, "", 0) if each is IDLE else (0, each.key, each.value))
