r"""Text that comes from outside, such as error messages and names of origins, in a form that databases store.

PostgreSQL stores no zero character, and no driver encodes a lone surrogate. A message with one of them must
not keep a run from recording its outcome.
"""

from __future__ import annotations

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


def storable(text: str) -> str:
    r"""Return the text with escapes in place of zero characters and lone surrogates.

    >>> storable("a\0b \ud800 ü")
    'a\\0b \\ud800 ü'
    """
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


class FreeText(TypeDecorator[str]):
    """A column for text that comes from outside."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what the database cannot store."""
        return None if value is None else storable(value)
