"""The end of an error about an unknown name: which names exist, and which one was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_ALIKE: Final = 0.6
"""The similarity from which a name is suggested; that of "prize" and "price" is 0.8."""


def available(name: object, known: Iterable[str], *, lead: str = "available: ", tail: str = "") -> str:
    """List the names that exist, and suggest the one that is most similar to ``name``, if one is.

    Args:
        name: The unknown name.
        known: The names that exist.
        lead: The words before the list.
        tail: The words after it.

    >>> available("prize", ["price", "shop", "at"])
    "available: price, shop, at. Did you mean 'price'?"
    >>> available("colour", ["price", "shop", "at"])
    'available: price, shop, at'
    """
    names = list(known)
    listed = f"{lead}{', '.join(names)}{tail}"
    if not isinstance(name, str) or not names:
        return listed
    likely = nearest(name, names)
    return f"{listed}. Did you mean {likely!r}?" if _similarity(name, likely) >= _ALIKE else listed


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar to ``name``; a name that continues ``name`` comes first.

    >>> nearest("ms.grace.days", ["ms.backfill", "ms.grace.period.days"])
    'ms.grace.period.days'
    >>> nearest("ms.pacing", ["ms.facing", "ms.pacing.seconds"])
    'ms.pacing.seconds'
    """
    given = name.lower()
    return max(known, key=lambda each: (f"{each.lower()}.".startswith(f"{given}."), _similarity(name, each)))


def _similarity(name: str, other: str) -> float:
    from difflib import SequenceMatcher  # only when there is an error to report

    return SequenceMatcher(None, name.lower(), other.lower()).ratio()
