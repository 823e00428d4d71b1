"""A griffe extension that renders the examples of docstrings as code blocks in the reference.

Examples in docstrings have no fence, for readers of the code. Markdown would render ``>>>`` as a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fenced(text: str) -> str:
    r"""Put a fence around each example; an example ends at a blank line, as in doctest.

    >>> fenced("Adds.\n\n>>> 1 + 1\n2\n\nThat is all.")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThat is all.'
    """
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


class DoctestBlocks(griffe.Extension):
    """Puts a fence around the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Rewrite the docstring of a loaded object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
