"""Examples of docstrings as code blocks in the reference.

The docstrings are written for readers of the code: an example follows its sentence, without a
heading or a fence around it. Markdown would read its ``>>>`` as a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fenced(text: str) -> str:
    r"""The text with a fence around each example; an example ends at a blank line, as in doctest.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2\n\nThat is all.")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThat is all.'
    """
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


class DoctestBlocks(griffe.Extension):
    """Fences the examples of every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Once an object and all that is in it has been read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
