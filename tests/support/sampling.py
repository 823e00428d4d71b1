"""Which cases of a slow parametrized test run in `make test`; `make proof` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], *, keep: Iterable[Any]) -> list[Any]:
    """All values as parameters; those that are not in ``keep`` are marked ``proof``."""
    kept = list(keep)
    return [value if value in kept else _in_proof(value) for value in values]


def _in_proof(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.proof)
