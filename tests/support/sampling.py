"""Which cases of a slow parametrized test run in `make check`, and which in `make test` or `make proof`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], *, keep: Iterable[Any], check: Iterable[Any] | None = None) -> list[Any]:
    """All values as parameters.

    Args:
        values: the parameters.
        keep: those that run in `make test`; the others are marked ``proof``.
        check: those that run in `make check` too, if not all of ``keep``; the others are marked ``search``.
    """
    kept = list(keep)
    checked = kept if check is None else list(check)
    return [
        value
        if value in checked
        else _marked(value, pytest.mark.search if value in kept else pytest.mark.proof)
        for value in values
    ]


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=mark)
